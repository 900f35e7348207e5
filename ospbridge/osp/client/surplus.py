"""Seeing off handlers that a server makes for INITs which nobody needs answered any more, without I/O.

INIT is sent again when it meets silence. A server that reads it late, because it served somebody else, answers each of
them: where it takes one client at a time, the next one as soon as that before has left. Such a handler waits for its
client for good, and the server with it, unless somebody at the client's port says END.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client.unasked import RESET_COMPLETED
from ospbridge.osp.messages import End, EndAck, InitAck, Truncated, decode_reply

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint
    from ospbridge.osp.profile import Profile

__all__ = ["SurplusMachine"]

TRIES: Final = 3
"""Of an END that nobody confirms."""


class SurplusMachine:
    """END for each handler that answers, until as many have left as INITs were ``owed`` an answer, or all is silent.

    ``outgoing`` holds (datagram, destination); feed what comes back with its source. Begins with ``begin``, when the
    server may have read on, and ends by itself, at ``give_up`` at the latest.
    """

    def __init__(self, server: Endpoint, profile: Profile, owed: int) -> None:
        self.outgoing: list[tuple[bytes, Endpoint]] = []
        self.deadline = 0.0
        self.finished = owed <= 0
        self._server = server
        self._marked = profile.end_marker
        self._quiet = profile.patience + profile.init_takes
        """Seconds of silence after which nobody is there, or an END is said again."""
        self._owed = owed
        self._tries: dict[Endpoint, int] = {}
        """By handler that has not confirmed yet."""
        self._gone: set[Endpoint] = set()
        self._give_up = 0.0

    def begin(self, now: float, give_up: float) -> None:
        """From now on each silence counts."""
        self._give_up = give_up
        self._wait(now)

    def receive(self, data: bytes, source: Endpoint, now: float) -> None:
        """A datagram came, to the port that the INITs were sent from."""
        if source.host != self._server.host or source in self._gone:
            return
        try:
            reply = decode_reply(data)
        except RemoteProtocolError:
            return
        message = reply.message if isinstance(reply, Truncated) else reply
        if isinstance(message, InitAck) and source not in self._tries:
            self._tries[source] = 0
            self._say_end(source)
        elif isinstance(message, EndAck) and source in self._tries:
            self._let_go(source)
        elif message.CODE in RESET_COMPLETED and source in self._tries:
            # It waits for this answer, and may take END for it.
            self.outgoing.append((bytes((RESET_COMPLETED[message.CODE],)), source))
            self._say_end(source)
        else:
            return
        self._wait(now)

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come."""
        if self.finished or now < self.deadline:
            return
        for source, tries in list(self._tries.items()):
            if tries < TRIES:
                self._say_end(source)
            else:
                self._let_go(source)
        if now >= self._give_up or not self._tries:
            self.finished = True
        self._wait(now)

    def _say_end(self, source: Endpoint) -> None:
        self._tries[source] += 1
        self.outgoing.append((End().encode(end=self._marked), source))

    def _let_go(self, source: Endpoint) -> None:
        del self._tries[source]
        self._gone.add(source)
        self._owed -= 1
        if self._owed <= 0 and not self._tries:
            self.finished = True

    def _wait(self, now: float) -> None:
        self.deadline = min(now + self._quiet, self._give_up)
