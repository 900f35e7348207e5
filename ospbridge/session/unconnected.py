"""A machine and a socket that is connected to nobody: whoever answers may be new to both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ospbridge.session.datagrams import MOST_AT_ONCE
from ospbridge.transport.udp import receive_from, send_to

if TYPE_CHECKING:
    import socket

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.connecting import ConnectMachine
    from ospbridge.osp.client.surplus import SurplusMachine

__all__ = ["Unconnected"]

M = TypeVar("M", bound="ConnectMachine | SurplusMachine")


class Unconnected(Generic[M]):
    """Drivers wait, between its turns."""

    def __init__(
        self, sock: socket.socket, machine: M, *, trace: TraceWriter | None, tally: Tally | None = None
    ) -> None:
        self.sock = sock
        self.machine = machine
        self._trace = trace
        self._tally = tally

    def goes_on(self, now: float) -> bool:
        """Take in and send what there is; True: to be called again at ``machine.deadline``, or when more has come.

        Raises what the machine does.
        """
        self._hear(now)
        self.machine.handle_timer(now)
        self._say()
        return not self.machine.finished

    def _hear(self, now: float) -> None:
        for _ in range(MOST_AT_ONCE):
            packet = receive_from(self.sock)
            if packet is None:
                break
            data, source = packet
            if self._trace is not None:
                self._trace.received(data, source.port)
            if self._tally is not None:
                self._tally.received[data[0] if data else 0] += 1
            self.machine.receive(data, source, now)

    def _say(self) -> None:
        for datagram, to in self.machine.outgoing:
            if self._trace is not None:
                self._trace.sent(datagram, to.port)
            if self._tally is not None:
                self._tally.sent[datagram[0]] += 1
            send_to(self.sock, datagram, to)
        self.machine.outgoing.clear()
