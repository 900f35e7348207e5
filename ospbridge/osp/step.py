"""The step: one request for each agent, one completion for each (OSP 1.1, section 4.7).

OSP has no sequence numbers, and its barrier only counts datagrams: a request that is sent twice may step the world for
somebody who did not ask. So a lost datagram is repaired, and anything else ends the episode with its reason. All rules
for silence in a step stand here, and ``STEP_TABLE`` says what follows from what was found out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from ospbridge.errors import BarrierStuck, OutputsIncomplete, QueryTimeout, SessionLost, StepUncertain
from ospbridge.osp.agents import overview, who_is_missing
from ospbridge.osp.client import SILENCE
from ospbridge.osp.clock import Moved
from ospbridge.osp.clock_reading import INTERRUPTED, SECOND_LOOK, confirm_size, read_clock, start_clock
from ospbridge.osp.fast_path import REQUESTS_AT_ONCE
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted, Truncated, ValueContent
from ospbridge.osp.queries import pause
from ospbridge.osp.restore import complete_from_repository, restore
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from ospbridge.osp.client import ClientMachine, Exchange, Reply
    from ospbridge.osp.fast_path import FastPath, StepRequest

__all__ = ["STEP_TABLE", "Action", "Row", "StepResult", "decide", "fall_back", "last_word", "step"]

FREED: Final = 0.1
"""Seconds in which a handler that was freed sends what it held back."""
STALLED: Final = 0.12
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

    moved: Moved | None
    unacknowledged: tuple[str, ...] | None
    alone: bool | None
    overdue: bool | None
    action: Action
    reason: str

    def fits(self, moved: Moved, unacknowledged: str, *, alone: bool, overdue: bool) -> bool:
        """Whether the row is about this."""
        return (
            self.moved in (None, moved)
            and (self.unacknowledged is None or unacknowledged in self.unacknowledged)
            and self.alone in (None, alone)
            and self.overdue in (None, overdue)
        )


_SOME: Final = ("one", "several")

STEP_TABLE: Final = (
    Row(Moved.ONCE, _SOME, False, None, Action.END, "the step may have run without a request of ours"),
    Row(Moved.ONCE, None, None, False, Action.WAIT, "the completion may still come"),
    Row(Moved.ONCE, None, None, True, Action.RESTORE, "the completion is lost"),
    Row(Moved.NO, ("none",), None, None, Action.WAIT, "the simulator works, or others are missing"),
    Row(Moved.NO, _SOME, None, False, Action.WAIT, "the acknowledgement may still come"),
    Row(Moved.NO, ("one",), True, True, Action.SEND_AGAIN, "the request is lost"),
    Row(Moved.NO, ("one",), False, True, Action.END, "a request sent again could count for another client"),
    Row(
        Moved.NO,
        ("several",),
        None,
        True,
        Action.END,
        "which of them were counted cannot be told",
    ),
    Row(Moved.UNKNOWN, None, None, None, Action.WAIT, "nothing tells whether the step ran"),
    Row(Moved.OTHERWISE, None, None, None, Action.END, "the clock shows something other than one step"),
)
"""The first row that fits counts."""


def decide(moved: Moved, unacknowledged: int, *, alone: bool, overdue: bool) -> Row:
    """The row for what was found out."""
    count = "none" if not unacknowledged else "one" if unacknowledged == 1 else "several"
    return next(row for row in STEP_TABLE if row.fits(moved, count, alone=alone, overdue=overdue))


# --- a step that is not completed yet --------------------------------------------------------------------------------


@dataclass(slots=True)
class StepResult:
    """What a step brought, by local agent id."""

    completions: dict[int, StepCompleted] = field(default_factory=dict)
    """Their arrays are views of datagrams."""
    restored: frozenset[int] = frozenset()
    """Agents whose completion was read from the repository, at least in part."""
    values: dict[int, str] = field(default_factory=dict)
    """Observed variables that were pushed, by local value id."""
    path: FastPath | None = None
    """All came as it should: it has the outcomes, and ``completions`` is empty."""


class PendingStep:
    """A step of which a datagram is missing, or came otherwise than expected."""

    __slots__ = (
        "_at_once",
        "_m",
        "_pushing",
        "began",
        "cut",
        "done",
        "held",
        "pushed",
        "requests",
        "sent_again",
        "sent_at",
        "unacked",
        "unanswered",
        "unsent",
        "values",
    )

    def __init__(self, m: ClientMachine, path: FastPath) -> None:
        self._m = m
        self.requests: dict[int, StepRequest] = {request.agent_id: request for request in path.requests}
        self.unsent = deque(path.unsent)
        self.unacked = set(path.unacknowledged)
        self.done = path.completions(path.came)
        self.held: dict[int, StepCompleted] = {}
        """Completions that came before all requests were acknowledged."""
        self.cut: dict[int, Truncated] = {}
        """Completions that the server cut at its datagram limit."""
        self.values: dict[int, str] = {}
        """Observed variables that were pushed, by local id."""
        self.pushed = 0
        """So many of them are announced and did not come yet; the completion is acknowledged behind the last one."""
        self._pushing: StepRequest | None = None
        """The request of the agent whose completion has announced them."""
        self.began = self.sent_at = path.began
        """When the first request was sent, and the latest."""
        self.sent_again = 0
        self.unanswered = 0
        """Questions in a row that met silence."""
        self._at_once = REQUESTS_AT_ONCE if m.profile.pipelining else 1

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
        """It is too late for a completion that is not lost."""
        m = self._m
        usual = max(SILENCE, 2.0 * m.pace.longest(m.clock.steps + 1)) if m.learned.stepped else FIRST_STEP
        return m.now - self.sent_at > usual

    def met_silence(self) -> None:
        """From now on requests go out one by one, and nobody waits for pushed values: they can be read at any time."""
        self._at_once = 1
        if self.pushed and self._pushing is not None:
            self.pushed = 0
            self._m.outgoing.append(self._pushing.completed_ack)

    def send_next(self) -> None:
        """Send the next request for the first time."""
        request = self.unsent.popleft()
        self.unacked.add(request.agent_id)
        self._send(request)

    def send_again(self) -> None:
        """The only request that is not acknowledged is lost."""
        self.sent_again += 1
        (agent_id,) = self.unacked
        self._send(self.requests[agent_id])

    def _send(self, request: StepRequest) -> None:
        self.sent_at = self._m.now
        self._m.outgoing.append(request.datagram)

    def acknowledge(self, agents: list[int]) -> None:
        """Acknowledge completions that did not come: frees a handler that waits for that, harmless to an idle one."""
        for agent_id in agents:
            self._m.outgoing.append(self.requests[agent_id].completed_ack)

    def take(self, reply: Reply) -> None:
        """Something came. Raises StepUncertain for what ends the episode, SessionLost."""
        if isinstance(reply, NextSimulationStepAck) and reply.agent_id in self.unacked:
            self.unacked.discard(reply.agent_id)
            while self.unsent and len(self.unacked) < self._at_once:
                self.send_next()
        elif isinstance(reply, StepCompleted) and reply.agent_id in self.requests:
            self._completion(reply, None)
        elif isinstance(reply, Truncated) and isinstance(reply.message, StepCompleted):
            self._completion(reply.message, reply)
        elif isinstance(reply, ValueContent) and self.pushed and reply.value_id in self._m.values.observed:
            self.values[reply.value_id] = reply.content
            self.pushed -= 1
            if not self.pushed and self._pushing is not None:
                self._m.outgoing.append(self._pushing.completed_ack)
        else:
            self._m.unsolicited(reply)

    def _completion(self, reply: StepCompleted, cut: Truncated | None) -> None:
        agent_id = reply.agent_id
        if agent_id not in self.requests:
            self._m.unsolicited(reply)
            return
        request = self.requests[agent_id]
        if reply.observed:
            self.pushed, self._pushing = reply.observed, request
        else:
            self._m.outgoing.append(request.completed_ack)
        early = bool(self.unacked or self.unsent)
        if early and not self._m.learned.acknowledges_last and self._m.episode.repeats(reply):
            # Were it this step's after all, it is read from the repository.
            self._m.notices.anomaly(f"the completion of agent {agent_id} came twice")
        elif self.unsent:
            told = "a completion came before all requests were sent: others ran the step"
            raise self._m.uncertain(told, by_network=not self._m.foreign)
        elif agent_id in self.done or agent_id in self.held:
            raise self._m.uncertain(
                f"two completions of agent {request.name!r} came within a step", by_network=True
            )
        else:
            (self.held if early else self.done)[agent_id] = reply
            if cut is not None:
                self.cut[agent_id] = cut


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
    m.episode.working = False
    path.begin(m.now)
    return (yield from fall_back(m, path))


def fall_back(m: ClientMachine, path: FastPath) -> Exchange[StepResult]:
    """The step whose fast path was begun, from where that stands. Raises as ``step`` does."""
    undecodable = m.notices.undecodable_count
    with m.limited(max(path.began + m.limits.step - m.now, 0.0)) as limit:
        reply = None
        if not path.finished:
            m.fast_path = path
            reply = yield min(max(path.began + SILENCE, m.now), limit)
            m.fast_path = None
        if path.finished and m.clock.ready and not m.foreign:
            m.waited(m.now - path.began)
            m.ran(path)
            return StepResult(path=path)
        pending = PendingStep(m, path)
        result = yield from _run(m, pending, reply, limit)
    if result is None:
        result = yield from _give_up(m, pending, undecodable)
    return result


def _run(m: ClientMachine, s: PendingStep, reply: Reply | None, limit: float) -> Exchange[StepResult | None]:
    """The step, message by message; None: its limit has come."""
    waits = m.waits()
    patience = waits.next()
    while True:
        while reply is not None or s.all_came():
            if reply is not None:
                s.take(reply)
                waits = m.waits()
                patience = waits.next()
            if s.all_came():
                return (yield from _complete(m, s, frozenset()))
            if m.now >= limit:
                return None
            reply = yield min(m.now + patience, limit)
        if m.now >= limit:
            return None
        s.met_silence()
        m.notices.anomaly("a step met silence")
        result = yield from _on_silence(m, s, patience)
        if result is not None:
            return result
        patience = waits.next()
        if not s.all_came() and m.now < limit and not s.unanswered:
            reply = yield min(m.now + patience, limit)


def _on_silence(m: ClientMachine, s: PendingStep, patience: float) -> Exchange[StepResult | None]:
    """Find out what became of the step, and do what the table says. None: wait on."""
    if m.profile.eats_awaited_acks or s.unanswered >= UNANSWERED:
        # A question sent before that would be taken for the acknowledgement, and lost.
        s.acknowledge(s.missing[:1] or list(s.requests)[:1])
        reply = yield m.now + FREED
        if reply is not None:
            s.take(reply)
            return None
    try:
        moved = yield from _query_clock(m, s, patience)
        if not (s.unsent and moved in (Moved.NO, Moved.UNKNOWN)):
            return (yield from _act(m, s, moved, patience))
    except QueryTimeout:
        # A busy server of one thread, or a stopped process.
        s.unanswered += 1
        moved = Moved.UNKNOWN
    if s.unsent and (moved is Moved.NO or m.now - s.began >= SILENT_BETWEEN_REQUESTS):
        s.send_next()
    return None


def _act(m: ClientMachine, s: PendingStep, moved: Moved, patience: float) -> Exchange[StepResult | None]:
    """The clock was read: look once more, and do what the table says. Raises QueryTimeout."""
    if moved is Moved.NO:
        # The server may have answered before it steps, as one does that was just woken.
        yield from pause(m, SECOND_LOOK, s.take)
        moved = yield from _query_clock(m, s, patience)
    elif moved is Moved.ONCE:
        yield from pause(m, STALLED, s.take)
    if s.all_came():
        return None
    row = _decide(m, s, moved)
    if row.action is Action.SEND_AGAIN or (row.action is Action.RESTORE and s.unacked):
        # Who came since the last reset may have taken part.
        yield from overview(m, stray=s.take)
        if not s.unacked:
            return None
        row = _decide(m, s, moved)
    if row.action is Action.RESTORE:
        return (yield from _restore(m, s))
    if row.action is Action.END:
        raise m.uncertain(row.reason)
    m.episode.working = m.episode.working or (moved is Moved.NO and not s.unacked)
    if row.action is Action.SEND_AGAIN:
        if s.sent_again >= SENT_AGAIN_AT_MOST:
            raise m.uncertain("a request was sent four times and never acknowledged")
        s.send_again()
    return None


def _query_clock(m: ClientMachine, s: PendingStep, patience: float) -> Exchange[Moved]:
    """What the clock says, asked once. Raises QueryTimeout."""
    with m.limited(patience):
        time = yield from read_clock(m, s.take)
    s.unanswered = 0
    return m.clock.judge(time)


def _decide(m: ClientMachine, s: PendingStep, moved: Moved) -> Row:
    # A step that ran before all requests were sent was run by others, whoever they were.
    alone = m.alone and not s.unsent
    return decide(moved, len(s.unacked) + len(s.unsent), alone=alone, overdue=s.overdue)


def _restore(m: ClientMachine, s: PendingStep) -> Exchange[StepResult | None]:
    """The step ran: read from the repository what is missing. None: the completions came meanwhile."""
    lost = s.missing
    found: dict[int, StepCompleted] = {}
    if lost:
        agents = [s.requests[agent_id].agent for agent_id in lost]
        found = yield from restore(m, agents, s.sent_at, s.take)
    # Frees handlers whose completions are lost, and not acknowledged.
    s.acknowledge(lost)
    restored = [agent_id for agent_id in s.missing if agent_id in found]
    for agent_id in restored:
        s.done[agent_id] = found[agent_id]
    s.unacked.clear()
    s.pushed = 0
    return (yield from _complete(m, s, frozenset(restored), verified=True))


def _complete(
    m: ClientMachine, s: PendingStep, restored: frozenset[int], *, verified: bool = False
) -> Exchange[StepResult]:
    """All completions are there. ``verified``: the clock has shown the step."""
    if m.episode.working and not restored:
        # Steps that take longer than a silence are no reason to take a request for lost.
        m.waited(m.now - s.began)
    try:
        if s.held:
            yield from _believe_held(m, s, verified=verified)
        if m.foreign and not verified:
            yield from _verify(m, s)
        m.clock.believe()
        # From here on these may come once more.
        m.episode.latest, m.episode.latest_path = s.done, None
        if not m.clock.ready:
            yield from confirm_size(m)
    except QueryTimeout as error:
        raise m.uncertain(f"it was completed, and cannot be verified: {error.message}") from None
    for agent_id, cut in s.cut.items():
        whole, events_lost = yield from complete_from_repository(m, s.requests[agent_id].agent, cut)
        s.done[agent_id] = whole
        restored |= {agent_id} if events_lost else frozenset()
    for agent_id, reply in s.done.items():
        _check_size(m, s.requests[agent_id], reply)
    m.episode.request_outstanding = False
    m.episode.stepped = m.learned.stepped = True
    return StepResult(s.done, restored, s.values)


def _believe_held(m: ClientMachine, s: PendingStep, *, verified: bool) -> Exchange[None]:
    """Completions came before the last acknowledgement: so do some servers, and so does a request counted twice."""
    if not (m.alone or m.learned.acknowledges_last):
        raise m.uncertain(
            "a completion came before its request was acknowledged: another client's may have run the step"
        )
    if not (verified or m.learned.acknowledges_last):
        while (reply := (yield m.now + SILENCE)) is not None:
            s.take(reply)
        yield from _verify(m, s)
        learned, number = m.learned, m.clock.steps + 1
        in_a_row = learned.completed_first_at == number - 1
        learned.completed_first = learned.completed_first + 1 if in_a_row else 1
        learned.completed_first_at = number
    s.done.update(s.held)
    s.held.clear()


def _verify(m: ClientMachine, s: PendingStep) -> Exchange[None]:
    """Where there is a clock, it must show exactly one step. Raises StepUncertain."""
    moved = m.clock.judge((yield from read_clock(m, s.take)))
    if moved is Moved.NO:
        yield from pause(m, SECOND_LOOK, s.take)
        moved = m.clock.judge((yield from read_clock(m, s.take)))
    if moved not in (Moved.ONCE, Moved.UNKNOWN):
        raise m.uncertain(f"completions came, and the clock shows {moved.value}", by_network=True)


def _check_size(m: ClientMachine, request: StepRequest, reply: StepCompleted) -> None:
    """Arrays of another size than announced must not reach the user."""
    agent = request.agent
    if len(reply.outputs) != len(agent.outputs) or len(reply.infos) != len(agent.infos):
        m.episode.doubt = (
            f"{m.peer} completed a step of agent {agent.name!r} with {pluralize(len(reply.outputs), 'output')} and "
            f"{pluralize(len(reply.infos), 'info')}, it announced {len(agent.outputs)} and {len(agent.infos)}"
        )
        raise OutputsIncomplete(m.episode.doubt, hint="the agent changed: register for it again")


def _give_up(m: ClientMachine, s: PendingStep, undecodable: int) -> Exchange[StepResult]:
    """The step's limit has come. Raises BarrierStuck, StepUncertain, SessionLost."""
    m.episode.doubt = "a step of this session never completed"
    who, hint = yield from last_word(m, s.began, undecodable, "step")
    if s.unacked or s.unsent:
        raise m.uncertain(f"a request was not acknowledged within {m.limits.step:g} s")
    raise BarrierStuck(
        f"the step did not complete within {m.limits.step:g} s",
        hint=hint,
        who=who + m.left_behind(),
        agents=sorted(m.foreign),
    )


def last_word(m: ClientMachine, began: float, undecodable: int, what: str) -> Exchange[tuple[str, str]]:
    """Behind a limit: who is missing, and a hint. Raises SessionLost where the simulator does not answer at all."""
    try:
        with m.limited(LAST_WORD):
            return (yield from who_is_missing(m, undecodable))
    except QueryTimeout:
        raise SessionLost(
            f"{m.peer} fell silent in the middle of a {what}, for {m.now - began:.1f} s"
        ) from None
