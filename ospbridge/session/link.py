"""Moving one machine's datagrams over a connected UDP socket, for blocking callers."""

from __future__ import annotations

import select
from math import ceil
from socket import MSG_DONTWAIT
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ospbridge.session.datagrams import BRISK, IDLE, LONG, SELDOM, Datagrams
from ospbridge.session.spinning import Spinning
from ospbridge.transport.patient import Patient
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.step.votes import Vote

__all__ = ["Link"]

T = TypeVar("T")
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""


class Link(Datagrams):
    """Runs exchanges to their end. The socket is non-blocking and connected to the handler at ``port``."""

    __slots__ = ("_glance", "_patience", "_patient", "_poll")

    def __init__(
        self, sock: socket.socket, machine: ClientMachine, *, port: int, spin: bool, trace: TraceWriter | None
    ) -> None:
        super().__init__(sock, machine, port=port, trace=trace, clock=monotonic, spins=SPINS if spin else 0)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._glance = select.poll()
        """For a look that waits for nothing: another thread that closes the session may be waiting in the other one."""
        self._glance.register(sock, select.POLLIN)
        self._patient = Patient(sock)
        self._patience = machine.patience
        """Seconds that it waits."""
        self._patient.settimeout(self._patience)

    def walk(self, votes: Sequence[Vote]) -> StraightWay | None:
        """Take a step on its straight way, with nothing between it and the socket; the way, at its end.

        None where an exchange must take the step: from its beginning, or from the ``left_way`` (``barrier.go_on``).
        """
        self._left_way = None
        now = monotonic()
        if now - self._touched > BRISK or self._unlooked >= SELDOM:
            self._unlooked = 0
            if self._glance.poll(0):
                self.drain()
        else:
            self._unlooked += 1
        self._touched = now
        machine = self._machine
        way = machine.set_out(votes, now) if self._trace is None else None
        if way is None:
            return None
        way.came = []
        if not self._along(way, way.first):
            return None
        machine.arrived(way)
        return way

    def _wait(self, way: StraightWay, spinning: Spinning) -> bytes | None:
        spins = spinning.most > 0
        asleep = monotonic() if spins else 0.0
        try:
            data = self._patient.recv(LARGEST_DATAGRAM)
        except TimeoutError:
            self._fell_silent(way)
            return None
        if spins:
            spinning.in_vain(monotonic() - asleep)
        if len(way.came) < way.count and monotonic() - way.began > LONG:
            # The next sleep might be too long: an exchange minds its deadline exactly.
            self._leave(way, data)
            return None
        return data

    def run(self, exchange: Exchange[T]) -> T:
        """The exchange's result, or its error. Bounded by the exchange's own limits."""
        machine = self._machine
        try:
            self.begin(exchange)
            self.complete()
        except KeyboardInterrupt as interrupt:
            # It may have come between the two, where nobody else ends the exchange.
            machine.interrupt(interrupt)
            raise
        return machine.result()  # type: ignore[no-any-return]  # what the exchange returned

    def successor(self, machine: ClientMachine) -> Self:
        """The same way for another machine."""
        return type(self)(self._socket, machine, port=self._port, spin=False, trace=self._trace)

    def spin(self, *, enabled: bool) -> None:
        """Whether a receive is tried before it sleeps, from here on."""
        spins = SPINS if enabled else 0
        self._spinning, self._waiting = Spinning(spins), Spinning(spins)

    # --- the parts, for those who run several machines side by side ------------------------------------------------

    def begin(self, exchange: Exchange[Any]) -> None:
        """Start an exchange and send its first datagrams. Raises where none can be started."""
        machine = self._machine
        if machine.patience != self._patience:
            self._patience = machine.patience
            self._patient.settimeout(self._patience)
        now = monotonic()
        if now - self._touched > IDLE:
            self.drain()
        try:
            machine.begin(exchange, now)
            if self._left is not None:
                self._led_off(now)
            if machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._refused(now)
        except BaseException as error:
            machine.interrupt(error)
            raise
        self._touched = now

    def complete(self) -> None:
        """Wait until the exchange under way has ended."""
        machine = self._machine
        now = self._touched
        try:
            way = machine.straight
            if way is not None and not way.left and self._trace is None:
                if not self._along(way, ()):
                    self._led_off(now)
                if way.arrived and not machine.finished:
                    machine.walked(monotonic())
                if machine.outgoing:
                    # The exchange says more: what it polls, what ends an episode, the next step.
                    self._send_all()
            while not machine.finished:
                data = self._receive(machine.deadline)
                now = monotonic()
                if data is None:
                    machine.handle_timer(now)
                else:
                    self._take(data, now)
                if machine.outgoing:
                    self._send_all()
        except ConnectionRefusedError:
            self._refused(now)
        except BaseException as error:
            machine.interrupt(error)
            raise
        self._touched = now

    def read(self) -> bool:
        """Take in one datagram, without waiting; False where none is there. Whatever fails ends only the exchange."""
        machine = self._machine
        now = monotonic()
        try:
            try:
                data = self._socket.recv(LARGEST_DATAGRAM, MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                self._disturbed(error)
                return True
            self._take(data, now)
            if machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._refused(now)
        except Exception as error:  # noqa: BLE001  # told by the exchange's result
            machine.interrupt(error)
        self._touched = now
        return True

    def expire(self) -> None:
        """The deadline has come: look once more for a datagram, else let the machine act on the silence."""
        if self.read():
            return
        machine = self._machine
        now = monotonic()
        try:
            machine.handle_timer(now)
            if machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._refused(now)
        except Exception as error:  # noqa: BLE001  # told by the exchange's result
            machine.interrupt(error)

    @property
    def fd(self) -> int:
        """The socket's file descriptor."""
        return self._socket.fileno()

    @property
    def machine(self) -> ClientMachine:
        """Whose datagrams these are."""
        return self._machine

    def _receive(self, deadline: float | None) -> bytes | None:
        """The next datagram, or None when ``deadline`` has come and none is there. Spins before it sleeps."""
        assert deadline is not None
        receive = self._socket.recv
        straight = self._machine.straight
        spinning = self._waiting if straight is not None and straight.completing else self._spinning
        for _ in range(spinning.tries):
            try:
                data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError as error:
                self._disturbed(error)
                continue
            spinning.paid()
            return data
        began = now = monotonic()
        while True:
            # Between the halves of a step the caller may have taken its time, and what is there counts all the same.
            if now < deadline:
                self._poll.poll(ceil((deadline - now) * 1000))
                now = monotonic()
            try:
                data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
            except BlockingIOError:
                if now >= deadline:
                    break
                continue
            except OSError as error:
                self._disturbed(error)
                continue
            spinning.in_vain(now - began)
            return data
        spinning.in_vain()
        return None
