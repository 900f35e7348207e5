"""The step: one request for each agent, one completion for each (OSP 1.1, section 4.7).

OSP has no sequence numbers, and its barrier only counts datagrams: a request that is sent twice may step the world for
somebody who did not ask. So a lost datagram is repaired, and anything else ends the episode with its reason. All rules
for a step in which nothing came for ``timing.SILENCE`` stand here: ``STEP_TABLE`` says what follows from what was found
out, ``continue_step`` what does when the limit is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from ospbridge.errors import BarrierStuck, OutputsIncomplete, QueryTimeout, SessionLost, StepUncertain
from ospbridge.osp.agents import overview, who_is_missing
from ospbridge.osp.clock import Moved
from ospbridge.osp.clock_reading import INTERRUPTED, SECOND_LOOK, confirm_size, read_clock, start_clock
from ospbridge.osp.fast_path import REQUESTS_AT_ONCE
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted, Truncated, ValueContent
from ospbridge.osp.queries import pause
from ospbridge.osp.restore import complete_from_repository, restore
from ospbridge.osp.timing import SILENCE, waits
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ospbridge.interface import AgentInterface
    from ospbridge.osp.client import ClientMachine, Exchange, Reply
    from ospbridge.osp.fast_path import FastPath, StepRequest

__all__ = ["STEP_TABLE", "Action", "Pending", "Row", "StepResult", "continue_step", "decide", "step"]

FREED: Final = 0.1
"""Seconds in which a handler that was freed sends what it held back."""
STALL_PASSES: Final = 0.12
"""Seconds in which a stalled completion may still come, if nothing but acknowledgements is sent: each other datagram
begins the 50 ms of a NERD server's stall anew."""
FIRST_STEP: Final = 5.0
"""Seconds that the first step of all may take: nothing is known of the simulator yet."""
SILENT_BETWEEN_REQUESTS: Final = 3.0
"""Seconds after which the next request goes out though no question was answered: some servers answer only when all
requests are in."""
LAST_WORD: Final = 1.0
"""Seconds behind a limit for finding out who is missing."""
SENT_AGAIN_AT_MOST: Final = 3
UNANSWERED: Final = 2
"""Questions in a row without an answer, before a handler of any kind is taken to wait for an acknowledgement."""


# --- what follows from what was found out ----------------------------------------------------------------------------


