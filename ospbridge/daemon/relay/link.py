"""The way to one RLlink server: what the daemon is told of it, connecting, staying connected, asking, leaving.

``Link.run`` keeps a connection up for as long as it runs: it finds the dialect out, greets, and comes back after every
loss, with the pauses that the server needs. Who has something to ask takes the ``Connection`` and performs an exchange;
what the server says unasked goes to ``on_event``.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from ospbridge.errors import ConfigurationError, OspBridgeError, UpstreamLost, UpstreamNotFound
from ospbridge.observe import logs
from ospbridge.observe.sparing import SparingMore
from ospbridge.policy.onnx import MOST_WORK
from ospbridge.record.spool import DEFAULT_LIMIT, WhenFull
from ospbridge.rllink.client import MOST_ARRAYS, ClientMachine
from ospbridge.rllink.connecting import ConnectPlan, End, Limits
from ospbridge.rllink.exchanges import greet
from ospbridge.rllink.framing import LARGEST_TAKEN
from ospbridge.transport.streams import (
    close_gently,
    is_tls_failure,
    linger,
    open_stream,
    strip_tracebacks,
    tcp_stream,
    why_broken,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from typing import Never

    from ospbridge.rllink.batches import BatchMode
    from ospbridge.rllink.client import Event, Exchange
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.transport.streams import Stream
    from ospbridge.transport.tls import StreamAddress

__all__ = [
    "ACTIVATION",
    "ENV_STEPS",
    "HEAD_ACTIVATION",
    "NORMALIZE_ACTIONS",
    "Connection",
    "Link",
    "Mode",
    "Upstream",
    "WhileAway",
    "run_apart",
]

ENV_STEPS: Final = 4000
"""Steps of a batch where nobody says how many: RLlib's own default for PPO."""
ACTIVATION: Final = "tanh"
"""The activation of a policy's encoder where nobody says which: RLlib's own default."""
HEAD_ACTIVATION: Final = "relu"
"""That of its head, if it has hidden layers: RLlib's own default."""
NORMALIZE_ACTIONS: Final = True
"""Whether a policy acts within [-1, 1]: RLlib's own default."""
log = logs.get(__name__)
T = TypeVar("T")
APART: Final = 64 * 1024
"""Bytes of what a server sent that are decoded, or built from, on the event loop."""
READ_AT_ONCE: Final = 256 * 1024
SENT_AT_ONCE: Final = 64 * 1024
CONNECT_WITHIN: Final = 10.0
"""Seconds for TCP and TLS to come about."""
LEAVE_WITHIN: Final = 1.5
"""Seconds for what was sent to arrive when a connection is left."""
READ_OUT_WITHIN: Final = 0.5
"""Seconds for what was said before a connection broke to be read."""
LEARN_WITHIN: Final = 30.0
"""Seconds to wait for weights that are due when a connection is given up: some servers do not survive it otherwise."""
LEARN_SOON: Final = 0.75
"""So long it is waited for them when the daemon ends, too; another process waits on then, ..."""
LINGER: Final = 600.0
"""... for so many seconds, ..."""
LINGER_LESS: Final = 60.0
"""... or for so many where the daemon goes on, and has given the connection up."""


class Mode(StrEnum):
    """What is done for an upstream."""

    DRIVE = "drive"
    """Its policy acts for the agents, and learns from what that brings."""
    OBSERVE = "observe"
    """It is sent what attached environments live through."""


