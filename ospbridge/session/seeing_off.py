"""Answers to INITs that were sent again, behind the one that was adopted: a second socket at the session's port.

The session's own is connected to its handler and hears nobody else. The answers come when the server has read on, which
one that serves one client at a time does when this one has left, so they are looked for then, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.interface import Endpoint
from ospbridge.osp.client.surplus import SurplusMachine
from ospbridge.session.datagrams import MOST_AT_ONCE
from ospbridge.transport.udp import LARGEST_DATAGRAM, open_beside, send_to

if TYPE_CHECKING:
    import socket

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.profile import Profile

__all__ = ["SeeingOff"]


class SeeingOff:
    """What comes to a session's port from others than its handler. Drivers wait, between its turns."""

    def __init__(
        self, sock: socket.socket, machine: SurplusMachine, *, trace: TraceWriter | None = None
    ) -> None:
        self.sock = sock
        self.machine = machine
        self._trace = trace

    @classmethod
    def beside(
        cls,
        sock: socket.socket,
        server: Endpoint,
        profile: Profile,
        owed: int,
        *,
        trace: TraceWriter | None = None,
    ) -> SeeingOff | None:
        """For the connected socket of a session whose server owes so many answers. None where that cannot be heard."""
        second = open_beside(sock) if owed > 0 else None
        return None if second is None else cls(second, SurplusMachine(server, profile, owed), trace=trace)

    def begin(self, now: float, give_up: float) -> None:
        """Our handler has left: the server may read on."""
        self.machine.begin(now, give_up)

    def goes_on(self, now: float) -> bool:
        """Take in and send what there is; True: to be called again at ``machine.deadline``, or when more has come."""
        machine = self.machine
        for _ in range(MOST_AT_ONCE):
            try:
                data, address = self.sock.recvfrom(LARGEST_DATAGRAM)
            except BlockingIOError:
                break
            if self._trace is not None:
                self._trace.received(data, int(address[1]))
            machine.receive(data, Endpoint(str(address[0]), int(address[1])), now)
        machine.handle_timer(now)
        for datagram, to in machine.outgoing:
            if self._trace is not None:
                self._trace.sent(datagram, to.port)
            send_to(self.sock, datagram, to)
        machine.outgoing.clear()
        return not machine.finished

    def close(self) -> None:
        """Whoever answers from now on is not heard."""
        self.sock.close()
