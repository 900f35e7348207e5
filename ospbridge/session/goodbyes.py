"""When this process last said goodbye to a handler of a simulator: a restart of the communication keeps its distance.

A real server that is told END and RESET_COMMUNICATION within milliseconds deletes a handler twice, and dies.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ospbridge.osp.timing import RESTART_SETTLES

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

__all__ = ["said", "settled_in"]

_said: dict[Endpoint, float] = {}
"""By simulator; those that are settled are forgotten with the next."""


def said(server: Endpoint) -> None:
    """A handler of this simulator was just told END, of whichever session."""
    now = monotonic()
    for other, at in list(_said.items()):
        if now - at > RESTART_SETTLES:
            _said.pop(other, None)
    _said[server] = now


def settled_in(server: Endpoint) -> float:
    """Seconds until the communication may be restarted."""
    at = _said.get(server)
    return 0.0 if at is None else max(0.0, at + RESTART_SETTLES - monotonic())
