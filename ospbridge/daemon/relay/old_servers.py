"""What the servers of Ray 2.47 and 2.48 do not survive, and no check before sending can keep from them.

Observed on Ray 2.47.1: a row of numbers stays the list that JSON made of it, and the learner takes that for a tuple of
actions, which ends the whole training. A server that was mended learns from them, and nothing tells the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.observe import logs
from ospbridge.rllink.dialects import JSON

if TYPE_CHECKING:
    from ospbridge.rllink.dialects import Dialect

__all__ = ["tell_numbers"]

log = logs.get(__name__)


def tell_numbers(upstream: str, dialect: Dialect, action: str) -> None:
    """That actions which are numbers may end this server, by its dialect. ``action``: such a one, in words.

    For servers that do not say what they are called: RLlib's do not.
    """
    if dialect is JSON:
        log.warning(
            "the upstream may not survive actions that are numbers",
            upstream=upstream,
            actions=action,
            hint=f"the training of Ray {JSON.releases} ends over them with a TypeError, unless its server is mended: "
            "use Ray 2.49 or later",
        )
