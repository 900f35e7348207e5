"""Behind a silence in the middle of a step: what became of it, as far as that can be found out.

The clock, the overview of agents and the repository are asked; ``recovery`` has the table that says what follows.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from ospbridge.errors import BarrierStuck, QueryTimeout, SessionLost, StepUncertain
from ospbridge.osp.client.asking import LAST_WORD
from ospbridge.osp.client.clock import Moved
from ospbridge.osp.client.roster import overview, who_is_missing
from ospbridge.osp.client.timekeeping import (
    does_not_count_steps,
    fresh_clock,
    learned_clock,
    must_settle,
    read_clock,
)
from ospbridge.osp.client.unasked import denies_reset
from ospbridge.osp.step.early import believe_early, undecidable
from ospbridge.osp.step.lost_completions import read_back
from ospbridge.osp.step.overcounting import may_stand_for_another
from ospbridge.osp.step.recovery import STEP_TABLE, Acknowledged, Action, Evidence, Row, decide

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply
    from ospbridge.osp.step.under_way import StepUnderWay

    Look: TypeAlias = Callable[[ClientMachine, Callable[[Reply], None]], Exchange[float | None]]

__all__ = ["asked", "heard_from", "look_for_a_reset", "not_undone", "uncertain"]

_BY_THE_CLOCK: Final = frozenset({Action.RESTORE, Action.GIVE_UP})
"""What a first step's clock alone may decide, and cannot be taken back."""
LATE_VOTE: Final = 3.5
"""Seconds after which a vote that is not acknowledged is not awaited any more, where datagrams come late."""


def asked(m: ClientMachine, s: StepUnderWay, limit: float, *, first: bool) -> Exchange[list[int] | None]:
    """Agents whose completions are lost of a step that ran, which are in ``s.done`` by now; None: wait on.

    ``first``: what is missing is acknowledged only behind that, since servers that send again what is not acknowledged
    would not do so any more. Raises BarrierStuck, OutputsIncomplete, SessionLost, StepUncertain.
    """
    m.attention.step = s
    m.awaited = s.missing[0] if first else 0
    m.no_later = limit + LAST_WORD
    try:
        lost = yield from _decided(m, s, limit)
    finally:
        m.attention.step = None
        m.awaited = 0
        m.no_later = inf
    if not first:
        return lost
    for agent_id in lost or ([] if s.may_be_resent else s.missing[:1]):
        m.send_bytes(s.votes[agent_id].done)
    return lost


def heard_from(m: ClientMachine, s: StepUnderWay, limit: float) -> Exchange[None]:
    """See that the network is there before another vote is sent, which it may swallow like the one before.

    Not where the simulator answers nothing until all votes are in.
    """
    if s.silent or not (m.clock.available and m.lateness.answers_between_votes):
        return
    m.no_later = limit + LAST_WORD
    try:
        yield from read_clock(m, s.take)
    except QueryTimeout:
        s.silent = True
    finally:
        m.no_later = inf


def _decided(m: ClientMachine, s: StepUnderWay, limit: float) -> Exchange[list[int] | None]:
    """Gather the evidence and act on it."""
    if m.now >= limit:
        if s.silent:
            raise SessionLost(f"{m.peer} fell silent in the middle of a step, for {m.now - s.began:.1f} s")
        if s.unreadable is not None:
            m.vote_outstanding = False
            m.suspect = s.unreadable.message
            raise s.unreadable
        if s.unacked:
            raise uncertain(m, f"the vote was not acknowledged within {m.limits.step:g} s")
        m.suspect = "a step of this session never completed"
        who, hint = yield from who_is_missing(m, s.began)
        raise BarrierStuck(
            f"the step did not complete within {m.limits.step:g} s",
            hint=hint,
            who=who + _left_behind(m),
            agents=sorted(m.foreign),
        )
    try:
        time, row = yield from _found_out(m, s)
    except QueryTimeout:
        # A server with one thread answers nothing while it works: what was asked is answered late.
        m.punctual = False
        s.silent = True
        return None
    s.silent = False
    if row is None:
        return None
    if row.action is Action.RESTORE:
        found = yield from read_back(m, s)
        if found is None:
            if s.unreadable is not None:
                believe_early(s, ran=True)
                _look_for_order(m, s, "what they brought cannot be read back")
            return None
        yield from not_undone(m, s)
        m.clock.believe(time)
        s.done.update(found)
        return list(found)
    if row.action is Action.BELIEVE:
        does_not_count_steps(m)
        s.done = s.disowned
        return []
    if row.action is Action.GIVE_UP:
        raise uncertain(m, row.reason)
    if row.punctual is False and m.now - s.began >= LATE_VOTE:
        waited = m.now - s.began
        raise uncertain(m, f"the vote was not acknowledged within {waited:.1f} s", by_network=True)
    believe_early(s, ran=False)
    if not m.clock.available:
        _look_for_order(m, s, "there is no clock")
    return None


