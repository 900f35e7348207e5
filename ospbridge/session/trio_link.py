"""Moving one machine's datagrams over a connected UDP socket, for trio.

The socket is an ordinary non-blocking one: receive first, and ask trio to wait only when nothing is there. That
leaves the scheduler out of most steps; checkpoints keep the other tasks alive, while the simulator is at work if it is.
"""

from __future__ import annotations

import select
from socket import MSG_DONTWAIT
from typing import TYPE_CHECKING, Final, Self, TypeVar

import trio

from ospbridge.osp.client.stalls import LATE
from ospbridge.session.datagrams import BRISK, IDLE, LONG, SELDOM, Datagrams
from ospbridge.transport.patient import Patient
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.step.votes import Vote
    from ospbridge.session.spinning import Spinning

__all__ = ["TrioLink"]

T = TypeVar("T")
SPINS: Final = 200
"""Tries of a receive before it waits, at most: some 100 us in which no other task runs."""
CHECKPOINT_EVERY: Final = 0.001
"""Seconds between checkpoints, where they delay nothing that is there already."""
CHECKPOINT_AT_LATEST: Final = 0.004
"""Seconds after which there is one even where a step waits for it."""


class TrioLink(Datagrams):
    """Runs exchanges to their end. The socket is non-blocking and connected to the handler at ``port``.

    ``linger``: seconds for which a step waits for a datagram without the scheduler, in which no other task runs.
    """

    __slots__ = ("_linger", "_patient", "_poll", "checkpoint_due", "gave_way_at", "pausing")

    def __init__(
        self,
        sock: socket.socket,
        machine: ClientMachine,
        *,
        port: int,
        spin: bool,
        trace: TraceWriter | None,
        tally: Tally | None = None,
        linger: float = 0.0,
    ) -> None:
        spins = SPINS if spin else 0
        # By way of the clock itself, since each step asks it several times.
        clock = trio.lowlevel.current_clock().current_time
        super().__init__(sock, machine, port=port, trace=trace, clock=clock, spins=spins, tally=tally)
        self.gave_way_at = 0.0
        """When other tasks had their turn here, by trio's clock."""
        self._linger = round(linger * 1000)
        """In milliseconds."""
        self._patient: Patient | None = None
        """For as long in one call; none where nobody lingers."""
        if linger:
            self._patient = Patient(sock)
            self._patient.settimeout(linger)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self.checkpoint_due = False
        """No other task had its turn for a while."""
        self.pausing: StraightWay | None = None
        """The way on which something has to be waited for."""

    def walk(self, votes: Sequence[Vote]) -> StraightWay | None:
        """Take a step on its straight way, with nothing between it and the socket, as ``Link.walk`` does.

        None also where it has to wait (``pausing``), or where others must have their turn first (``checkpoint_due``).
        """
        self._left_way = None
        now = self._clock()
        self.checkpoint_due = now - self.gave_way_at > CHECKPOINT_AT_LATEST
        if self.checkpoint_due:
            return None
        if now - self._touched > BRISK or self._unlooked >= SELDOM:
            self._unlooked = 0
            if self._poll.poll(0):
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
        return self._arrived(way)

    def _wait(self, way: StraightWay, spinning: Spinning) -> bytes | None:
        began = self._clock()
        # An acknowledgement is there soon, and whoever is to send it may need this very core: other tasks have their
        # turn behind it, while the simulator thinks.
        longest = CHECKPOINT_EVERY if way.completing else CHECKPOINT_AT_LATEST
        if self._patient is not None and began - self.gave_way_at <= longest:
            try:
                data = self._patient.recv(LARGEST_DATAGRAM)
            except TimeoutError:
                pass
            else:
                slept = self._clock() - began
                spinning.in_vain(slept)
                if slept > LATE:
                    self._late(slept)
                return data
        self.pausing = way
        return None

    async def walk_on(self) -> StraightWay | None:
        """``walk`` on from where it had to wait: ``pausing``. None where an exchange must go on, as there."""
        way, self.pausing = self.pausing, None
        assert way is not None
        machine = self._machine
        while True:
            spinning = self._waiting if way.completing else self._spinning
            before = len(way.came)
            began = self._clock()
            if began - self.gave_way_at > CHECKPOINT_EVERY:
                await self.give_way()
            came = bool(self._linger and self._poll.poll(self._linger))
            if not came:
                with trio.move_on_at(began + machine.patience):
                    await trio.lowlevel.wait_readable(self._socket)
                    came = True
                self.gave_way_at = self._clock()
            now = self._clock()
            if not came:
                self._fell_silent(way)
                return None
            if now - began > LONG and not way.completing:
                # An exchange minds its deadline exactly.
                self._leave(way, None)
                return None
            spinning.in_vain(now - began)
            if now - began > LATE:
                self._late(now - began)
            if self._along(way, (), woken=True):
                return self._arrived(way)
            if self.pausing is None:
                return None
            self.pausing = None
            if len(way.came) == before:
                self._leave(way, None)
                return None

    def _arrived(self, way: StraightWay) -> StraightWay:
        if self._tally is not None:
            self._tally.straight += way.count
        self._machine.arrived(way)
        return way

    async def give_way(self) -> None:
        """A checkpoint, behind which steps may be taken for a while."""
        await trio.lowlevel.checkpoint()
        self.gave_way_at = self._clock()
        self.checkpoint_due = False

    async def run(self, exchange: Exchange[T]) -> T:
        """The exchange's result, or its error. A checkpoint; when cancelled the exchange is interrupted."""
        machine = self._machine
        now = self._clock()
        if now - self._touched > IDLE and self._poll.poll(0):
            self.drain()
        try:
            await self._checkpoint(now)
            # Others may have taken their time meanwhile, which is no silence of the simulator's.
            now = self._clock()
            machine.begin(exchange, now)
            if self._left is not None:
                self._led_off(now)
            while not machine.finished:
                if machine.outgoing:
                    self._send_all()
                data = await self._receive(machine.deadline)
                now = self._clock()
                if data is None:
                    machine.handle_timer(now)
                else:
                    self._take(data, now)
                    if now - self.gave_way_at > CHECKPOINT_EVERY:
                        await self._checkpoint(now)
            if machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._refused(now)
        except BaseException as error:
            exchange.close()
            machine.interrupt(error)
            raise
        self._touched = now
        return machine.result()  # type: ignore[no-any-return]  # what the exchange returned

    def successor(self, machine: ClientMachine) -> Self:
        """The same way for another machine."""
        return type(self)(
            self._socket, machine, port=self._port, spin=False, trace=self._trace, tally=self._tally
        )

    async def _checkpoint(self, now: float) -> None:
        if now - self.gave_way_at > CHECKPOINT_EVERY:
            await self.give_way()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def wait_readable(self) -> None:
        """Until something comes unasked."""
        await trio.lowlevel.wait_readable(self._socket)

    async def _receive(self, deadline: float | None) -> bytes | None:
        """The next datagram, or None when ``deadline`` has come."""
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
        began = self._clock()
        with trio.move_on_at(deadline):
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                self.gave_way_at = self._clock()
                try:
                    data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._disturbed(error)
                    continue
                spinning.in_vain(self.gave_way_at - began)
                if self.gave_way_at - began > LATE:
                    self._late(self.gave_way_at - began)
                return data
        spinning.in_vain()
        try:
            # This task may have had its turn only behind the deadline, and what is there counts all the same.
            return receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError as error:
            self._disturbed(error)
        return None
