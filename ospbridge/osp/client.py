"""The client role of OSP 1.1 without I/O: one session with one handler.

Bytes and time go in (``receive``, ``handle_timer``), bytes come out (``outgoing``), and one exchange at a time runs to
its result. An exchange is a generator: it yields the time at which it wants to be woken, and is sent the next reply, or
None at that time.

A driver reads what is there before it calls ``handle_timer``. A *limit* of an exchange is also judged at each datagram,
so that a peer that floods cannot stop the time.

What this module must not do: read the time, draw a random number, touch a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ospbridge.errors import (
    LocalProtocolError,
    OspBridgeError,
    RemoteProtocolError,
    SessionEvicted,
    SessionLost,
    StepUncertain,
)
from ospbridge.osp.clock import StepClock
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    EndAck,
    Message,
    NextSimulationStepAck,
    ResetCommunicationAck,
    StepCompleted,
    StepCompletedAck,
    Truncated,
    decode_reply,
)
from ospbridge.osp.notices import LATE, Notices, Pace
from ospbridge.osp.timing import Limits

if TYPE_CHECKING:
    from ospbridge.interface import AgentInterface, ValueEntry
    from ospbridge.osp.fast_path import FastPath
    from ospbridge.osp.profile import Profile

__all__ = [
    "DOUBLED",
    "RESET_COMPLETED",
    "ClientMachine",
    "Episode",
    "Exchange",
    "KnownValues",
    "Learned",
    "Reply",
]

T = TypeVar("T")
Reply: TypeAlias = Message | Truncated
Exchange: TypeAlias = Generator[float, "Reply | None", T]

LARGEST_SENT: Final = 65_507
"""Bytes of a UDP datagram."""
ACKNOWLEDGES_LAST: Final = 3
"""Steps in a row whose completions came first, before a server is taken for one that acknowledges last."""
DOUBLED: Final = (
    "this network repeats or delays datagrams, which OSP cannot tell from new ones: simulator and bridge belong on one "
    "host"
)
RESET_COMPLETED: Final = {
    Code.RESET_SIMULATION_COMPLETED: Code.RESET_SIMULATION_COMPLETED_ACK,
    Code.RESET_SIMULATION_COMPLETED_ACK: Code.RESET_SIMULATION_COMPLETED,
}
"""What servers tell a completed reset with, and the answer to each: document and practice have them swapped."""


@dataclass(slots=True, eq=False)
class Learned:
    """What was seen of a server, which outlives a session with it."""

    stepped: bool = False
    """A step was completed."""
    completed_first: deque[int] = field(default_factory=lambda: deque(maxlen=ACKNOWLEDGES_LAST))
    """Numbers of the latest steps whose completions came before their acknowledgements, and were true."""
    lists_one_by_one: bool = False
    """Each piece of a list is to be acknowledged before the next one comes."""
    resets_zero_clock: bool = True
    """A reset takes the simulator's clock back to 0."""
    clock_can_be_set: bool = True
    reset_times: deque[float] = field(default_factory=lambda: deque(maxlen=10))
    """Seconds of the latest resets that completed."""

    @property
    def acknowledges_last(self) -> bool:
        """Completions of this server may come before the last acknowledgement: so they did in steps in a row."""
        numbers = self.completed_first
        return len(numbers) == ACKNOWLEDGES_LAST == numbers[-1] - numbers[0] + 1


@dataclass(slots=True, eq=False)
class Episode:
    """What is under way between two resets of this session."""

    doubt: str = ""
    """Why the episode cannot be trusted; empty while it can."""
    request_outstanding: bool = False
    """A step was begun and not seen to its end: its requests may still count."""
    reset_outstanding: bool = False
    """The same of a reset."""
    stepped: bool = True
    """A step was completed since the latest reset of this session, or it has made none."""
    shared: bool = False
    """Other clients controlled agents, at the latest reset or since."""
    barrier_unknown: bool = False
    """Requests of an earlier session may still be counted (``reset.empty_barrier``)."""
    latest: dict[int, StepCompleted] = field(default_factory=dict)
    """The latest completion of each agent that was read."""
    latest_path: FastPath | None = None
    """The fast path that brought later ones, which nobody has read yet."""
    latest_came: list[bytes] = field(default_factory=list)
    """What came on ``latest_path``."""

    def latest_completion(self, agent_id: int) -> StepCompleted | None:
        """What the latest step brought that agent; None before its first step."""
        if self.latest_path is not None:
            self.latest = self.latest_path.completions(self.latest_came)
            self.latest_path = None
        return self.latest.get(agent_id)

    def repeats(self, reply: StepCompleted) -> bool:
        """Whether a completion is the latest one once more, byte for byte."""
        return reply == self.latest_completion(reply.agent_id)


