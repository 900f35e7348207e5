"""Two threads in one session at a time, which it is not for: what then goes wrong may be anything.

Nobody looks before something has gone wrong: a lock, or a note of the thread, would cost every step.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from ospbridge.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType, FrameType

__all__ = ["ONE_THREAD", "Crossing", "crossed", "in_use_elsewhere"]

ONE_THREAD = "give each thread a session or an environment of its own, or a lock around all that it calls"


class Crossing:
    """Of what is for one thread at a time: who have met there, and are still to be told.

    Each is told once: when the last one of them fails, the others may have left. What goes wrong behind that is told as
    it is.
    """

    __slots__ = ("_met",)

    def __init__(self) -> None:
        self._met: set[int] = set()

    def seen(self, owner: object, uses: Collection[CodeType]) -> bool:
        """Something went wrong within one of these methods of ``owner``: whether that comes of several threads."""
        mine = threading.get_ident()
        others = _others_within(owner, uses)
        told = bool(others) or mine in self._met
        self._met = (self._met | others) - {mine}
        return told

    def forget(self) -> None:
        """Something begins anew: of threads that met before it nobody is told any more."""
        self._met = set()


def crossed(peer: object) -> LocalProtocolError:
    """The error for whatever came of it. ``peer``: whom the session is with."""
    return LocalProtocolError(
        f"two threads used the connection to {peer} at the same time, which is for one at a time",
        hint=ONE_THREAD,
    )


def in_use_elsewhere(owner: object, uses: Collection[CodeType]) -> bool:
    """Whether another thread is within one of these methods of ``owner``."""
    return bool(_others_within(owner, uses))


def _others_within(owner: object, uses: Collection[CodeType]) -> set[int]:
    mine = threading.get_ident()
    return {
        thread
        for thread, frame in sys._current_frames().items()  # noqa: SLF001  # there is no other way to ask
        if thread != mine and _is_within(frame, owner, uses)
    }


def _is_within(frame: FrameType | None, owner: object, uses: Collection[CodeType]) -> bool:
    while frame is not None:
        if frame.f_code in uses and frame.f_locals.get("self") is owner:
            return True
        frame = frame.f_back
    return False
