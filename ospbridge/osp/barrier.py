"""The exchanges that pass the global barrier: the step (OSP 1.1, section 4.7), and the reset from ``resetting``.

The straight path is short: votes out, acknowledgements in, completions in, completions acknowledged. Everything
behind a silence goes through ``recovery``: first find out, then what the table says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ospbridge.errors import (
    BarrierStuck,
    OspBridgeError,
    OutputsIncomplete,
    QueryTimeout,
    SessionLost,
    StepUncertain,
)
from ospbridge.osp.asking import overview, who_is_missing
from ospbridge.osp.clock import Moved
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted, Truncated, ValueContent
from ospbridge.osp.recovery import STEP_TABLE, Acknowledged, Action, Evidence, decide
from ospbridge.osp.resetting import SEED, reset
from ospbridge.osp.restore import restore
from ospbridge.osp.timekeeping import audit, read_clock, start_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client import ClientMachine, Exchange, Reply
    from ospbridge.osp.votes import Vote

__all__ = ["SEED", "StepResult", "audit", "read_clock", "reset", "step"]


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
        "disputed",
        "done",
        "doubled",
        "early",
        "familiar",
        "m",
        "owed",
        "owing",
        "resent",
        "strange",
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
        self.disputed: set[int] = set()
        """Agents of whom two completions came: which is this step's?"""
        self.familiar: set[int] = set()
        """Agents whose completion is one that an earlier step brought too: late, or an agent at rest."""
        self.early = False
        self.strange: list[StepCompleted] = []
        """Completions that came too early to be this step's."""
        self.doubled = False
        self.resent = False
        self.values: dict[int, str] = {}
        self.owed = 0
        self.owing: Vote | None = None

    @property
    def finished(self) -> bool:
        return len(self.done) == len(self.votes) and not self.owed

    @property
    def mixed_up(self) -> bool:
        """A vote of ours or of somebody else's may have been counted for another one."""
        m = self.m
        if m.foreign and (self.early or self.unacked or self.unsent):
            # The step ran without our vote, which then counts for the next one or was taken for an acknowledgement;
            # or else only the vote's acknowledgement was slow or got lost: that looks the same.
            return True
        if not m.shares_the_barrier:
            return False
        return self.doubled or (self.early and m.doubles)

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
        if agent_id in self.m.owed_acks:
            self.m.owed_acks.discard(agent_id)
        elif agent_id in self.votes:
            self.doubled = self.m.doubles = True
        self.m.anomaly(f"a vote of agent {agent_id} was acknowledged twice")

    def _completion(self, reply: StepCompleted, cut: Truncated | None) -> None:
        vote = self.votes.get(reply.agent_id)
        if vote is None:
            self.m.unexpected(reply)
            return
        if not reply.observed:
            self.m.send_bytes(vote.done)
        early = bool(self.unacked or self.unsent)
        known = (early or self.m.disturbed) and self.m.recalls(reply)
        if early and known:
            self.m.anomaly(f"completion of agent {reply.agent_id} came late or twice")
            return
        if early:
            # Acknowledgements precede completions on every server: this one is late or doubled, or the barrier
            # counted a vote twice. The clock will tell; what it carries is not believed.
            self.early = True
            self.strange.append(reply)
            # Before all votes are even sent it can only be that one of them was counted twice.
            self.doubled = self.doubled or bool(self.unsent)
            self.m.anomaly(f"a completion of agent {reply.agent_id} came before its vote was acknowledged")
            return
        if reply.agent_id in self.done:
            if self.done[reply.agent_id] != reply:
                self.disputed.add(reply.agent_id)
            self.m.anomaly(f"completion of agent {reply.agent_id} came twice in one step")
            return
        self.done[reply.agent_id] = reply
        if known:
            self.familiar.add(reply.agent_id)
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
        self.disputed.clear()
        self.familiar.clear()
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
    if m.resets_outstanding:
        raise StepUncertain("a reset of this session is still outstanding")
    if m.clock.base is None:
        yield from start_clock(m)
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
            quiet_at = min(m.now + m.profile.patience, limit)
    if m.guarded or m.clock.size is None:
        if not (yield from _verify(m, s)):
            return (yield from _recover(m, s, limit))
    else:
        m.clock.believe(None)
    m.vote_outstanding = False
    if s.cut or s.disputed or s.familiar:
        return (yield from _filled(m, s))
    for reply in s.done.values():
        _fits(m, s, reply)
        m.completed(reply)
    if s.strange:
        _doubt_earlier(m, s)
    return StepResult(s.done, values=s.values)


def _doubt_earlier(m: ClientMachine, s: _Step) -> None:
    """What came too early and is not this step's was an earlier step's, which then believed another one's."""
    for reply in s.strange:
        if not m.recalls(reply) and not m.suspect:
            m.suspect = f"the completion of an earlier step of agent {reply.agent_id} came during a later one"
            m.anomaly(m.suspect)


