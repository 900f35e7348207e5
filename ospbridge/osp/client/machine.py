"""The client role of OSP 1.1 without I/O: one session with one handler.

Bytes and time go in (``receive``, ``handle_timer``), bytes come out (``outgoing``), and one exchange at a time runs
to its result: the protocol is a strict request and reply per handler. An exchange is a generator that yields the
time at which it wants to be woken and is sent the next reply, or None when that time has come; it is written in the
order in which things happen on the wire.

What this module must not do: read a clock, draw a random number, touch a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ospbridge.errors import (
    LocalProtocolError,
    OspBridgeError,
    RemoteProtocolError,
    SessionLost,
)
from ospbridge.osp.client.state import SessionState
from ospbridge.osp.client.unasked import RESET_COMPLETED, unasked
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    Message,
    StepCompleted,
    Truncated,
    ValueInfoAck,
    decode_reply,
)
from ospbridge.osp.step.lateness import LATEST, Lateness
from ospbridge.osp.step.remembering import Remembered
from ospbridge.osp.step.straight import StraightWay
from ospbridge.osp.timing import Limits, Waits

if TYPE_CHECKING:
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.step.votes import Vote

__all__ = ["ClientMachine", "Exchange", "Reply"]

T = TypeVar("T")
Reply: TypeAlias = Message | Truncated
"""What an exchange is sent."""
Exchange: TypeAlias = Generator[float, "Reply | None", T]
"""Yields when it wants to be woken; is sent a reply, or None when that time has come; returns its result."""

LARGEST_SENT: Final = 65_507
"""Bytes of a UDP datagram."""
MUTE: Final = 2
"""Questions in a row that a repository must leave unanswered: one alone may be the network's doing."""
OVERDUE_AT_MOST: Final = 256
"""So many datagrams in a row may come behind a deadline before it is looked at all the same."""