def _found_out(m: ClientMachine, s: StepUnderWay) -> Exchange[tuple[float | None, Row | None]]:
    """The clock's time and the row of the table that fits; no row where the step was completed meanwhile.

    A vote that the table says is lost is sent again here.
    """
    usual = m.clock.usual
    time, row = yield from _looked(m, s, fresh_clock)
    if row is not None and time is not None and row.action in _BY_THE_CLOCK and must_settle(m, time):
        # Only now, for each question that gets lost may cost the completion. It is judged as if for the first time.
        m.clock.usual = usual
        time, row = yield from _looked(m, s, learned_clock)
    if row is not None and row.action is Action.RESEND:
        # An answered question proves that the handler awaits no acknowledgement, which would eat the vote; and it is
        # the last look at the clock before the one repetition.
        again = yield from read_clock(m, s.take)
        if again is not None and s.unacked and m.clock.judge(again) is Moved.NO:
            (agent_id,) = s.unacked
            s.resent, s.resent_at = True, m.now
            m.send_bytes(s.votes[agent_id].datagram)
    return time, row


def _looked(m: ClientMachine, s: StepUnderWay, look: Look) -> Exchange[tuple[float | None, Row | None]]:
    """The same, by this ``look`` at the clock, without sending a vote."""
    time = yield from look(m, s.take)
    if s.finished:
        return time, None
    if m.clock.available and m.clock.base is None:
        raise uncertain(
            m, "the world was reset in the middle of it, by another client or by a doubled request"
        )
    moved = Moved.UNKNOWN if time is None else m.clock.judge(time)
    if m.reset_told and time is not None and not denies_reset(m, moved):
        raise uncertain(m, "the world was reset in the middle of it, by another client")
    if moved is Moved.NO and not s.unacked:
        look_for_a_reset(m)
    if moved is not Moved.ONCE:
        s.moved_at = m.now
    s.seen_moved = moved is Moved.ONCE
    s.waited = s.waited or (moved is Moved.NO and not s.unacked and not s.unsent)
    sole, doubled = True, s.mixed_up or s.overtaken
    disowned = s.disowned_for_long
    if moved is Moved.NO and (s.unacked or disowned):
        yield from overview(m, stray=s.take)
        if s.finished:
            return time, None
        sole, doubled = not m.foreign, s.mixed_up
    evidence = Evidence(_acknowledged(s), moved, sole, m.punctual, s.resent, s.hasty, disowned, doubled)
    row = decide(STEP_TABLE, evidence)
    if row.action in (Action.RESEND, Action.BELIEVE):
        # That overview may be a late one, of before another client came.
        yield from overview(m, stray=s.take)
        if s.finished:
            return time, None
        row = decide(STEP_TABLE, replace(evidence, acknowledged=_acknowledged(s), sole=not m.foreign))
    return time, row


def _acknowledged(s: StepUnderWay) -> Acknowledged:
    open_votes = len(s.unacked) + len(s.unsent)
    if not open_votes:
        return Acknowledged.ALL
    return Acknowledged.ALL_BUT_ONE if open_votes == 1 else Acknowledged.FEWER


def look_for_a_reset(m: ClientMachine) -> None:
    """The clock has not moved, all votes are counted: a reset that was asked for twice may have undone the step.

    Raises StepUncertain.
    """
    if m.reset_within:
        raise uncertain(
            m, "the world was reset in the middle of it, by a vote that came twice", by_network=True
        )


def _look_for_order(m: ClientMachine, s: StepUnderWay, reason: str) -> None:
    """All that is missing may have come too early: then nothing more will come. Raises StepUncertain."""
    if not s.missing or not undecidable(s):
        return
    if s.unacked:
        raise uncertain(
            m,
            f"completions came and not all votes are acknowledged: one may have been counted twice, and {reason}",
        )
    if not (s.doubled or s.resent or may_stand_for_another(m)):
        # So it may be with every step of this server: several in a row are no accident.
        m.lateness.acknowledged_behind += 1
    raise uncertain(
        m,
        "completions came before the last vote was acknowledged, as they do where datagrams overtake each other "
        f"or a vote is counted twice, and {reason}",
        by_network=True,
    )


def not_undone(m: ClientMachine, s: StepUnderWay) -> Exchange[None]:
    """Where such a reset was completed meanwhile: it may have run since the clock was read. Raises StepUncertain."""
    if m.reset_within:
        time = yield from read_clock(m, s.take)
        if time is not None and m.clock.judge(time) is not Moved.ONCE:
            look_for_a_reset(m)


def uncertain(m: ClientMachine, reason: str, *, by_network: bool = False) -> StepUncertain:
    """The error for a step of which it cannot be told, and from then on of the session."""
    m.suspect = reason
    return StepUncertain(
        f"it cannot be told whether the step ran exactly once: {reason}{_left_behind(m)}",
        by_network=by_network or m.doubled,
    )


def _left_behind(m: ClientMachine) -> str:
    """What becomes of others once this session leaves; empty where nothing does."""
    if not (m.foreign and m.vote_outstanding):
        return ""
    return f"; when this session leaves, its vote may step the world of {', '.join(sorted(m.foreign))}"