def _fits(m: ClientMachine, s: _Step, reply: StepCompleted) -> None:
    """Check the size of what a completion brought: arrays of another size must not reach the user."""
    agent = s.votes[reply.agent_id].agent
    if len(reply.outputs) != len(agent.outputs) or len(reply.infos) != len(agent.infos):
        m.suspect = (
            f"{m.peer} completed a step of agent {agent.name!r} with {len(reply.outputs)} outputs and "
            f"{len(reply.infos)} infos, it announced {len(agent.outputs)} and {len(agent.infos)}"
        )
        raise OutputsIncomplete(m.suspect, hint="the agent changed: register for it again")


def _verify(m: ClientMachine, s: _Step) -> Exchange[bool]:
    """Ask the clock whether the completions just read belong to this step."""
    time = yield from read_clock(m, s.take)
    if s.mixed_up:
        raise _uncertain(m, "a vote was counted twice: the step may have run before all votes were in")
    if time is None or m.clock.base is None:
        m.clock.believe(None)
        return True
    moved = m.clock.judge(time)
    if moved is Moved.NO:
        s.distrust()
        return False
    if moved is Moved.OTHERWISE:
        raise _uncertain(m, f"the clock shows {time:.9g} s, {m.clock.count + 1} steps were given")
    if s.doubled and m.clock.size is None:
        raise _uncertain(m, "its vote was counted twice, and it is not known how long a step takes")
    m.clock.believe(time)
    return True


def _uncertain(m: ClientMachine, reason: str) -> StepUncertain:
    m.suspect = reason
    return StepUncertain(f"it cannot be told whether the step ran exactly once: {reason}")


def _filled(m: ClientMachine, s: _Step, lost: Sequence[int] = ()) -> Exchange[StepResult]:
    """Complete what was cut or lost from the repository."""
    restored = {*lost, *s.disputed, *s.familiar}
    for agent_id in dict.fromkeys((*lost, *s.disputed, *s.familiar, *s.cut)):
        cut = None if agent_id in s.disputed or agent_id in s.familiar else s.cut.get(agent_id)
        try:
            whole = yield from restore(m, s.votes[agent_id].agent, cut)
        except OutputsIncomplete as error:
            if agent_id in s.familiar and agent_id not in s.disputed and agent_id not in s.cut:
                # It looks like an older one, but an agent at rest looks so too, and nothing can be read back.
                restored.discard(agent_id)
                continue
            m.suspect = error.message
            raise
        except OspBridgeError as error:
            if not isinstance(error, SessionLost):
                m.suspect = error.message
            raise
        s.done[agent_id] = whole
    m.owed_acks |= s.unacked
    for reply in s.done.values():
        _fits(m, s, reply)
        m.completed(reply)
    _doubt_earlier(m, s)
    return StepResult(s.done, frozenset(restored), s.values)


def _recover(m: ClientMachine, s: _Step, limit: float) -> Exchange[StepResult]:
    """The step met silence: find out, decide by the table, until it is complete or the limit has come."""
    waits = m.waits()
    asked_others = False
    while True:
        if s.owed:
            # Pushed values are lost; they can be read at any time, unlike the step.
            s.owed = 0
            if s.owing is not None:
                m.send_bytes(s.owing.done)
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
        m.suspect = "a step of this session never completed"
        who = yield from who_is_missing(m)
        raise BarrierStuck(f"the step did not complete within {m.limits.step:g} s ({who})")
    time = yield from _clock_in_step(m, s)
    if s.finished:
        return None
    if m.clock.available and m.clock.base is None:
        raise _uncertain(
            m, "the world was reset in the middle of it, by another client or by a doubled request"
        )
    moved = Moved.UNKNOWN if time is None else m.clock.judge(time)
    evidence = Evidence(_acknowledged(s), moved, True, m.punctual, s.resent, s.mixed_up)
    if moved is Moved.NO and s.unacked:
        yield from overview(m, stray=s.take)
        if s.finished:
            return None
        evidence = Evidence(_acknowledged(s), moved, not m.foreign, m.punctual, s.resent, s.mixed_up)
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
        return (yield from read_clock(m, s.take))
    except QueryTimeout as error:
        m.suspect = "the simulator fell silent in the middle of a step"
        raise SessionLost(f"{m.peer} fell silent in the middle of a step: {error.message}") from None


def _acknowledged(s: _Step) -> Acknowledged:
    open_votes = len(s.unacked) + len(s.unsent)
    if not open_votes:
        return Acknowledged.ALL
    return Acknowledged.ALL_BUT_ONE if open_votes == 1 else Acknowledged.FEWER
