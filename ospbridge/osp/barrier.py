"""The two exchanges that pass the global barrier: reset and step (OSP 1.1, sections 4.6 and 4.7).

The straight path is short: votes out, acknowledgements in, completions in, completions acknowledged. Everything
behind a silence goes through ``recovery``: first find out, then what the table says.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    OspBridgeError,
    QueryTimeout,
    SessionLost,
    StepUncertain,
    ValueRejected,
)
from ospbridge.osp.asking import get_value, overview, set_value
from ospbridge.osp.clock import SIMULATION_TIME, Moved
from ospbridge.osp.listing import find_value
from ospbridge.osp.messages import (
    NextSimulationStepAck,
    ResetSimulation,
    ResetSimulationAck,
    StepCompleted,
    Truncated,
    ValueContent,
)
from ospbridge.osp.profile import SeedBy
from ospbridge.osp.recovery import RESET_TABLE, STEP_TABLE, Acknowledged, Action, Evidence, decide
from ospbridge.osp.restore import restore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client import ClientMachine, Exchange, Reply
    from ospbridge.osp.votes import Vote

__all__ = ["SEED", "StepResult", "audit", "read_clock", "reset", "step"]

SEED: Final = "/Simulation/Seed"


@dataclass(slots=True)
class StepResult:
    """What a step brought, by local agent id."""

    completions: dict[int, StepCompleted]
    restored: frozenset[int] = frozenset()
    """Agents whose completion was read back from the repository."""
    values: dict[int, str] = field(default_factory=dict)
    """Observed variables that were pushed, by local value id."""


class _Step:
    """One step under way: what was sent, acknowledged, completed."""

    __slots__ = (
        "cut",
        "done",
        "doubled",
        "early",
        "m",
        "owed",
        "owing",
        "resent",
        "unacked",
        "unsent",
        "values",
        "votes",
    )

    def __init__(self, m: ClientMachine, votes: Sequence[Vote]) -> None:
        self.m = m
        self.votes = {vote.agent_id: vote for vote in votes}
        self.unsent = deque(votes)
        self.unacked: set[int] = set()
        self.done: dict[int, StepCompleted] = {}
        self.cut: dict[int, Truncated] = {}
        self.early = False
        self.doubled = False
        self.resent = False
        self.values: dict[int, str] = {}
        self.owed = 0
        self.owing: Vote | None = None

    @property
    def finished(self) -> bool:
        return len(self.done) == len(self.votes) and not self.owed

    @property
    def missing(self) -> list[int]:
        return [agent_id for agent_id in self.votes if agent_id not in self.done]

    def send_next(self) -> None:
        vote = self.unsent.popleft()
        self.unacked.add(vote.agent_id)
        self.m.send_bytes(vote.datagram)

    def take(self, reply: Reply) -> None:
        if type(reply) is StepCompleted:
            self._completion(reply, None)
        elif type(reply) is NextSimulationStepAck:
            self._acknowledgement(reply.agent_id)
        elif type(reply) is ValueContent and self.owed and reply.value_id in self.m.observed:
            self._value(reply)
        elif type(reply) is Truncated and type(reply.message) is StepCompleted:
            self._completion(reply.message, reply)
        else:
            self.m.unexpected(reply)

    def _acknowledgement(self, agent_id: int) -> None:
        if agent_id in self.unacked:
            self.unacked.discard(agent_id)
            if self.unsent and not self.unacked:
                self.send_next()
            return
        self.doubled = self.doubled or agent_id in self.votes
        self.m.anomaly(f"a vote of agent {agent_id} was acknowledged twice")

    def _completion(self, reply: StepCompleted, cut: Truncated | None) -> None:
        vote = self.votes.get(reply.agent_id)
        if vote is None:
            self.m.unexpected(reply)
            return
        if not reply.observed:
            self.m.send_bytes(vote.done)
        if self.unacked or self.unsent:
            # Acknowledgements precede completions on every server: this one is late or doubled, or the barrier
            # counted a vote twice. The clock will tell; what it carries is not believed.
            self.early = True
            # Before all votes are even sent it can only be that one of them was counted twice.
            self.doubled = self.doubled or bool(self.unsent)
            self.m.anomaly(f"a completion of agent {reply.agent_id} came before its vote was acknowledged")
            return
        if reply.agent_id in self.done:
            self.m.anomaly(f"completion of agent {reply.agent_id} came twice in one step")
            return
        self.done[reply.agent_id] = reply
        if cut is not None:
            self.cut[reply.agent_id] = cut
        if reply.observed:
            self.owed, self.owing = reply.observed, vote

    def _value(self, reply: ValueContent) -> None:
        self.values[reply.value_id] = reply.content
        self.owed -= 1
        if not self.owed and self.owing is not None:
            self.m.send_bytes(self.owing.done)

    def distrust(self) -> None:
        """What was believed to be this step's completion was an older one."""
        self.done.clear()
        self.cut.clear()
        self.m.anomaly("a completion of an earlier step was taken for this one")


