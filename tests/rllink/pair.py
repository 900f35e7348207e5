"""A client machine wired to a server machine in memory, under a clock of their own.

No sockets and no waiting: time jumps to the next thing that happens. Bytes travel in pieces of any size, and a
learner that the test describes answers for the server.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ospbridge.errors import OspBridgeError, RemoteProtocolError
from ospbridge.rllink.client import ClientMachine, Exchange
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.dialects import Dialect
from ospbridge.rllink.messages import ModuleWeights, SetConfig
from ospbridge.rllink.server import EpisodesArrived, ServerEvent, ServerMachine, StateWanted

T = TypeVar("T")
LATENCY = 100e-6
EVENTS_AT_MOST = 100_000
CONFIG = SetConfig(env_steps_per_sample=10, force_on_policy=True)


def weights(seq_no: int) -> ModuleWeights:
    return ModuleWeights({"layer.weight": np.full((2, 2), seq_no, np.float32)}, seq_no)


class Hang(AssertionError):
    """Virtual time or events ran out."""


class Pair:
    """A client, a server, and what happened. ``learns`` are the seconds that learning takes.

    ``stale``: so many wishes for learned weights are answered at once with the old ones, as a real server does when
    its driver has not set the new ones for the second time yet.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        limits: Limits | None = None,
        config: SetConfig = CONFIG,
        learns: float = 0.3,
        stale: int = 0,
        piece: int = 1 << 30,
        deaf: bool = False,
    ) -> None:
        self.now = 1000.0
        self.client = ClientMachine(dialect, limits=limits)
        self.server = ServerMachine(config)
        self.seq_no = 0
        self.learns = learns
        self.stale = stale
        self.piece = piece
        self.deaf = deaf
        """Nothing that the client sends arrives."""
        self.seen: list[ServerEvent] = []
        self.times: list[float] = []
        """When weights were wanted."""
        self.to_server = bytearray()
        """All that the client sent."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def steps(self) -> int:
        return sum(event.steps for event in self.seen if isinstance(event, EpisodesArrived))

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time, next(self._order), action))

    def _carry(self, data: list[bytes | bytearray], deliver: Callable[[bytes], None]) -> None:
        stream = b"".join(data)
        for number, start in enumerate(range(0, len(stream), self.piece)):
            self.at(
                self.now + LATENCY + number * 1e-9,
                lambda piece=stream[start : start + self.piece]: deliver(piece),  # type: ignore[misc]  # bound now
            )

    def flush(self) -> None:
        """Let both sides' bytes go, and the learner deal with what arrived."""
        sent = self.client.data_to_send()
        for data in sent:
            self.to_server += data
            self.client.sent(self.now)
        if not self.deaf:
            self._carry(sent, self._at_server)
        while (event := self.server.next_event()) is not None:
            self.seen.append(event)
            if isinstance(event, StateWanted):
                self.times.append(self.now)
                self._answer(event)
        self._carry(self.server.data_to_send(), self._at_client)

    def _answer(self, event: StateWanted) -> None:
        if event.learned and not self.stale:
            self.at(self.now + self.learns, self._learned)
            return
        if event.learned:
            self.stale -= 1
            self.at(self.now + self.learns, self._set_late)
        self.server.send_state(weights(self.seq_no))

    def _set_late(self) -> None:
        self.seq_no += 1

    def _learned(self) -> None:
        self.seq_no += 1
        self.server.send_state(weights(self.seq_no))
        self.flush()

    def push(self, data: bytes | bytearray, *, after: float = 0.0) -> None:
        """Let the server say something unasked."""
        self.at(self.now + after, lambda: self._at_client(bytes(data)))

    def hang_up(self, *, after: float = 0.0) -> None:
        self.at(self.now + after, lambda: self.client.eof(self.now))

    def _at_server(self, piece: bytes) -> None:
        try:
            self.server.receive(piece)
        except RemoteProtocolError:
            # What a driver does then: the connection is closed, and the server lives on.
            self.at(self.now + LATENCY, lambda: self.client.eof(self.now))
        self.flush()

    def _at_client(self, piece: bytes) -> None:
        try:
            self.client.receive(piece, self.now)
        except RemoteProtocolError:
            assert self.client.lost is not None
        self.flush()

    def advance(self, *, until: float) -> None:
        """Let the next thing happen. Raises Hang behind ``until``."""
        times = [self._queue[0][0]] if self._queue else []
        deadline = self.client.next_deadline()
        if deadline is not None:
            times.append(deadline)
        if not times or min(times) > until:
            raise Hang(f"nothing more happens before {until - 1000:.1f} s")
        self.now = max(self.now, min(times))
        if self._queue and self._queue[0][0] <= self.now:
            heapq.heappop(self._queue)[2]()
        else:
            self.client.handle_timer(self.now)
            self.flush()

    def do(self, exchange: Exchange[T], *, within: float = 2000.0) -> T:
        """Run one exchange to its end, and return its result or raise its error."""
        self.client.begin(exchange, self.now)
        self.flush()
        self.until(lambda: self.client.finished, within=within)
        result: T = self.client.result()
        return result

    def until(self, there: Callable[[], bool], *, within: float = 2000.0) -> None:
        give_up = self.now + within
        for _ in range(EVENTS_AT_MOST):
            if there():
                return
            self.advance(until=give_up)
        raise Hang("too many events")

    def settle(self, seconds: float = 5.0) -> None:
        """Let what is on its way arrive."""
        give_up = self.now + seconds
        for _ in range(EVENTS_AT_MOST):
            try:
                self.advance(until=give_up)
            except Hang:
                self.now = give_up
                return
        raise Hang("too many events")

    def error(self, exchange: Exchange[Any]) -> OspBridgeError:
        """The error that an exchange ends with."""
        try:
            self.do(exchange)
        except OspBridgeError as error:
            return error
        raise AssertionError("the exchange succeeded")
