"""What is for one thread at a time, and may be closed by any, at any moment.

Nobody waits for a lock: a second thread is told that it is one, and whoever is inside while another thread closes it
looks at ``closing`` at least every now and then, and leaves.
"""

from __future__ import annotations

from threading import get_ident
from time import monotonic, sleep
from typing import Final

from ospbridge.errors import LocalProtocolError, SessionClosed

__all__ = ["OneThread", "crossed"]

LOOK_EVERY: Final = 0.001
"""Seconds between looks at whether another thread has left."""


class OneThread:
    """Who uses a session, or what is made of sessions, now. ``peer``: whom it is with.

    A context, or ``enter`` and ``leave`` where a context costs too much.
    """

    __slots__ = ("_owner", "closing", "peer")

    def __init__(self, peer: object) -> None:
        self.peer = peer
        self._owner = 0
        self.closing = ""
        """Why whoever is inside leaves with SessionClosed as soon as it looks; empty while nobody closes it."""

    @property
    def mine(self) -> bool:
        """This thread is inside."""
        return self._owner == get_ident()

    @property
    def by_others(self) -> bool:
        """Another thread is inside."""
        return self._owner not in {0, get_ident()}

    def enter(self) -> None:
        """Nobody else may be inside: a ``leave`` must follow in any case. Raises LocalProtocolError, SessionClosed."""
        me = get_ident()
        if self._owner not in {0, me}:
            self.check()
            raise crossed(self.peer)
        # Python switches threads neither between these lines nor within them.
        self._owner = me
        if self.closing:
            self._owner = 0
            self.check()

    def leave(self) -> None:
        """Whoever entered is done."""
        if self._owner == get_ident():
            self._owner = 0

    def check(self) -> None:
        """Raises SessionClosed where somebody closes it."""
        if self.closing:
            raise SessionClosed(self.closing)

    def refuse(self, why: str = "") -> None:
        """Nobody may use it any more, and whoever is inside is to leave."""
        self.closing = why or f"the session with {self.peer} was closed"

    def close(self, seconds: float) -> bool:
        """Have whoever is inside leave; False where that takes longer. A ``leave`` must follow.

        Whoever closes it from within its own use, as a handler of signals does, need not wait for itself.
        """
        self.refuse()
        give_up = monotonic() + seconds
        while self.by_others:
            if monotonic() > give_up:
                return False
            sleep(LOOK_EVERY)
        self._owner = get_ident()
        return True

    def __enter__(self) -> None:
        try:
            self.enter()
        except BaseException:
            self.leave()
            raise

    def __exit__(self, *_: object) -> None:
        self.leave()


def crossed(peer: object) -> LocalProtocolError:
    """The error for a second thread. ``peer``: whom the session is with."""
    return LocalProtocolError(
        f"two threads used the connection to {peer} at the same time, which is for one at a time",
        hint="give each thread a session or an environment of its own, or a lock around all that it calls",
    )