def step(m: ClientMachine, votes: Sequence[Vote]) -> Exchange[StepResult]:
    """One step for all agents of this session; ``votes`` are filled already.

    Raises BarrierStuck when others do not vote within the limit, StepUncertain when it cannot be told whether the
    step ran exactly once, OutputsIncomplete when what a completion held cannot be read back.
    """
    if m.suspect:
        raise StepUncertain(f"this episode cannot be trusted: {m.suspect}")
    if m.vote_outstanding:
        raise StepUncertain("a vote of an earlier step is still outstanding")
    if m.clock.base is None:
        yield from _start_clock(m)
    m.vote_outstanding = True
    s = _Step(m, votes)
    limit = m.now + m.limits.step
    s.send_next()
    if m.profile.pipelining:
        while s.unsent:
            s.send_next()
    quiet_at = m.now + m.profile.patience
    while not s.finished:
        reply = yield quiet_at
        if reply is None:
            m.anomaly("a step met silence")
            return (yield from _recover(m, s, limit))
        s.take(reply)
        if s.owed:
            quiet_at = m.now + m.profile.patience
    if m.guarded or m.clock.size is None:
        if not (yield from _verify(m, s)):
            return (yield from _recover(m, s, limit))
    else:
        m.clock.believe(None)
    m.vote_outstanding = False
    if s.cut:
        return (yield from _filled(m, s))
    for reply in s.done.values():
        m.completed(reply)
    return StepResult(s.done, values=s.values)


def _start_clock(m: ClientMachine) -> Exchange[None]:
    """Learn what the clock shows while nothing is under way."""
    if not m.clock.known:
        entry = yield from find_value(m, SIMULATION_TIME)
        m.clock.value_id = entry.id if entry else 0
        m.clock.known = True
    time = yield from read_clock(m)
    if time is not None:
        m.clock.start(time)


def read_clock(m: ClientMachine, s: _Step | None = None) -> Exchange[float | None]:
    """The simulated time in seconds; None where this simulator has no such variable."""
    if not m.clock.available:
        return None
    text = yield from get_value(m, m.clock.value_id, stray=s.take if s else None)
    return _seconds(m, text)


