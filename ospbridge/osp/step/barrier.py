"""The exchanges that pass the global barrier: the step (OSP 1.1, section 4.7), and the reset from ``resetting``.

Votes out, acknowledgements in, completions in, completions acknowledged: as long as nothing else happens that is the
``straight`` way, which looks at bytes only. What is not on it is dealt with message by message, and everything behind a
silence goes through ``finding_out``: first what became of it, then what the table says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ospbridge.counts import numbered
from ospbridge.errors import OspBridgeError, OutputsIncomplete, SessionLost, StepUncertain
from ospbridge.osp.client.clock import Moved
from ospbridge.osp.client.resetting import reset
from ospbridge.osp.client.seeding import SEED
from ospbridge.osp.client.timekeeping import VOTE_OUTSTANDING, as_announced, learned_clock, start_clock
from ospbridge.osp.client.unasked import denies_reset, reset_by_others
from ospbridge.osp.messages import StepCompleted
from ospbridge.osp.step.early import came_early, overtook
from ospbridge.osp.step.finding_out import asked, heard_from, look_for_a_reset, not_undone, uncertain
from ospbridge.osp.step.holding import audit, conclude, hold_back, look_back, patience
from ospbridge.osp.step.lagging import see_that_nobody_lags
from ospbridge.osp.step.lost_completions import LOOKS, late_after_all
from ospbridge.osp.step.overcounting import holds_back, may_be_left_over, may_stand_for_another
from ospbridge.osp.step.reading_back import replaced
from ospbridge.osp.step.restore import restore
from ospbridge.osp.step.under_way import StepUnderWay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply
    from ospbridge.osp.messages import Truncated
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.step.votes import Vote

__all__ = ["SEED", "StepResult", "audit", "conclude", "go_on", "look_back", "reset", "step"]


@dataclass(slots=True)
class StepResult:
    """What a step brought, by local agent id."""

    completions: dict[int, StepCompleted]
    """Their arrays are views of datagrams, which the machine keeps too."""
    restored: frozenset[int] = frozenset()
    """Agents whose completion was read back from the repository."""
    values: dict[int, str] = field(default_factory=dict)
    """Observed variables that were pushed, by local value id."""
    way: StraightWay | None = None
    """All came as it should: it has the outcomes, and ``completions`` is empty."""


def step(m: ClientMachine, votes: Sequence[Vote]) -> Exchange[StepResult]:
    """One step for all agents of this session; ``votes`` are filled already.

    Raises BarrierStuck when others do not vote within the limit, StepUncertain when it cannot be told whether the
    step ran exactly once, OutputsIncomplete when what a completion held cannot be read back.
    """
    if m.vote_outstanding:
        # Whatever else is suspect may be that one's answers, which came meanwhile.
        raise StepUncertain(VOTE_OUTSTANDING, interrupted=True)
    if m.suspect:
        raise StepUncertain(f"this episode cannot be trusted: {m.suspect}", by_network=m.doubled)
    if m.resets_outstanding:
        raise StepUncertain("a reset of this session is still outstanding", interrupted=True)
    if m.reset_told and not m.clock.tells_resets:
        # A variable was set since, or an agent taken: what the clock shows from here on says nothing of before.
        reset_by_others(m)
    if m.clock.base is None:
        yield from start_clock(m)
    m.vote_outstanding = True
    m.doubled = m.reset_within = False
    if not (m.guarded or m.reset_told) and (m.clock.size is not None or m.clock.missing):
        way = m.way(votes)
        way.begin(m.now)
        return (yield from go_on(m, votes, way))
    s = StepUnderWay(m, votes)
    if s.held:
        yield from hold_back(m, s)
    else:
        s.send()
    quiet_at, limit = m.now + m.patience, m.now + m.limits.step
    reply = yield quiet_at
    return (yield from _to_the_end(m, s, reply, quiet_at=quiet_at, limit=limit))


def go_on(m: ClientMachine, votes: Sequence[Vote], way: StraightWay) -> Exchange[StepResult]:
    """The step whose straight way was begun, from where that stands. Raises as ``step`` does."""
    quiet_at, limit = way.began + m.patience, way.began + m.limits.step
    m.reset_within = False
    if way.left:
        # What it had prepared may be with the user by now, of the step before.
        way.prepare()
    reply = None
    if not way.arrived:
        m.straight = way
        reply = yield quiet_at
        m.straight = None
    if way.arrived and not m.guarded:
        m.arrived(way)
        return StepResult({}, way=way)
    return (yield from _to_the_end(m, StepUnderWay(m, votes, way), reply, quiet_at=quiet_at, limit=limit))


def _to_the_end(
    m: ClientMachine, s: StepUnderWay, reply: Reply | None, *, quiet_at: float, limit: float
) -> Exchange[StepResult]:
    """As ``_by_messages``; on a network that disturbs see also that the step ran with the inputs that were given."""
    try:
        result = yield from _by_messages(m, s, reply, quiet_at=quiet_at, limit=limit)
        if m.unsettled:
            reason = yield from replaced(m, tuple(s.votes.values()))
            if reason:
                m.anomaly(reason)
                raise uncertain(m, reason)
            if m.may_lag and not m.overcounted:
                see_that_nobody_lags(m, s)
    except GeneratorExit:
        m.abandon_step()
        raise
    return result


def _by_messages(
    m: ClientMachine, s: StepUnderWay, reply: Reply | None, *, quiet_at: float, limit: float
) -> Exchange[StepResult]:
    """Go on with a step from ``reply``, which is not on the straight way; None: nothing came until ``quiet_at``."""
    while not s.finished:
        if reply is None:
            m.anomaly("a step met silence")
            return (yield from _recover(m, s, limit))
        s.take(reply)
        quiet_at = max(quiet_at, min(s.heard + m.patience, limit))
        if s.held:
            yield from hold_back(m, s)
            quiet_at = min(m.now + m.patience, limit)
        if s.owed:
            quiet_at = min(m.now + m.patience, limit)
        if not s.finished:
            reply = yield quiet_at
    m.lateness.step_ran(m.now - s.voted)
    if m.guarded or m.reset_told or m.clock.size is None:
        if not (yield from _verify(m, s)):
            return (yield from _recover(m, s, limit))
        yield from _not_late(m, s, limit)
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


def _doubt_earlier(m: ClientMachine, s: StepUnderWay) -> None:
    """What came too early and is not this step's was an earlier step's, which then believed another one's."""
    for reply in s.strange:
        if not m.recalls(reply) and not m.suspect:
            m.suspect = f"the completion of an earlier step of agent {reply.agent_id} came during a later one"
            m.anomaly(m.suspect, astray=True)