class WhileAway(StrEnum):
    """What the driver does while the upstream is away."""

    HOLD = "hold"
    """The world waits, and after a while the agents rest."""
    CONTINUE = "continue"
    """The latest policy acts on; experience that no longer fits the upstream's weights is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One RLlink server, and how to speak to it. None: found out, or RLlib's default."""

    address: StreamAddress
    mode: Mode = Mode.OBSERVE
    dialect: Dialect | None = None
    agents: tuple[str, ...] = ()
    """Names or globs; none: all of the daemon."""
    env_steps: int | None = None
    """Steps of a batch, where the server does not tell."""
    activation: str | None = None
    """Of the policy's layers, which no weights tell."""
    head_activation: str | None = None
    """Of the hidden layers of its head."""
    read_pickle: bool = True
    """Whether to read what only a server's pickle tells, without executing any of it."""
    play_anyway: bool = False
    """Whether to act for a server whose settings say that its own policy would act otherwise."""
    batch_mode: BatchMode | None = None
    explore: bool = True
    normalize_actions: bool | None = None
    """Whether the policy acts within [-1, 1], which is stretched to the action space."""
    clip_actions: bool | None = None
    away: WhileAway = WhileAway.HOLD
    hold: float = 600.0
    """Seconds for which the world may be held for new weights; then the driver's agents rest."""
    limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    """Of the actions drawn and of the first reset; None: another one each time."""

    unannotated: bool = False
    """Whether it takes episodes without ``action_logp`` and ``action_dist_inputs``, as no server of RLlib does."""
    spool: Path | None = None
    """The file in which episodes wait; None: one in the state directory, named after the address."""
    spool_limit: int = DEFAULT_LIMIT
    """Bytes."""
    spool_full: WhenFull = WhenFull.DROP_OLDEST

    largest_message: int = LARGEST_TAKEN
    """Bytes of a message that is taken from it."""
    most_arrays: int = MOST_ARRAYS
    """Of its weights."""
    most_work: int = MOST_WORK
    """Multiplications for one decision by an ONNX model."""

    def __str__(self) -> str:
        return f"{self.mode} {self.address}"


async def run_apart(size: float, function: Callable[..., T], *arguments: Any) -> T:
    """The result of a function that takes long for a large ``size`` in bytes: in another thread then.

    Who is cancelled leaves the thread to itself, so that nothing which a server sends keeps the daemon from ending.
    """
    if size <= APART:
        return function(*arguments)
    return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)