class Action(Enum):
    """What to do behind a silence."""

    WAIT = "wait on"
    SEND_AGAIN = "send the request again"
    RESTORE = "read what is missing"
    END = "end the episode"


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what the clock says, how many requests are unacknowledged, and so on; None means anything."""

    clock: Moved | bool | None
    """Behind a step; behind a reset whether it is at 0 again, False where it cannot tell."""
    unacknowledged: tuple[str, ...] | None
    alone: bool | None
    overdue: bool | None
    action: Action
    reason: str


SOME: Final = ("one", "several")
STEP_TABLE: Final = (
    Row(Moved.ONCE, SOME, False, None, Action.END, "the step may have run without a request of ours"),
    Row(Moved.ONCE, None, None, False, Action.WAIT, "the completion may still come"),
    Row(Moved.ONCE, None, None, True, Action.RESTORE, "the completion is lost"),
    Row(Moved.NO, ("none",), None, None, Action.WAIT, "the simulator works, or others are missing"),
    Row(Moved.NO, SOME, None, False, Action.WAIT, "the acknowledgement may still come"),
    Row(Moved.NO, ("one",), True, True, Action.SEND_AGAIN, "the request is lost"),
    Row(Moved.NO, ("one",), False, True, Action.END, "a request sent again could count for another client"),
    Row(Moved.NO, ("several",), None, True, Action.END, "which of them were counted cannot be told"),
    Row(Moved.UNKNOWN, None, None, None, Action.WAIT, "nothing tells whether the step ran"),
    Row(Moved.OTHERWISE, None, None, None, Action.END, "the clock shows something other than one step"),
)
"""The first row that fits counts."""


def decide(
    table: Iterable[Row], clock: Moved | bool, unacknowledged: int, *, alone: bool, overdue: bool
) -> Row:
    """The row for what was found out."""
    count = "none" if not unacknowledged else "one" if unacknowledged == 1 else "several"
    return next(
        row
        for row in table
        if row.clock in (None, clock)
        and (row.unacknowledged is None or count in row.unacknowledged)
        and row.alone in (None, alone)
        and row.overdue in (None, overdue)
    )


# --- steps and resets that are not completed yet ---------------------------------------------------------------------


class Pending(ABC):
    """Requests that were sent, of a step or of a reset, and what was seen since."""

    what: ClassVar[str]

    def __init__(self, m: ClientMachine, began: float) -> None:
        self.m = m
        self.at_once = REQUESTS_AT_ONCE if m.profile.pipelining else 1
        """Requests that may be unacknowledged."""
        self.began = self.sent_at = began
        """When the first request was sent, and the latest."""
        self.sent_again = 0
        self.unanswered = 0
        """Questions in a row that met silence."""
        self.undecodable = m.notices.undecodable_count
        """Datagrams before that were no replies of OSP."""

    @abstractmethod
    def all_came(self) -> bool:
        """Nothing is missing any more."""

    @abstractmethod
    def take(self, reply: Reply) -> None:
        """Something came. Raises StepUncertain for what ends the episode, SessionLost."""

    @abstractmethod
    def free_handler(self) -> None:
        """Acknowledge what did not come: frees a handler that waits for that, harmless to an idle one."""

    def run(self, limit: float, on_silence: Callable[[float], Exchange[bool]]) -> Exchange[bool]:
        """Message by message, until all came or ``on_silence`` has settled it; False: its limit has come."""
        m, patiences = self.m, waits()
        patience = next(patiences)
        quiet_at = max(self.began + patience, m.now)
        while not self.all_came():
            reply = (yield min(quiet_at, limit)) if m.now < limit else None
            if reply is not None:
                self.take(reply)
                patiences = waits()
                patience = next(patiences)
            elif m.now >= limit:
                return False
            else:
                m.notices.anomaly(f"a {self.what} met silence")
                if (yield from on_silence(patience)):
                    return True
                patience = next(patiences)
            # A question without an answer took that time already.
            quiet_at = m.now if reply is None and self.unanswered else m.now + patience
        return True

    def free_waiting_handler(self) -> Exchange[bool]:
        """Where a handler may wait for an acknowledgement, and eat a question: send it. True: something came of it."""
        if not (self.m.profile.eats_awaited_acks or self.unanswered >= UNANSWERED):
            return False
        self.free_handler()
        reply = yield self.m.now + FREED
        if reply is not None:
            self.take(reply)
        return reply is not None

    def query_clock(self, patience: float) -> Exchange[float | None]:
        """What the clock shows, asked once. Raises QueryTimeout."""
        with self.m.limited(patience):
            time = yield from read_clock(self.m)
        self.unanswered = 0
        return time

    def stuck(self, limit: float) -> Exchange[BarrierStuck]:
        """Its limit has come: the error that says who is missing. Raises SessionLost where the simulator is silent."""
        m, what = self.m, self.what
        m.episode.doubt = f"a {what} of this session never completed"
        try:
            with m.limited(LAST_WORD):
                who, hint = yield from who_is_missing(m, self.undecodable)
        except QueryTimeout:
            raise SessionLost(
                f"{m.peer} fell silent in the middle of a {what}, for {m.now - self.began:.1f} s"
            ) from None
        return BarrierStuck(
            f"the {what} did not complete within {limit:g} s",
            hint=hint,
            who=who + m.left_behind(),
            agents=sorted(m.foreign),
        )


@dataclass(slots=True)
class StepResult:
    """What a step brought, by local agent id."""

    completions: dict[int, StepCompleted]
    """Their arrays are views of datagrams."""
    restored: frozenset[int]
    """Agents whose completion was read from the repository, at least in part."""
    values: dict[int, str]
    """Observed variables that were pushed, by local value id."""


class PendingStep(Pending):
    """A step of which a datagram is missing, or came otherwise than expected."""

    what = "step"

    def __init__(self, m: ClientMachine, path: FastPath) -> None:
        super().__init__(m, path.began)
        acked = min(len(path.came), path.count)
        sent = acked + self.at_once
        self.requests: dict[int, StepRequest] = {request.agent_id: request for request in path.requests}
        self.unsent = deque(path.requests[sent:])
        self.unacked = {request.agent_id for request in path.requests[acked:sent]}
        self.done = path.completions(path.came)
        self.held: dict[int, StepCompleted] = {}
        """Completions that came before all requests were acknowledged."""
        self.cut: dict[int, Truncated] = {}
        """Completions that the server cut at its datagram limit."""
        self.restored: frozenset[int] = frozenset()
        self.verified = False
        """The clock has shown the step."""
        self.silent = False
        self.working = False
        """It was seen to take its time: all its requests are counted."""
        self.values: dict[int, str] = {}
        self.pushed = 0
        """So many observed variables are announced and did not come yet."""
        self._pushed_ack = b""
        """Acknowledges the completion that announced them, behind the last one."""

    @property
    def missing(self) -> list[int]:
        """Agents without a completion."""
        return [
            agent_id for agent_id in self.requests if agent_id not in self.done and agent_id not in self.held
        ]

    def all_came(self) -> bool:
        """Nothing is missing any more."""
        return not (self.unsent or self.unacked or self.pushed or self.missing)

    @property
    def overdue(self) -> bool:
        """What has not come by now is lost."""
        m = self.m
        usual = max(SILENCE, 2.0 * m.pace.longest(m.clock.steps + 1)) if m.learned.stepped else FIRST_STEP
        return m.now - self.sent_at > usual

    def met_silence(self) -> None:
        """From now on requests go out one by one, and nobody waits for pushed values: they can be read at any time."""
        self.silent = True
        if self.pushed:
            self.pushed = 0
            self.m.outgoing.append(self._pushed_ack)

    def send_next(self) -> None:
        """Send the next request for the first time."""
        request = self.unsent.popleft()
        self.unacked.add(request.agent_id)
        self.send(request)

    def send(self, request: StepRequest) -> None:
        """Send it, for the first time or again."""
        self.sent_at = self.m.now
        self.m.outgoing.append(request.datagram)

    def free_handler(self) -> None:
        """Acknowledge the first completion that did not come."""
        self.acknowledge((self.missing or list(self.requests))[:1])

    def acknowledge(self, agents: Iterable[int]) -> None:
        """Acknowledge completions."""
        self.m.outgoing += [self.requests[agent_id].completed_ack for agent_id in agents]

    def take(self, reply: Reply) -> None:
        """Something came. Raises StepUncertain for what ends the episode, SessionLost."""
        message = reply.message if isinstance(reply, Truncated) else reply
        if isinstance(reply, NextSimulationStepAck) and reply.agent_id in self.unacked:
            self.unacked.discard(reply.agent_id)
            while self.unsent and len(self.unacked) < (1 if self.silent else self.at_once):
                self.send_next()
        elif isinstance(message, StepCompleted) and message.agent_id in self.requests:
            self._completion(message, reply)
        elif isinstance(reply, ValueContent) and self.pushed and reply.value_id in self.m.values.observed:
            self.values[reply.value_id] = reply.content
            self.pushed -= 1
            if not self.pushed:
                self.m.outgoing.append(self._pushed_ack)
        else:
            self.m.unsolicited(reply)

    def _completion(self, message: StepCompleted, reply: Reply) -> None:
        m, agent_id = self.m, message.agent_id
        request = self.requests[agent_id]
        if message.observed:
            self.pushed, self._pushed_ack = message.observed, request.completed_ack
        else:
            m.outgoing.append(request.completed_ack)
        early = bool(self.unacked or self.unsent)
        if early and not m.learned.acknowledges_last and m.episode.repeats(message):
            # Were it this step's after all, it is read from the repository.
            m.notices.anomaly(f"the completion of agent {agent_id} came twice")
        elif self.unsent:
            told = "a completion came before all requests were sent: others ran the step"
            raise m.uncertain(told, by_network=not m.foreign)
        elif agent_id in self.done or agent_id in self.held:
            told = f"two completions of agent {request.name!r} came within a step"
            raise m.uncertain(told, by_network=True)
        else:
            (self.held if early else self.done)[agent_id] = message
            if isinstance(reply, Truncated):
                self.cut[agent_id] = reply


# --- the exchange ----------------------------------------------------------------------------------------------------


def step(m: ClientMachine, path: FastPath) -> Exchange[StepResult]:
    """One step for all agents of this session; the requests of ``path`` are filled already.

    Raises BarrierStuck when others do not send their requests within the limit, StepUncertain when it cannot be told
    whether the step ran exactly once, OutputsIncomplete when what a cut completion held cannot be read back.
    """
    if m.episode.request_outstanding:
        raise StepUncertain(INTERRUPTED, interrupted=True)
    if m.episode.doubt:
        raise StepUncertain(f"this episode cannot be trusted: {m.episode.doubt}")
    if m.episode.reset_outstanding:
        raise StepUncertain("a reset of this session is still outstanding", interrupted=True)
    if m.clock.base is None and not m.clock.missing:
        yield from start_clock(m)
    m.episode.request_outstanding = True
    path.began = m.now
    path.came = []
    m.outgoing += path.first
    return (yield from continue_step(m, path))


def continue_step(m: ClientMachine, path: FastPath) -> Exchange[StepResult]:
    """The step whose first requests were sent, from where its fast path stands. Raises as ``step`` does."""
    s = PendingStep(m, path)
    with m.limited(max(path.began + m.limits.step - m.now, 0.0)) as limit, m.stray_to(s.take):
        if (yield from s.run(limit, partial(_on_silence, m, s))):
            return (yield from _complete(m, s))
    error = yield from s.stuck(m.limits.step)
    if s.unacked or s.unsent:
        raise m.uncertain(f"a request was not acknowledged within {m.limits.step:g} s")
    raise error


def _on_silence(m: ClientMachine, s: PendingStep, patience: float) -> Exchange[bool]:
    """Find out what became of the step, and do what the table says. True: it ran, and nothing is missing any more."""
    s.met_silence()
    if (yield from s.free_waiting_handler()):
        return False
    try:
        moved = m.clock.judge((yield from s.query_clock(patience)))
        if not (s.unsent and moved in (Moved.NO, Moved.UNKNOWN)):
            return (yield from _act(m, s, moved, patience))
    except QueryTimeout:
        # A busy server of one thread, or a stopped process.
        s.unanswered += 1
        moved = Moved.UNKNOWN
    if s.unsent and (moved is Moved.NO or m.now - s.began >= SILENT_BETWEEN_REQUESTS):
        s.send_next()
    return False


def _act(m: ClientMachine, s: PendingStep, moved: Moved, patience: float) -> Exchange[bool]:
    """The clock was read: look once more, and do what the table says. True: the step was restored.

    Raises QueryTimeout, StepUncertain.
    """
    if moved is Moved.NO:
        # The server may have answered before it steps, as one does that was just woken.
        yield from pause(m, SECOND_LOOK)
        moved = m.clock.judge((yield from s.query_clock(patience)))
    elif moved is Moved.ONCE:
        yield from pause(m, STALL_PASSES)
    if s.all_came():
        return False
    row = _decide(m, s, moved)
    if row.action is Action.SEND_AGAIN or (row.action is Action.RESTORE and s.unacked):
        # Who came since the last reset may have taken part.
        yield from overview(m)
        if not s.unacked:
            return False
        row = _decide(m, s, moved)
    if row.action is Action.RESTORE:
        yield from _restore(m, s)
        return True
    if row.action is Action.END:
        raise m.uncertain(row.reason)
    s.working = s.working or (moved is Moved.NO and not s.unacked)
    if row.action is Action.SEND_AGAIN:
        if s.sent_again >= SENT_AGAIN_AT_MOST:
            raise m.uncertain("a request was sent four times and never acknowledged")
        s.sent_again += 1
        (agent_id,) = s.unacked
        s.send(s.requests[agent_id])
    return False


def _decide(m: ClientMachine, s: PendingStep, moved: Moved) -> Row:
    # A step that ran before all requests were sent was run by others, whoever they were.
    alone = m.alone and not s.unsent
    return decide(STEP_TABLE, moved, len(s.unacked) + len(s.unsent), alone=alone, overdue=s.overdue)


def _restore(m: ClientMachine, s: PendingStep) -> Exchange[None]:
    """The step ran: read from the repository what is missing, unless it comes meanwhile."""
    lost = s.missing
    found: dict[int, StepCompleted] = {}
    if lost:
        agents = [s.requests[agent_id].agent for agent_id in lost]
        found = yield from restore(m, agents, s.sent_at)
    # Frees handlers whose completions are lost, and not acknowledged.
    s.acknowledge(lost)
    s.restored = frozenset(s.missing)
    s.done |= {agent_id: found[agent_id] for agent_id in s.restored}
    s.verified = True


def _complete(m: ClientMachine, s: PendingStep) -> Exchange[StepResult]:
    """All completions are there."""
    if (s.working or not s.silent) and not s.restored:
        m.waited(m.now - s.began)
    try:
        if s.held:
            yield from _believe_held(m, s)
        if m.foreign and not s.verified:
            yield from _verify(m)
        m.clock.count += 1
        # From here on these may come once more, and belong to no step.
        m.taker = None
        m.episode.latest, m.episode.latest_path = s.done, None
        if not m.clock.ready:
            yield from confirm_size(m)
    except QueryTimeout as error:
        raise m.uncertain(f"it was completed, and cannot be verified: {error.message}") from None
    for agent_id, cut in s.cut.items():
        s.done[agent_id], events_lost = yield from complete_from_repository(
            m, s.requests[agent_id].agent, cut
        )
        s.restored |= {agent_id} if events_lost else frozenset()
    for agent_id, reply in s.done.items():
        _check_size(m, s.requests[agent_id].agent, reply)
    m.episode.request_outstanding = False
    m.episode.stepped = m.learned.stepped = True
    return StepResult(s.done, s.restored, s.values)


def _believe_held(m: ClientMachine, s: PendingStep) -> Exchange[None]:
    """Completions came before the last acknowledgement: so do some servers, and so does a request counted twice."""
    known = m.learned.acknowledges_last
    if not (m.alone or known):
        raise m.uncertain(
            "a completion came before its request was acknowledged: another client's may have run the step"
        )
    if not (s.verified or known):
        while (reply := (yield m.now + SILENCE)) is not None:
            s.take(reply)
        yield from _verify(m)
        m.learned.completed_first.append(m.clock.steps + 1)
    s.done.update(s.held)
    s.held.clear()


def _verify(m: ClientMachine) -> Exchange[None]:
    """Where there is a clock, it must show exactly one step. Raises StepUncertain."""
    moved = m.clock.judge((yield from read_clock(m)))
    if moved is Moved.NO:
        yield from pause(m, SECOND_LOOK)
        moved = m.clock.judge((yield from read_clock(m)))
    if moved not in (Moved.ONCE, Moved.UNKNOWN):
        raise m.uncertain(f"completions came, and the clock shows {moved.value}", by_network=True)


def _check_size(m: ClientMachine, agent: AgentInterface, reply: StepCompleted) -> None:
    """Arrays of another size than announced must not reach the user."""
    if len(reply.outputs) != len(agent.outputs) or len(reply.infos) != len(agent.infos):
        m.episode.doubt = (
            f"{m.peer} completed a step of agent {agent.name!r} with {pluralize(len(reply.outputs), 'output')} and "
            f"{pluralize(len(reply.infos), 'info')}, it announced {len(agent.outputs)} and {len(agent.infos)}"
        )
        raise OutputsIncomplete(m.episode.doubt, hint="the agent changed: register for it again")