def _fits(m: ClientMachine, s: StepUnderWay, reply: StepCompleted) -> None:
    """Check the size of what a completion brought: arrays of another size must not reach the user."""
    agent = s.votes[reply.agent_id].agent
    if len(reply.outputs) != len(agent.outputs) or len(reply.infos) != len(agent.infos):
        m.suspect = (
            f"{m.peer} completed a step of agent {agent.name!r} with {numbered(len(reply.outputs), 'output')} and "
            f"{numbered(len(reply.infos), 'info')}, it announced {len(agent.outputs)} and {len(agent.infos)}"
        )
        raise OutputsIncomplete(m.suspect, hint="the agent changed: register for it again")


def _verify(m: ClientMachine, s: StepUnderWay) -> Exchange[bool]:
    """Ask the clock whether the completions just read belong to this step."""
    time = yield from learned_clock(m, s.take)
    if s.mixed_up:
        raise uncertain(m, "a vote was counted twice: the step may have run before all votes were in")
    if time is None or m.clock.base is None:
        if m.reset_told:
            # The world that a reset built anew may have numbered its variables anew.
            reset_by_others(m)
        m.clock.believe(None)
        return True
    once = m.clock.size is not None or m.clock.as_usual(time)
    moved = m.clock.judge(time)
    if m.reset_told and not denies_reset(m, moved):
        m.clock.believe(None)
        return True
    if moved is Moved.NO:
        look_for_a_reset(m)
        s.distrust()
        return False
    if moved is Moved.OTHERWISE:
        given = m.clock.count + 1
        told = f"{numbered(given, 'step')} {'was' if given == 1 else 'were'} given"
        raise uncertain(m, f"the clock shows {time:.9g} s, {told}")
    # By what the simulator says of its steps, where no other vote can have run it.
    if s.doubled and not once and not (yield from as_announced(m, time)):
        raise uncertain(m, "its vote was counted twice, and it is not known how long a step takes")
    yield from not_undone(m, s)
    m.clock.believe(time)
    return True


def _not_late(m: ClientMachine, s: StepUnderWay, limit: float) -> Exchange[None]:
    """Look out for completions that belong to the step before, which was read back too early. Raises StepUncertain."""
    reason = yield from late_after_all(m, s, limit)
    if reason:
        m.vote_outstanding = False
        m.anomaly(reason)
        raise uncertain(m, reason)