class Connection:
    """One stream to a server that has been greeted, or is about to be."""

    def __init__(self, stream: Stream, machine: ClientMachine, on_event: Callable[[Event], None]) -> None:
        self.machine = machine
        self.gone = trio.Event()
        """It is of no use any more."""
        self.why: OspBridgeError | None = None
        """Why it was given up by us."""
        self.reset = False
        """It ended without a goodbye of the server's."""
        self._stream = stream
        self._on_event = on_event
        self._turn = trio.Lock()
        self._news = trio.lowlevel.ParkingLot()

    @property
    def dialect(self) -> Dialect:
        return self.machine.dialect

    async def perform(self, exchange: Callable[[ClientMachine], Exchange[T]]) -> T:
        """The result of an exchange, one at a time. Raises UpstreamLost, RemoteProtocolError, LocalProtocolError.

        A caller that is cancelled leaves the reply to come; the connection stays usable.
        """
        machine = self.machine
        async with self._turn:
            machine.begin(exchange(machine), trio.current_time())
            try:
                await self._pump()
            except BaseException as error:
                machine.interrupt(error)
                raise
            finally:
                self._tell()
            result: T = machine.result()
            return result

    async def _pump(self) -> None:
        machine = self.machine
        while True:
            await self._flush()
            if machine.finished:
                return
            deadline = machine.next_deadline()
            with trio.move_on_at(float("inf") if deadline is None else deadline):
                await self._news.park()
            machine.handle_timer(trio.current_time())

    async def _flush(self) -> None:
        """Send what the machine wants sent, for as long as some of it leaves within the time of its exchange."""
        machine = self.machine
        parts = machine.data_to_send()
        left = size = sum(map(len, parts))
        why = None
        began = trio.current_time()
        deadline = machine.next_deadline()
        # As the exchange has it when it begins: who answers before it has read it all is not waited for any longer.
        patience = float("inf") if deadline is None else max(deadline - began, 0.0)
        try:
            for part in parts:
                for at in range(0, len(part), SENT_AT_ONCE):
                    some = memoryview(part)[at : at + SENT_AT_ONCE]
                    with trio.fail_after(patience):
                        await self._stream.send_all(some)
                    left -= len(some)
                    machine.sent(trio.current_time())
        except trio.TooSlowError:
            since = max(began, machine.sent_at)
            why = UpstreamLost(
                f"{machine.peer} took {size - left} of {size} bytes, and nothing more for "
                f"{trio.current_time() - since:.1f} s",
                hint="see whether the network carries anything, and whether the server still reads: its own log tells",
            )
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            # Busy: it is being closed. A server that refuses our certificate says so and resets the connection, so
            # that its word is still to be read when nothing can be sent any more.
            with trio.move_on_after(READ_OUT_WITHIN):
                await self.gone.wait()
        finally:
            if left:
                # Half a message was sent; nothing that follows would be understood.
                machine.eof(trio.current_time(), why)
                self.gone.set()
                self._news.unpark_all()

    async def read(self) -> None:
        """Read until the stream ends, and then say so to whoever waits."""
        machine = self.machine
        try:
            while machine.lost is None:
                why = None
                try:
                    data = await self._stream.receive_some(READ_AT_ONCE)
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    data, why = b"", why_broken(error, machine.peer)
                    self.reset = isinstance(error.__cause__, ConnectionResetError)
                now = trio.current_time()
                try:
                    if data:
                        for body in machine.bodies(data, now):
                            message = await run_apart(len(body), machine.decode, body)
                            machine.take(message, trio.current_time())
                    else:
                        machine.eof(now, why)
                except OspBridgeError:
                    # The machine keeps it as the reason why the connection is lost.
                    assert machine.lost is not None
                self._tell()
                self._news.unpark_all()
        finally:
            self.gone.set()

    def left(self) -> None:
        """Nothing more is read: who still waits for a reply learns it now."""
        with suppress(OspBridgeError):
            self.machine.eof(trio.current_time())
        self._news.unpark_all()

    def _tell(self) -> None:
        events = self.machine.events
        while events:
            self._on_event(events.popleft())

    async def learned(self) -> None:
        """Wait until the server can be left without harm."""
        while not self.machine.may_close:
            await self._news.park()


