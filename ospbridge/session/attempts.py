"""How often one reset is tried before its error is the user's.

A session that was lost is rebuilt, and the reset tried once more. Where the network repeats datagrams, a first step in
doubt says nothing of the next one: that is tried more often, and costs nothing of what rebuilds may cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ospbridge.errors import OspBridgeError

__all__ = ["Attempts", "costs_nothing"]

TRIES: Final = 2
"""Of a reset that finds the session lost."""
BEGINNINGS: Final = 10
"""Of one whose steps are in doubt because the network repeats datagrams."""


def costs_nothing(error: OspBridgeError | None) -> bool:
    """Whether a session lost to ``error`` is rebuilt without counting: the network repeats datagrams."""
    return bool(getattr(error, "repeats", False))


class Attempts:
    """The tries of one reset."""

    def __init__(self) -> None:
        self._lost = 0
        self._in_doubt = 0

    def go_on(self, error: OspBridgeError) -> bool:
        """A try has ended with ``error``: whether there may be another one."""
        if costs_nothing(error):
            self._in_doubt += 1
        else:
            self._lost += 1
        return self._lost < TRIES and self._in_doubt < BEGINNINGS
