"""Moving one machine's datagrams over a connected UDP socket, for blocking callers."""

from __future__ import annotations

import select
from math import ceil
from socket import MSG_DONTWAIT
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from ospbridge.osp.client.stalls import LATE
from ospbridge.session.datagrams import BRISK, IDLE, LONG, SELDOM, Datagrams
from ospbridge.session.spinning import Spinning
from ospbridge.transport.patient import Patient
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.step.votes import Vote

__all__ = ["GoOn", "Link"]

T = TypeVar("T")
GoOn: TypeAlias = "Callable[[StraightWay | None], Exchange[Any]]"
"""Makes the exchange of a step from where its straight way was left; None: from its beginning."""
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""


class Link(Datagrams):
    """Runs exchanges to their end. The socket is non-blocking and connected to the handler at ``port``."""

    __slots__ = (
        "_glance",
        "_go_on",
        "_patience",
        "_patient",
        "_poll",
        "_quiet_at",
        "_walked",
        "_walking",
    )

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
        self._walking: StraightWay | None = None
        """Of a step whose first half was taken, and ..."""
        self._go_on: GoOn | None = None
        """... what goes on with it should it be left ..."""
        self._quiet_at = 0.0
        """... which it is if nothing comes until then."""
        self._walked: StraightWay | Exception | None = None
        """The same at its end, until ``result`` is asked for."""

    def walk(self, votes: Sequence[Vote]) -> StraightWay | None:
        """Take a step on its straight way, with nothing between it and the socket; the way, at its end.

        None where an exchange must take the step: from its beginning, or from the ``left_way`` (``barrier.go_on``).
        """
        way = self._outset(votes)
        if way is None or not self._along(way, way.first):
            return None
        self._machine.arrived(way)
        return way

    def _outset(self, votes: Sequence[Vote]) -> StraightWay | None:
        """The way of a step that begins now, behind a look at what came meanwhile; None where it cannot be walked."""
        self._left_way = None
        now = monotonic()
        if now - self._touched > BRISK or self._unlooked >= SELDOM:
            self._unlooked = 0
            if self._glance.poll(0):
                self.drain()
        else:
            self._unlooked += 1
        self._touched = now
        way = self._machine.set_out(votes, now) if self._trace is None else None
        if way is not None:
            way.came = []
        return way

    def _wait(self, way: StraightWay, spinning: Spinning) -> bytes | None:
        asleep = monotonic()
        try:
            data = self._patient.recv(LARGEST_DATAGRAM)
        except TimeoutError:
            self._fell_silent(way)
            return None
        now = monotonic()
        if spinning.most:
            spinning.in_vain(now - asleep)
        if now - asleep > LATE:
            self._late(now - asleep)
        if len(way.came) < way.count and now - way.began > LONG:
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

    def set_off(self, votes: Sequence[Vote], go_on: GoOn) -> None:
        """The first half of a step on its straight way: what is sent before anything comes. Raises as ``begin`` does.

        Its ``result`` is the way, at its end; where it cannot be walked to that, the result of ``go_on``'s exchange.
        """
        way = self._outset(votes)
        if way is None:
            self.begin(go_on(None))
            return
        self._walking, self._go_on = way, go_on
        self._quiet_at = way.began + self._machine.patience
        self._held.clear()
        try:
            if way.pipelined:
                self._volleys.send(self._socket, way.first)
            else:
                self._socket.send(way.first[0], MSG_DONTWAIT)
        except OSError as error:
            self._turn_off(way, error)
        else:
            way.prepare()

    def complete(self) -> None:
        """Wait until the step or exchange under way has ended."""
        machine = self._machine
        if (way := self._walking) is not None:
            if self._along(way, ()):
                self._arrive(way)
                return
            self._go_on_without_way()
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
        """Take in a datagram, without waiting; False where none is there. What fails ends only what is under way."""
        if self._walking is not None:
            return self._read_on(self._walking)
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
        if (way := self._walking) is not None:
            self._fell_silent(way)
            self._go_on_without_way()
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

    def interrupt(self, error: BaseException) -> None:
        """End the step or exchange under way with ``error``."""
        self._walking = self._go_on = self._walked = None
        self._machine.interrupt(error)

    def result(self) -> Any:
        """What ended: a way that was walked to its end, or what an exchange returned. Raises what it ended with."""
        walked, self._walked = self._walked, None
        if walked is None:
            return self._machine.result()
        if isinstance(walked, Exception):
            raise walked
        return walked

    @property
    def finished(self) -> bool:
        """Nothing is under way."""
        return self._walking is None and self._machine.finished

    @property
    def deadline(self) -> float | None:
        """When ``expire`` is to be called; None where nothing is under way."""
        return self._machine.deadline if self._walking is None else self._quiet_at

    # --- a step in halves ------------------------------------------------------------------------------------------

    def _read_on(self, way: StraightWay) -> bool:
        """Take in what there is of a way: one datagram, or all of those that are answered together."""
        socket, held = self._socket, self._held
        before = len(way.came)
        try:
            while len(way.came) < len(way.expected):
                answer = way.expected[len(way.came)][2]
                try:
                    data = socket.recv(LARGEST_DATAGRAM, MSG_DONTWAIT)
                except BlockingIOError:
                    break
                if not way.comes(data):
                    self._turn_off(way, data)
                    return True
                if not way.pipelined:
                    if answer is not None:
                        socket.send(answer, MSG_DONTWAIT)
                    break
                if answer is not None:
                    held.append(answer)
            if held:
                self._release()
        except OSError as error:
            self._turn_off(way, error)
            return True
        if len(way.came) == before:
            return False
        self._touched = now = monotonic()
        self._quiet_at = min(now + self._machine.patience, way.began + self._machine.limits.step)
        if way.arrived:
            self._arrive(way)
        return True

    def _arrive(self, way: StraightWay) -> None:
        self._walking = self._go_on = None
        self._machine.arrived(way)
        self._walked = way

    def _turn_off(self, way: StraightWay, left: bytes | OSError | None) -> None:
        self._leave(way, left)
        self._go_on_without_way()

    def _go_on_without_way(self) -> None:
        """The way was left: its exchange deals with what led off it."""
        go_on = self._go_on
        assert go_on is not None
        self._walking = self._go_on = None
        try:
            self.begin(go_on(self.left_way()))
        except Exception as error:  # noqa: BLE001  # told by the result
            self._walked = error

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
            if now - began > LATE:
                self._late(now - began)
            return data
        spinning.in_vain()
        return None