class Link:
    """``dialect`` None: found out. ``on_event`` gets what no exchange waits for; ``on_change`` hears of gain and loss.

    ``largest``: bytes of a message from the server, at most.
    """

    def __init__(
        self,
        address: StreamAddress,
        *,
        dialect: Dialect | None = None,
        limits: Limits,
        largest: int = LARGEST_TAKEN,
        most_arrays: int = MOST_ARRAYS,
        on_event: Callable[[Event], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        self.limits = limits
        self.connections = 0
        """Greeted so far."""
        self.trouble = "not connected yet"
        """Why there is no connection; empty while there is one."""
        self.error: OspBridgeError | None = None
        """Why the latest attempt or connection ended."""
        self._plan = ConnectPlan(dialect, jitter=random.random)
        self._largest = largest
        self._most_arrays = most_arrays
        self._on_event = on_event
        self._on_change = on_change
        self._connection: Connection | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._said = SparingMore()

    @property
    def connected(self) -> Connection | None:
        """The connection, where there is one at present."""
        return self._connection

    async def connection(self) -> Connection:
        """The connection; waits for it, for as long as the caller lets it."""
        while self._connection is None:
            await self._news.park()
        return self._connection

    def drop(self, connection: Connection, error: OspBridgeError) -> None:
        """Give a connection up, because of ``error``, and connect anew."""
        connection.why = connection.why or error
        connection.gone.set()
        if self._connection is connection:
            self._connection = None

    async def run(self) -> Never:
        """Stay connected until cancelled.

        Raises ConfigurationError where already the first attempt fails, and for what no waiting can mend: our own
        files and settings. What a server's TLS shows or refuses is not of that kind.
        """
        while True:
            attempt = self._plan.next_attempt()
            await trio.sleep(attempt.pause)
            try:
                how, error = await self._connected(attempt.dialect)
            except UpstreamNotFound as absent:
                how, error = End.REFUSED, absent
            except ConfigurationError as wrong:
                if not (is_tls_failure(wrong) or self.connections or self._plan.in_vain):
                    raise
                how, error = End.REFUSED, wrong
            except OspBridgeError as lost:
                how, error = End.CLOSED, lost
            self._plan.ended(how)
            self._lost(error)

    async def _connected(self, dialect: Dialect) -> tuple[End, OspBridgeError]:
        """One connection's life; how it ended, and why. Raises what kept it from coming about."""
        stream = await open_stream(self.address, within=CONNECT_WITHIN, wanted="RLlink server")
        machine = ClientMachine(
            dialect,
            limits=self.limits,
            largest=self._largest,
            most_arrays=self._most_arrays,
            peer=str(self.address),
        )
        connection = Connection(stream, machine, self._on_event)
        async with self._reading(connection, stream):
            try:
                await connection.perform(greet)
            except OspBridgeError as error:
                if is_tls_failure(error):
                    # Nobody read what was said, so that it tells nothing of the dialect.
                    return End.REFUSED, error
                if machine.lost is None:
                    return End.SILENT, error
                return End.RESET if connection.reset else End.CLOSED, error
            self._gained(connection)
            try:
                await connection.gone.wait()
            finally:
                self._connection = None
        return End.CLOSED, connection.why or machine.lost or UpstreamLost(f"{self.address} was left")

    @asynccontextmanager
    async def _reading(self, connection: Connection, stream: Stream) -> AsyncIterator[None]:
        """Read meanwhile; and whatever ends it, leave the server in peace."""
        async with trio.open_nursery() as nursery:
            # The reading outlives a cancellation from outside, until what is due has come.
            scope = trio.CancelScope(shield=True)
            nursery.start_soon(_shielded, scope, connection.read)
            try:
                yield
            finally:
                with trio.move_on_after(LEARN_SOON, shield=True):
                    await connection.learned()
                seconds = LINGER
                try:
                    # Not shielded: when the daemon ends there is no time for more.
                    with trio.move_on_after(LEARN_WITHIN):
                        await connection.learned()
                    seconds = 0.0 if connection.machine.may_close else LINGER_LESS
                finally:
                    scope.cancel()
                    connection.left()
                    if seconds:
                        await self._leave_to_another(stream, seconds)
                    else:
                        await close_gently(stream, within=LEAVE_WITHIN)

    async def _leave_to_another(self, stream: Stream, seconds: float) -> None:
        log.info(
            "another process waits for the upstream's weights, since some servers end when they cannot deliver them",
            upstream=str(self.address),
            seconds=seconds,
        )
        await linger(tcp_stream(stream).socket.fileno(), seconds)
        await trio.aclose_forcefully(stream)

    def _gained(self, connection: Connection) -> None:
        self._plan.greeted()
        self.connections += 1
        self.trouble = ""
        self._connection = connection
        self._news.unpark_all()
        log.info("upstream connected", upstream=str(self.address), dialect=connection.dialect.name)
        self._on_change()

    def _lost(self, error: OspBridgeError) -> None:
        """Say it: at once what is new, and rarely what goes on."""
        self.trouble = error.message
        self.error = error
        # Where it was raised leads to the connection, which keeps it as the reason: a circle, with what had come.
        strip_tracebacks(error)
        if self._said.due(error.message):
            log.warning("upstream away", upstream=str(self.address), reason=error.message, hint=error.hint)
        self._on_change()


async def _shielded(scope: trio.CancelScope, function: Callable[[], Any]) -> None:
    with scope:
        await function()