def _seconds(m: ClientMachine, text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        m.anomaly(f"{SIMULATION_TIME} reads {text!r}, expected a number")
        return None


def _verify(m: ClientMachine, s: _Step) -> Exchange[bool]:
    """Ask the clock whether the completions just read belong to this step."""
    time = yield from read_clock(m, s)
    if time is None or m.clock.base is None:
        m.clock.believe(None)
        return True
    moved = m.clock.judge(time)
    if moved is Moved.NO:
        s.distrust()
        return False
    if moved is Moved.OTHERWISE:
        raise _uncertain(m, f"the clock shows {time:.9g} s, {m.clock.count + 1} steps were given")
    m.clock.believe(time)
    return True


def _uncertain(m: ClientMachine, reason: str) -> StepUncertain:
    m.suspect = reason
    return StepUncertain(f"it cannot be told whether the step ran exactly once: {reason}")


def _filled(m: ClientMachine, s: _Step, lost: Sequence[int] = ()) -> Exchange[StepResult]:
    """Complete what was cut or lost from the repository."""
    restored = set(lost)
    for agent_id in (*lost, *s.cut):
        cut = s.cut.get(agent_id)
        try:
            whole = yield from restore(m, s.votes[agent_id].agent, cut)
        except OspBridgeError as error:
            if not isinstance(error, SessionLost):
                m.suspect = error.message
            raise
        s.done[agent_id] = whole
    for agent_id, reply in s.done.items():
        if agent_id not in restored:
            m.completed(reply)
    return StepResult(s.done, frozenset(restored), s.values)


def _recover(m: ClientMachine, s: _Step, limit: float) -> Exchange[StepResult]:
    """The step met silence: find out, decide by the table, until it is complete or the limit has come."""
    waits = m.waits()
    asked_others = False
    while True:
        if s.owed:
            # Pushed values are lost; they can be read at any time, unlike the step.
            s.owed = 0
        missing = s.missing
        if missing:
            # Frees a handler that waits for an acknowledgement we lost or it lost; harmless to an idle one.
            m.send_bytes(s.votes[missing[0]].done)
        if s.unsent and s.unacked and not s.early:
            # One acknowledgement is missing: vote for the rest, so that at most this one vote is in doubt.
            s.send_next()
        elif len(missing) > 1 and not s.unacked and not asked_others:
            # The next agent's completion comes only after the acknowledgement just sent: give it its time, a
            # question now would be eaten in its place.
            asked_others = True
        elif missing:
            outcome = yield from _decided(m, s, limit)
            if outcome is not None:
                return outcome
        if not s.finished:
            until = min(m.now + waits.next(), limit)
            while not s.finished:
                reply = yield until
                if reply is None:
                    break
                s.take(reply)
        if s.finished and (yield from _verify(m, s)):
            m.vote_outstanding = False
            return (yield from _filled(m, s))


def _decided(m: ClientMachine, s: _Step, limit: float) -> Exchange[StepResult | None]:
    """Gather the evidence and act on it; None to go on waiting."""
    if m.now >= limit:
        if s.unacked:
            raise _uncertain(m, f"the vote was not acknowledged within {m.limits.step:g} s")
        raise (yield from _stuck(m, "step", m.limits.step))
    time = yield from _clock_in_step(m, s)
    if s.finished:
        return None
    if m.clock.available and m.clock.base is None:
        raise _uncertain(
            m, "the world was reset in the middle of it, by another client or by a doubled request"
        )
    moved = Moved.UNKNOWN if time is None else m.clock.judge(time)
    evidence = Evidence(_acknowledged(s), moved, True, m.punctual, s.resent, s.doubled)
    if moved is Moved.NO and s.unacked:
        yield from overview(m, stray=s.take)
        if s.finished:
            return None
        evidence = Evidence(_acknowledged(s), moved, not m.foreign, m.punctual, s.resent, s.doubled)
    row = decide(STEP_TABLE, evidence)
    if row.action is Action.RESTORE:
        m.clock.believe(time)
        m.vote_outstanding = False
        return (yield from _filled(m, s, lost=s.missing))
    if row.action is Action.GIVE_UP:
        raise _uncertain(m, row.reason)
    if row.action is Action.RESEND:
        # An answered question proves that the handler awaits no acknowledgement, which would eat the vote; and it is
        # the last look at the clock before the one repetition.
        again = yield from _clock_in_step(m, s)
        if again is not None and s.unacked and m.clock.judge(again) is Moved.NO:
            (agent_id,) = s.unacked
            s.resent = True
            m.send_bytes(s.votes[agent_id].datagram)
    return None


def _clock_in_step(m: ClientMachine, s: _Step) -> Exchange[float | None]:
    try:
        return (yield from read_clock(m, s))
    except QueryTimeout as error:
        m.suspect = "the simulator fell silent in the middle of a step"
        raise SessionLost(f"{m.peer} fell silent in the middle of a step: {error.message}") from None


def _acknowledged(s: _Step) -> Acknowledged:
    open_votes = len(s.unacked) + len(s.unsent)
    if not open_votes:
        return Acknowledged.ALL
    return Acknowledged.ALL_BUT_ONE if open_votes == 1 else Acknowledged.FEWER


def _stuck(m: ClientMachine, what: str, seconds: float) -> Exchange[BarrierStuck]:
    """The error that names who may be missing."""
    m.suspect = f"a {what} of this session never completed"
    with suppress(QueryTimeout):
        yield from overview(m)
    if m.foreign:
        who = "agents controlled by other clients, which must vote too: " + ", ".join(sorted(m.foreign))
    else:
        who = "no other client controls an agent; the simulator itself may be paused or busy"
    return BarrierStuck(f"the {what} did not complete within {seconds:g} s ({who})")


# --- reset ---------------------------------------------------------------------------------------------------------


class _Reset:
    """One reset under way."""

    __slots__ = ("acked", "completed", "m", "repeated", "sent", "votes", "wanted")

    def __init__(self, m: ClientMachine, seed: int) -> None:
        self.m = m
        self.votes = ResetSimulation(seed)
        self.wanted = len(m.controlled)
        self.sent = 0
        self.acked = 0
        self.completed = False
        self.repeated = 0

    @property
    def finished(self) -> bool:
        return self.completed and self.sent >= self.wanted and self.acked >= self.wanted

    def send_next(self) -> None:
        self.sent += 1
        self.m.send(self.votes)

    def take(self, reply: Reply) -> None:
        if type(reply) is ResetSimulationAck:
            self.acked += 1
            if self.acked == self.sent < self.wanted:
                self.send_next()
        elif not isinstance(reply, Truncated) and reply.CODE is self.m.profile.reset_completed:
            self.completed = True
            self.acknowledge()
        else:
            self.m.unexpected(reply)

    def acknowledge(self) -> None:
        answer = bytes((self.m.profile.reset_completed_answer,))
        self.m.send_bytes(answer + (b"x" if self.m.profile.end_marker else b""))


def reset(m: ClientMachine, seed: int) -> Exchange[bool]:
    """Reset the world, one vote for each agent of this session; True where the completion was seen.

    ``seed``: a 32-bit integer, 0 for "don't care". Raises BarrierStuck when others do not vote within the limit.
    """
    if m.vote_outstanding:
        raise StepUncertain("a session never resets with a step vote outstanding: it would fire later")
    if not m.controlled:
        raise LocalProtocolError(
            "a session that controls no agent has no vote in a reset", hint="register first"
        )
    if seed and m.profile.seed_by is SeedBy.VALUE:
        yield from _seed_by_value(m, seed)
    if m.clock.base is None:
        yield from _start_clock(m)
    before = yield from read_clock(m)
    r = _Reset(m, seed)
    limit = m.now + m.limits.reset
    waits = m.waits()
    r.send_next()
    if m.profile.pipelining:
        while r.sent < r.wanted:
            r.send_next()
    quiet_at = m.now + m.profile.patience
    while True:
        reply = None
        while not r.finished:
            reply = yield quiet_at
            if reply is None:
                break
            r.take(reply)
        ran = r.finished
        if not ran:
            m.anomaly("a reset met silence")
            ran = yield from _reset_found_out(m, r, before, limit)
        if ran:
            m.clock.forget()
            m.suspect = ""
            yield from _start_clock(m)
            if not before or m.clock.base is None or m.clock.base != before:
                m.vote_outstanding = False
                return r.finished
            # What was taken for our reset's completion belonged to an older one.
            m.anomaly("a completion of an earlier reset was taken for this one")
            r.completed = False
        quiet_at = min(m.now + waits.next(), limit)


def _seed_by_value(m: ClientMachine, seed: int) -> Exchange[None]:
    entry = yield from find_value(m, SEED)
    if entry is None:
        m.anomaly(f"{m.peer} has no variable {SEED}: the seed has no effect")
        return
    try:
        yield from set_value(m, entry.id, str(seed), name=SEED)
    except ValueRejected:
        m.anomaly(f"{m.peer} refused the seed {seed}")


def _reset_found_out(m: ClientMachine, r: _Reset, before: float | None, limit: float) -> Exchange[bool]:
    """After a silence: whether the reset ran. Votes again where the table allows it."""
    if m.now >= limit:
        raise (yield from _stuck(m, "reset", m.limits.reset))
    r.acknowledge()
    if r.sent < r.wanted:
        r.send_next()
        return False
    moved = Moved.UNKNOWN
    if before:
        clock = m.clock.value_id
        text = yield from get_value(m, clock, stray=r.take)
        moved = Moved.NO if text is None or _seconds(m, text) in (None, before) else Moved.ONCE
    yield from overview(m, stray=r.take)
    if r.finished:
        return True
    acknowledged = Acknowledged.ALL if r.acked >= r.wanted else Acknowledged.FEWER
    row = decide(RESET_TABLE, Evidence(acknowledged, moved, not m.foreign, m.punctual))
    if row.action is Action.RESTORE:
        return True
    if row.action is Action.REPEAT:
        r.repeated += 1
        r.acked = 0
        for _ in range(r.wanted):
            m.send(r.votes)
    return False


def audit(m: ClientMachine) -> Exchange[str]:
    """Compare the clock with the steps given since the reset; why they differ, or nothing."""
    if m.suspect:
        return m.suspect
    time = yield from read_clock(m)
    if time is None:
        return ""
    shown = m.clock.steps_shown(time)
    if shown is not None and shown != m.clock.count:
        m.suspect = f"{m.clock.count} steps were given, the clock shows {shown}"
        m.anomaly(m.suspect)
    return m.suspect