@dataclass(slots=True, eq=False)
class KnownValues:
    """What is known of the simulator's value repository."""

    entries: dict[str, ValueEntry] = field(default_factory=dict)
    listed: bool = False
    """``entries`` has held the whole repository."""
    silent: bool = False
    """The server has not answered a listing: it may have no repository."""
    observed: dict[int, str] = field(default_factory=dict)
    """Variables that are pushed behind completions, by local id."""
    kept: dict[str, int] = field(default_factory=dict)
    """Bytes of all texts that are kept of the simulator, by what they are about."""
    without: set[str] = field(default_factory=set)
    """Variables that were looked for and are not there, or could not be used."""


@dataclass(slots=True, eq=False, repr=False)
class ClientMachine:
    """One session's side of the protocol.

    ``peer`` names the simulator in messages. ``learned``: what an earlier session with it saw of it.
    """

    profile: Profile
    _: KW_ONLY
    limits: Limits = field(default_factory=Limits)
    peer: str = "the simulator"
    learned: Learned = field(default_factory=Learned)
    now: float = 0.0
    deadline: float | None = None
    """When the pending exchange wants to be woken."""
    limit: float = inf
    """When it must be over."""
    outgoing: list[bytes | bytearray] = field(default_factory=list)
    """Datagrams to send, oldest first. The driver sends and clears them after each call."""
    notices: Notices = field(default_factory=Notices)
    clock: StepClock = field(default_factory=StepClock)
    pace: Pace = field(init=False)
    episode: Episode = field(default_factory=Episode)
    controlled: dict[int, AgentInterface] = field(default_factory=dict)
    """Agents this session registered for, by local id."""
    agent_names: dict[int, str] = field(default_factory=dict)
    """All agents of the latest overview, by local id."""
    foreign: frozenset[str] = frozenset()
    """Agents that other clients controlled at the latest overview."""
    values: KnownValues = field(default_factory=KnownValues)
    events: dict[int, str] = field(default_factory=dict)
    """Events this session is told of, by local id."""
    events_used: bool = False
    """This session has registered for an event at some time."""
    list_ack: Message | None = None
    """What a handler may still await behind the latest list."""
    retries: int = 0
    """How often something was asked again."""
    ended: bool = False
    """Goodbye was said: a handler that is gone is no error."""
    lost: OspBridgeError | None = None
    """Why nothing can be asked any more."""
    taker: Callable[[Reply], None] | None = None
    """Of strays; None: nobody awaits any."""
    _exchange: Exchange[Any] | None = None
    _result: Any = None
    _error: BaseException | None = None

    def __post_init__(self) -> None:
        self.pace = Pace(self.notices, self.peer)

    def succeed(self, before: ClientMachine) -> None:
        """This session takes the place of one with the same simulator: what that saw holds, and so may its requests."""
        self.learned = before.learned
        self.pace.late(0, before.pace.longest(before.clock.steps + 1))
        episode = before.episode
        outstanding = episode.request_outstanding or episode.reset_outstanding
        self.episode.barrier_unknown = outstanding or episode.barrier_unknown or bool(episode.doubt)

    # --- the driver's side -----------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """No exchange is pending."""
        return self._exchange is None

    def begin(self, exchange: Exchange[Any], now: float) -> None:
        """Start an exchange. Raises LocalProtocolError while another is pending, the error that ended the session."""
        if self._exchange is not None:
            exchange.close()
            raise LocalProtocolError(
                "an exchange is pending on this session already",
                hint="a session is for one thread at a time: give each thread one of its own, or a lock",
            )
        if self.lost is not None:
            exchange.close()
            # Without the frames of the times before, which would keep all that they refer to.
            raise self.lost.with_traceback(None)
        self.now = now
        self.limit = inf
        self._result = self._error = None
        self._exchange = exchange
        self._advance(None)

    def receive(self, data: bytes, now: float) -> None:
        """A datagram came. Raises RemoteProtocolError for what is no reply of OSP."""
        self.now = now
        try:
            reply = decode_reply(data, limit=self.profile.datagram_limit)
        except RemoteProtocolError as error:
            self.notices.undecoded(error.message)
            if data.startswith(_COMPLETED):
                told = f"a completion that is not of OSP 1.1 came from {self.peer}: {error.message}"
                self.notices.remark(told, about="undecodable completions")
            if self.now >= self.limit:
                self._advance(None)
            raise
        if self._exchange is not None:
            self._advance(reply)
            return
        try:
            self.unexpected(reply)
        except SessionLost as error:
            self.lost = error

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come, and nothing is there to read."""
        self.now = now
        self._advance(None)

    def handle_refused(self, now: float) -> None:
        """The handler's port is closed: the session is over, whatever was pending."""
        self.now = now
        self.lost = self.lost or SessionLost(
            f"the handler of {self.peer} is gone (connection refused): the simulator ended, or ended this session"
        )
        if self.ended and self._exchange is not None:
            # We said goodbye and the handler is gone: only its answer was lost.
            self.controlled.clear()
            self.interrupt(None)
            self._result = True
        else:
            self.interrupt(self.lost)

    def interrupt(self, error: BaseException | None) -> None:
        """End the pending exchange with ``error``, for instance because its caller was cancelled."""
        exchange = self._exchange
        if exchange is not None:
            with suppress(ValueError):
                # Another thread, which closes the session, may be in the midst of it.
                exchange.close()
            self._finish(None, error)

    def result(self) -> Any:
        """What the finished exchange returned, or the error it ended with."""
        if not self.finished:
            raise LocalProtocolError("the exchange is still pending")
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def _advance(self, reply: Reply | None) -> None:
        """The pending exchange goes on with what came, and behind that with its limit, where that is over."""
        while self._exchange is not None:
            try:
                self.deadline = self._exchange.send(reply)
            except StopIteration as stop:
                self._finish(stop.value, None)
            except OspBridgeError as error:
                if isinstance(error, SessionLost):
                    self.lost = error
                self._finish(None, error)
            if reply is None or self.now < self.limit:
                return
            reply = None

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self._exchange = None
        self.deadline = None
        self._result = result
        self._error = error

    # --- a step on the fast path -----------------------------------------------------------------------------------

    def start(self, path: FastPath, now: float) -> bool:
        """Whether a driver may run this step by itself; ``ran`` or an exchange (``step.continue_step``) must follow."""
        episode = self.episode
        if (
            self.foreign
            or episode.request_outstanding
            or episode.doubt
            or episode.reset_outstanding
            or not self.clock.ready
            or self._exchange is not None
            or self.lost is not None
        ):
            return False
        self.now = path.began = now
        episode.request_outstanding = True
        return True

    def ran(self, path: FastPath) -> None:
        """The step of a fast path ran to its end, and nothing was wrong."""
        episode = self.episode
        episode.request_outstanding = False
        episode.stepped = True
        episode.latest_path = path
        episode.latest_came = path.came
        self.clock.count += 1

    def abandon_step(self) -> None:
        """Whoever gave the pending step was interrupted: it may have run, and the next step must tell."""
        self.episode.request_outstanding = True

    def waited(self, seconds: float) -> None:
        """The pending step waited so long for a datagram, or for all. What others may have caused is not kept."""
        if seconds > LATE and self.episode.request_outstanding and not self.foreign:
            self.pace.late(self.clock.steps + 1, seconds)

    # --- the exchanges' side ---------------------------------------------------------------------------------------

    def send_spare_acks(self) -> None:
        """Behind a silence: acknowledge what the handler may wait for, which would be lost on what is asked next."""
        self.send(StepCompletedAck(0))
        if self.list_ack is not None:
            self.send(self.list_ack)

    def stray(self, reply: Reply) -> None:
        """A reply that no question of the pending exchange awaits. Raises SessionLost, and what a ``taker`` does."""
        (self.taker or self.unexpected)(reply)

    @contextmanager
    def stray_to(self, taker: Callable[[Reply], None]) -> Iterator[None]:
        """Questions leave what they do not await to ``taker``: it is of the step or reset that asks them."""
        self.taker = taker
        try:
            yield
        finally:
            self.taker = None

    @contextmanager
    def limited(self, seconds: float) -> Iterator[float]:
        """A limit for what follows, within the limit there is; gives the time at which it ends."""
        before = self.limit
        self.limit = min(before, self.now + seconds)
        try:
            yield self.limit
        finally:
            self.limit = before

    def send(self, message: Message) -> None:
        """Raises LocalProtocolError for what no datagram holds."""
        datagram = message.encode(end=self.profile.end_marker)
        if len(datagram) > LARGEST_SENT:
            raise LocalProtocolError(
                f"cannot send {message.CODE.name}: it has {len(datagram):,} bytes, and the largest datagram has "
                f"{LARGEST_SENT:,}",
                hint="give a shorter text, or fewer at once",
            )
        self.outgoing.append(datagram)

    def keep(self, about: str, size: int, latest: Message) -> None:
        """Count texts of the peer that are kept, in bytes. Raises RemoteProtocolError beyond ``limits.memory``."""
        kept = self.values.kept
        kept[about] = size
        if sum(kept.values()) > self.limits.memory:
            kept[about] = 0
            raise RemoteProtocolError(
                f"{self.peer} has names and types of more than {self.limits.memory:,} bytes, the latest of {about}",
                data=latest.encode(),
                offset=0,
                hint="is it the simulator that was meant? memory_limit allows more",
            )

    @property
    def alone(self) -> bool:
        """Other clients controlled no agent at the latest reset, nor at any overview since."""
        return not (self.foreign or self.episode.shared)

    @property
    def may_say_goodbye(self) -> bool:
        """END does the server no harm; else it keeps the handler of each session."""
        return not self.events_used or self.profile.end_after_events_is_safe

    def uncertain(self, reason: str, *, by_network: bool = False) -> StepUncertain:
        """The error for an episode that cannot be trusted any more, from now on of each step until the next reset."""
        outstanding = self.episode.request_outstanding
        given_up = outstanding and self._exchange is None
        asked = outstanding or self.clock.steps > 0
        if by_network and asked and not given_up:
            # Else it may be what a step that was interrupted has still brought, or one of an earlier session.
            self.notices.remark(DOUBLED)
        self.episode.doubt = reason
        return StepUncertain(
            f"it cannot be told whether the step ran exactly once: {reason}{self.left_behind()}",
            by_network=by_network,
        )

    def left_behind(self) -> str:
        """What becomes of other clients once this session leaves; empty where nothing does."""
        if not (self.foreign and self.episode.request_outstanding):
            return ""
        return (
            f"; when this session leaves, its request may step the world of {', '.join(sorted(self.foreign))}"
        )

    def acknowledge_reset(self, told_by: Code) -> None:
        """Answer a completed reset with the other of the two codes, whichever this server uses."""
        self.outgoing.append(bytes((RESET_COMPLETED[told_by],)) + self.profile.end)

    def unsolicited(self, reply: Reply) -> None:
        """A reply that nobody awaits, in or outside an exchange.

        Raises SessionLost where it says that the session is over, StepUncertain where it ends the episode.
        """
        message = reply.message if isinstance(reply, Truncated) else reply
        if message.CODE in RESET_COMPLETED:
            # Each handler waits for this acknowledgement and eats the next datagram in its place.
            self.acknowledge_reset(message.CODE)
            if self.episode.stepped:
                text = "the world was reset without this session having asked"
                self.notices.reset(text)
                self.clock.start(None)
                if self.episode.request_outstanding:
                    raise self.uncertain(f"{text}, in the middle of it")
        elif isinstance(message, StepCompleted):
            self.send(StepCompletedAck(message.agent_id))
            if not self.episode.repeats(message):
                raise self.uncertain(
                    f"a completion of agent {message.agent_id} came that belongs to no step", by_network=True
                )
            self.notices.anomaly(f"the completion of agent {message.agent_id} came twice")
        elif isinstance(message, NextSimulationStepAck):
            if message.agent_id in self.controlled:
                raise self.uncertain(
                    f"a request of agent {message.agent_id} was acknowledged that belongs to no step",
                    by_network=True,
                )
        elif isinstance(message, ResetCommunicationAck):
            raise SessionEvicted(
                f"the communication of {self.peer} was restarted by a client: all sessions and registrations are gone"
            )
        elif isinstance(message, EndAck):
            if not self.ended:
                raise SessionLost(f"{self.peer} ended this session")
        else:
            # Late and repeated answers to questions, pushed values, a late acknowledgement of a reset.
            self.notices.anomaly(f"{Code(message.CODE).name} came late or twice")

    def unexpected(self, reply: Reply) -> None:
        """A reply that nobody awaits while no step is pending: what speaks against the episode its next step tells.

        Raises SessionLost.
        """
        with suppress(StepUncertain):
            self.unsolicited(reply)


_COMPLETED: Final = bytes((Code.NEXT_SIMULATION_STEP_COMPLETED,))