class ClientMachine(SessionState):
    """One session's side of the protocol.

    ``jitter`` draws from [0, 1) and only lengthens waits. ``peer`` names the simulator in messages.
    """

    __slots__ = (
        "_error",
        "_exchange",
        "_jitter",
        "_limit",
        "_marked",
        "_overdue",
        "_remembered",
        "_result",
        "_way",
        "finished",
        "straight",
    )

    def __init__(
        self,
        profile: Profile,
        *,
        limits: Limits | None = None,
        jitter: Callable[[], float] = lambda: 0.5,
        peer: str = "the simulator",
    ) -> None:
        super().__init__(profile, limits or Limits(), peer)
        self._jitter = jitter
        self._exchange: Exchange[Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self.finished = True
        self._remembered = Remembered(self.printing)
        self.straight: StraightWay | None = None
        """Looks at datagrams first, while the exchange under way has set it."""
        self._way: StraightWay | None = None
        self._overdue = 0
        self._limit = profile.datagram_limit
        self._marked = profile.end_marker

    # --- the driver's side -----------------------------------------------------------------------------------------

    def begin(self, exchange: Exchange[Any], now: float) -> None:
        """Start an exchange. Raises LocalProtocolError while another is under way, SessionLost after the end."""
        if self._exchange is not None:
            exchange.close()
            raise LocalProtocolError(
                "an exchange is under way on this session already",
                hint="a session is for one thread at a time: give each thread one of its own, or a lock",
            )
        if self.lost is not None:
            exchange.close()
            # Without the traces of the times before, which would keep all that these refer to.
            raise self.lost.with_traceback(None)
        self.now = now
        self._overdue = 0
        self.finished = False
        self._error = None
        self._result = None
        self._exchange = exchange
        if self.list_left is not None and not self.vote_outstanding:
            # What is sent next would be taken for it.
            self.send(self.list_left)
            self.list_left = None
        self._advance(None)

    def receive(self, data: bytes, now: float) -> None:
        """A datagram came. Raises RemoteProtocolError for what is no reply of OSP; nothing has changed then."""
        self.now = now
        straight = self.straight
        if straight is not None and straight.take(data):
            if straight.arrived:
                self._advance(None)
            else:
                self.deadline = min(now + self.patience, straight.began + self.limits.step)
            return
        try:
            reply = decode_reply(data, limit=self._limit)
        except RemoteProtocolError as error:
            self.notices.unread(error.message, now)
            self.notices.remark_completion(data, f"from {self.peer}: {error.message}")
            self._mind_the_deadline()
            raise
        if self._exchange is None:
            try:
                self.unexpected(reply)
            except SessionLost as error:
                self.lost = error
            return
        self._advance(reply)
        self._mind_the_deadline()

    def walked(self, now: float) -> None:
        """A link has walked ``straight`` to its end by itself, for the exchange under way."""
        self.now = now
        self._advance(None)

    def _mind_the_deadline(self) -> None:
        """A peer that floods cannot stop the time: drivers look at the deadline only when nothing is there to read."""
        if self.deadline is None or self.now < self.deadline:
            return
        self._overdue += 1
        if self._overdue >= OVERDUE_AT_MOST:
            self.handle_timer(self.now)

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come."""
        self.now = now
        self._overdue = 0
        if self._exchange is not None:
            self._advance(None)

    def handle_refused(self, now: float) -> None:
        """The handler's port is closed: the session is over, whatever was under way."""
        self.now = now
        self.lost = self.lost or SessionLost(
            f"the handler of {self.peer} is gone (connection refused): the simulator ended, or ended this session"
        )
        if self.ended and self._exchange is not None:
            # We said goodbye and the handler is gone: only its answer was lost.
            self._exchange.close()
            self.controlled.clear()
            self._finish(True, None)
            return
        self.interrupt(self.lost)

    def interrupt(self, error: BaseException) -> None:
        """End the exchange under way with ``error``, for instance because its caller was cancelled."""
        exchange = self._exchange
        if exchange is None:
            return
        with suppress(ValueError):
            # Another thread, which closes the session, may be in the midst of it.
            exchange.close()
        self._finish(None, error)
        if self.lost is None:
            # What answers it may still come, and be taken for the answer to what is asked next.
            self.anomaly("an exchange was interrupted")

    def abandon_step(self) -> None:
        """Whoever gave the latest step was interrupted: it may have run, and none may go on from what they know."""
        self.vote_outstanding = True

    def result(self) -> Any:
        """What the finished exchange returned, or the error it ended with."""
        if not self.finished:
            raise LocalProtocolError("the exchange is still under way")
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._result

    def _advance(self, reply: Reply | None) -> None:
        assert self._exchange is not None
        try:
            self.deadline = self._exchange.send(reply)
        except StopIteration as stop:
            self._finish(stop.value, None)
        except OspBridgeError as error:
            if isinstance(error, SessionLost):
                self.lost = error
            # The straight way of a step would begin with a vote.
            self.guarded = self.guarded or self.list_left is not None
            self._finish(None, error)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self._exchange = None
        self.straight = None
        self.deadline = None
        self._result = result
        self._error = error
        self.finished = True

    # --- the exchanges' side ---------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Raises LocalProtocolError for what no datagram holds."""
        datagram = message.encode(end=self._marked)
        if len(datagram) > LARGEST_SENT:
            raise LocalProtocolError(
                f"cannot send {message.CODE.name}: it has {len(datagram):,} bytes, and the largest datagram has "
                f"{LARGEST_SENT:,}",
                hint="give a shorter text, or fewer at once",
            )
        self.outgoing.append(datagram)

    def free_handler(self, ack: Message) -> None:
        """Behind a silence: what the handler may wait for, which would be lost on what is asked next."""
        self.send(ack)
        spare = ValueInfoAck() if self.awaits_spare_ack else self.spare_ack
        if spare is not None and spare != ack:
            self.send(spare)

    def answered(self, tries: int) -> None:
        """A question was answered, asked so often."""
        if self.spare_ack is not None:
            self.awaits_spare_ack = self.awaits_spare_ack or tries > 1
            self.spare_ack = None

    def send_bytes(self, datagram: bytes | bytearray) -> None:
        self.outgoing.append(datagram)

    def waits(self) -> Waits:
        return Waits(self.patience, self._jitter)

    def anomaly(self, text: str, *, astray: bool = False) -> None:
        """``astray``: an answer of a step came late or twice."""
        self.guarded = True
        self.disturbed = True
        self.disturbed_at = self.now
        if astray:
            self.lateness.astray_at = self.now
        self.notices.anomaly(text)

    def learn_from(self, before: Lateness) -> None:
        """What a session before this one with the same simulator had seen: what went astray just now will again."""
        self.lateness.learn_from(before)
        if self.now - before.astray_at <= LATEST:
            self.guarded = self.disturbed = True
            self.disturbed_at = before.astray_at

    def completed(self, reply: StepCompleted, *, read_back: bool = False) -> None:
        """A completion was believed, or what was read back in its place."""
        self.resets_owed = 0
        self.lateness.believed(reply.agent_id)
        self.remembered().add(reply, read_back=read_back)

    def way(self, votes: Sequence[Vote]) -> StraightWay:
        """The straight way of a step with these."""
        if self._way is None or self._way.votes is not votes:
            self.remembered()
            self._way = StraightWay(votes, self.outgoing, pipelining=self.profile.pipelining)
        return self._way

    def set_out(self, votes: Sequence[Vote], now: float) -> StraightWay | None:
        """The straight way, for a link that walks it by itself; None where something speaks against it.

        Behind it comes ``arrived``, or an exchange that goes on from where the way was left (``barrier.go_on``).
        """
        clock = self.clock
        if (
            self.guarded
            or self.vote_outstanding
            or (clock.size is None and not clock.missing)
            or self.suspect
            or self.resets_outstanding
            or self.reset_told
            or self._exchange is not None
            or self.lost is not None
        ):
            return None
        way = self._way
        if way is None or way.votes is not votes:
            way = self.way(votes)
        self.now = way.began = now
        self.vote_outstanding = True
        way.left = False
        return way

    def arrived(self, way: StraightWay) -> None:
        """A straight way was walked to its end: the step ran, on a network that nothing was wrong with so far."""
        self.vote_outstanding = False
        self.clock.count += 1
        self.resets_owed = 0
        way.walked.append(way.came)

    def remembered(self) -> Remembered:
        """Completions up to the latest."""
        if self._way is not None:
            self._remembered.take_over(self._way)
        return self._remembered

    def recalls(self, reply: StepCompleted) -> bool:
        """Whether an earlier step of that agent brought the very same outputs and infos."""
        return self.remembered().recall(reply)

    @property
    def unsettled(self) -> bool:
        """An anomaly is so recent that requests may still be on their way of which nothing is known."""
        return self.disturbed and self.now - self.disturbed_at <= LATEST

    @property
    def shares_the_barrier(self) -> bool:
        """A vote that is counted twice can stand for another one: of a second agent of ours, or of another client."""
        return len(self.controlled) > 1 or bool(self.foreign)

    @property
    def repository_mute(self) -> bool:
        """Whoever looks for variables within a step or reset need not ask again."""
        return self.mute_questions >= MUTE

    @property
    def may_say_goodbye(self) -> bool:
        """END does the server no harm; else it keeps the handler of each session."""
        return not self.ever_registered_events or self.profile.end_after_events_is_safe

    def acknowledge_reset(self, told_by: Code) -> None:
        """Answer a completed reset with the other of the two codes, whichever this server uses."""
        self.send_bytes(bytes((RESET_COMPLETED[told_by],)) + self.profile.end)

    def unexpected(self, reply: Reply) -> None:
        """A reply that nobody awaits. Raises SessionLost where it says that the session is over."""
        unasked(self, reply)
