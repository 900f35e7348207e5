"""A request to the daemon and its reply, for blocking callers: through a stream, or memory shared beside it.

What goes wrong is told as it is, OSError and RemoteProtocolError; ``HubClient`` finds the words for its users.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.hub.decoding import decode_reply
from ospbridge.hub.framing import Incoming, encode
from ospbridge.hub.replies import Held, HubReply, LaneOpened
from ospbridge.hub.requests import OpenLane
from ospbridge.session.crossing import crossed, in_use_elsewhere
from ospbridge.session.spinning import Spinning
from ospbridge.transport.lane import FILES, ClientLane, possible
from ospbridge.transport.patient import LocalStream, wait_writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.transport.patient import PatientStream

__all__ = ["HubExchange"]

R = TypeVar("R")
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""
CORES: Final = 3
"""The environment's, the daemon's and the simulator's: with two, spinning here more than doubles the mean step."""

LOOK_FOR_OTHERS: Final = 1.0
"""Seconds without an answer behind which it is looked whether another thread waits for one, too."""
LOOKS: Final = 4
"""At shared memory, in the time of a receive."""


class HubExchange:
    """Over a connected stream, which ``close`` closes. Replies have no numbers: whatever interrupts it must end it."""

    def __init__(self, stream: PatientStream, *, spin: bool) -> None:
        self._stream = stream
        self._incoming = Incoming()
        self._spinning = Spinning(SPINS, enabled=spin, cores=CORES)
        self._spins = self._spinning.tries > 0
        self._lane: ClientLane | None = None
        self._by_lane = False
        """So the latest request went, and its answer comes."""

    def open_lane(self, limit: float) -> None:
        """Share memory with the daemon, where both are on one host and it can. Raises as ``receive`` does."""
        stream = self._stream
        if self._lane is not None or not isinstance(stream, LocalStream) or not possible():
            return
        frame = bytearray()
        encode(OpenLane(), frame)
        self.send(frame, limit)
        try:
            count, files = stream.receive_files(self._incoming.space(), limit, FILES)
        except BlockingIOError:
            raise _silent(limit) from None
        try:
            reply = self._receive(count, limit, decode_reply)
            if isinstance(reply, LaneOpened) and files:
                given, files = files, []
                with suppress(OSError):
                    self._lane = ClientLane(given, stream.fileno())
        finally:
            for file in files:
                os.close(file)

    def send(self, frame: bytearray, limit: float, *, step: bool = False) -> None:
        """The first half of an exchange; ``receive`` must follow. Others may wait for the answer to a ``step`` too."""
        lane = self._lane
        self._by_lane = step and lane is not None and lane.post(frame)
        if self._by_lane:
            return
        stream = self._stream
        try:
            sent = stream.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            self._send_rest(frame, sent, monotonic() + limit)

    def _send_rest(self, frame: bytearray, sent: int, deadline: float) -> None:
        rest = memoryview(frame)[sent:]
        while rest:
            left = deadline - monotonic()
            if left <= 0:
                raise TimeoutError(0, "it does not read")
            wait_writable(self._stream, left)
            with suppress(BlockingIOError):
                rest = rest[self._stream.send(rest) :]

    def step(self, frame: bytearray, limit: float) -> HubReply:
        """Both halves of a step's exchange."""
        lane = self._lane
        if lane is not None and lane.post(frame):
            return self._receive_by_lane(lane, limit, decode_reply)
        self.send(frame, limit)
        return self.receive(limit)

    def receive(
        self, limit: float, read: Callable[[memoryview], HubReply | R] = decode_reply
    ) -> HubReply | R:
        """The reply within ``limit`` seconds, and those that the daemon asks for. Spins before it sleeps.

        ``read`` may make something else of what it knows.
        """
        if self._by_lane:
            assert self._lane is not None
            return self._receive_by_lane(self._lane, limit, read)
        return self._receive(self._spun() if self._spinning.tries else None, limit, read)

    def _receive(
        self, count: int | None, limit: float, read: Callable[[memoryview], HubReply | R]
    ) -> HubReply | R:
        """``count`` bytes have come; None: nothing has."""
        began = monotonic()
        left, deadline = limit, began + limit
        while True:
            if count is None:
                try:
                    count = self._stream.receive(self._incoming.space(), min(left, LOOK_FOR_OTHERS))
                except BlockingIOError:
                    left = self._left(began, deadline, limit)
                    continue
                if self._spins:
                    self._spinning.in_vain(monotonic() - began)
            reply, held = self._said(count, read)
            if reply is not None:
                return reply
            if held is not None and not held.request:
                # Somebody else makes the world wait, which is none of the daemon's own delay.
                deadline = monotonic() + held.seconds + limit
            count = None
            left = max(deadline - monotonic(), 0.0)

    def _receive_by_lane(
        self, lane: ClientLane, limit: float, read: Callable[[memoryview], HubReply | R]
    ) -> HubReply | R:
        spinning = self._spinning
        for _ in range(LOOKS * spinning.tries):
            if (message := lane.answer()) is not None:
                spinning.paid()
                return read(message)
        began = monotonic()
        left, deadline = limit, began + limit
        while True:
            spoken = lane.wait(left)
            if (message := lane.answer()) is not None:
                if self._spins:
                    spinning.in_vain(monotonic() - began)
                return read(message)
            if spoken:
                with suppress(BlockingIOError):
                    reply, held = self._said(self._stream.receive_now(self._incoming.space()), read)
                    if reply is not None:
                        return reply
                    if held is not None and held.request == lane.request:
                        deadline = monotonic() + held.seconds + limit
            left = self._left(began, deadline, limit)

    def _left(self, began: float, deadline: float, limit: float) -> float:
        """Seconds to wait on, where nothing has come yet. Raises TimeoutError where there are none left.

        Raises LocalProtocolError where another thread waits here as well: each may have taken the other's answer.
        """
        now = monotonic()
        if now >= began + LOOK_FOR_OTHERS and in_use_elsewhere(self, USES):
            raise crossed("the daemon")
        left = deadline - now
        if left <= 0:
            raise _silent(limit)
        return left

    def _said(
        self, count: int, read: Callable[[memoryview], HubReply | R]
    ) -> tuple[HubReply | R | None, Held | None]:
        """What so many bytes on the stream complete: a reply, and the latest notice."""
        if not count:
            raise ConnectionResetError(0, "the stream ended")
        held = None
        message = self._incoming.take(count)
        while message is not None:
            reply = read(message)
            if not isinstance(reply, Held):
                return reply, held
            held = reply
            message = self._incoming.next_message()
        return None, held

    def _spun(self) -> int | None:
        """How many bytes came while spinning; None where none did."""
        space = self._incoming.space()
        receive = self._stream.receive_now
        for _ in range(self._spinning.tries):
            try:
                count = receive(space)
            except BlockingIOError:
                continue
            self._spinning.paid()
            return count
        return None

    def close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()
        self._stream.close()


USES: Final = frozenset(use.__code__ for use in (HubExchange.step, HubExchange.receive, HubExchange.send))
"""What it does for one thread at a time; closing may come from any."""


def _silent(limit: float) -> TimeoutError:
    return TimeoutError(0, f"no reply within {limit:g} s")