def _filled(m: ClientMachine, s: StepUnderWay, lost: Sequence[int] = ()) -> Exchange[StepResult]:
    """Complete what was cut from the repository; what was ``lost`` is read back already."""
    restored = {*lost, *s.disputed, *s.familiar}
    for agent_id in dict.fromkeys((*s.disputed, *s.familiar, *s.cut)):
        cut = None if agent_id in s.disputed or agent_id in s.familiar else s.cut.get(agent_id)
        try:
            whole = yield from _whole(m, s, agent_id, cut)
        except OspBridgeError as error:
            if (
                agent_id in s.familiar
                and agent_id not in s.disputed
                and agent_id not in s.cut
                and not isinstance(error, SessionLost)
            ):
                # It looks like an older one, but an agent at rest looks so too, and nothing can be read back.
                restored.discard(agent_id)
                continue
            m.suspect = error.message
            raise
        s.done[agent_id] = whole
        if cut is not None and _lacks_events(cut):
            restored.add(agent_id)
    m.owed_acks |= s.unacked
    for reply in s.done.values():
        _fits(m, s, reply)
        m.completed(reply, read_back=reply.agent_id in restored)
    _doubt_earlier(m, s)
    return StepResult(s.done, frozenset(restored), s.values)


def _whole(
    m: ClientMachine, s: StepUnderWay, agent_id: int, cut: Truncated | None
) -> Exchange[StepCompleted]:
    """What the repository shows of it: two looks in a row, where an answer may be a late one that came twice."""
    agent = s.votes[agent_id].agent
    whole = yield from restore(m, agent, cut, stray=s.take)
    for _ in range(LOOKS if m.unsettled else 0):
        before, whole = whole, (yield from restore(m, agent, cut, stray=s.take))
        if whole == before:
            break
    return whole


def _restored(m: ClientMachine, s: StepUnderWay, lost: Sequence[int]) -> Exchange[StepResult]:
    """End a step whose completions were ``lost`` and are read back."""
    found = {agent_id: s.done[agent_id] for agent_id in lost}
    came = came_early(s, found)
    if came and not s.changed:
        # What seemed to be one of the step before was not late.
        m.lateness.behind = s.behind
    if not s.unseen:
        for agent_id, came_at in s.late.items():
            m.lateness.came_behind(agent_id, came_at)
    if lost and not may_stand_for_another(m) and overtook(s, found):
        m.lateness.acknowledged_behind += 1
    result = yield from _filled(m, s, lost)
    # What came early was this step's; so may be what came late, of an agent at rest: nothing more is awaited then.
    awaited = [agent_id for agent_id in lost if not (agent_id in came or (s.unseen and agent_id in s.late))]
    m.lateness.taken_for_lost(awaited, s.moved_at, doubted=s.unseen)
    return result


def _lacks_events(cut: Truncated) -> bool:
    """Whether events were among what the server cut off: nothing brings them back."""
    message = cut.message
    assert isinstance(message, StepCompleted)
    return message.announced is not None and len(message.events) < message.announced[2]


def _recover(m: ClientMachine, s: StepUnderWay, limit: float) -> Exchange[StepResult]:
    """The step met silence: find out, decide by the table, until it is complete or the limit has come."""
    waits = m.waits()
    asked_others = False
    while True:
        s.forgo_values()
        missing = s.missing
        asks_first = s.may_ask_first
        if missing and not asks_first:
            # Frees a handler that waits for an acknowledgement we lost or it lost; harmless to an idle one.
            m.send_bytes(s.votes[missing[0]].done)
        if s.unsent and s.unacked and not s.early:
            # One acknowledgement is missing: vote for the rest, so that at most this one vote is in doubt.
            if len(s.unsent) == 1 and holds_back(m):
                yield from hold_back(m, s)
            else:
                yield from heard_from(m, s, limit)
                if s.unsent and s.unacked and not s.early:
                    s.send_next()
        elif len(missing) > 1 and not (s.unacked or asks_first or asked_others):
            # The next agent's completion comes only after the acknowledgement just sent: give it its time, a
            # question now would be eaten in its place.
            asked_others = True
        elif missing:
            lost = yield from asked(m, s, limit, first=asks_first)
            if lost is not None:
                m.vote_outstanding = False
                _learn(m, s)
                return (yield from _restored(m, s, lost))
        if not s.finished:
            until = min(m.now + waits.next(), limit)
            while not s.finished:
                if s.held:
                    yield from hold_back(m, s)
                    until = min(m.now + waits.next(), limit)
                reply = yield until
                if reply is None:
                    break
                s.take(reply)
        if s.finished and (yield from _verify(m, s)):
            if s.seen_moved and not s.early:
                m.lateness.came(m.now - s.moved_at)
            _learn(m, s)
            yield from _not_late(m, s, limit)
            m.vote_outstanding = False
            return (yield from _filled(m, s))


def _learn(m: ClientMachine, s: StepUnderWay) -> None:
    """A step was completed behind a silence: how long it took, and what it may leave behind."""
    voted = s.voted
    if s.resent:
        if m.lateness.step_took and s.resent_at - voted > patience(m):
            # A vote that was counted would have moved the world by then: it was lost, and how long the network was away
            # says nothing of how long a step takes.
            voted = s.resent_at
        may_be_left_over(m)
    # Where the clock was seen to have moved, what came later says more of the network than of the world.
    m.lateness.step_ran((s.moved_at if s.seen_moved else m.now) - voted)
