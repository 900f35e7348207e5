"""The reset: one vote for each agent, one completion for every client (OSP 1.1, section 4.6)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    QueryTimeout,
    SessionLost,
    StepUncertain,
)
from ospbridge.osp.client.asking import LAST_WORD, get_value
from ospbridge.osp.client.clock import Moved
from ospbridge.osp.client.roster import overview, who_is_missing
from ospbridge.osp.client.seeding import seed_by_value
from ospbridge.osp.client.timekeeping import (
    does_not_count_steps,
    runs_on,
    seconds,
    settled_clock,
    start_clock,
)
from ospbridge.osp.client.unasked import RESET_COMPLETED
from ospbridge.osp.messages import ResetSimulation, ResetSimulationAck, StepCompleted, Truncated
from ospbridge.osp.profile import SeedBy
from ospbridge.osp.step.recovery import RESET_TABLE, Acknowledged, Action, Evidence, Row, decide
from ospbridge.osp.step.straight import VOTES_AT_ONCE

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply

__all__ = ["reset"]

USUAL: Final = 1.0
"""Seconds that a reset may take before its completion is taken for lost, where the clock shows that it ran."""
USUAL_UNSEEN: Final = 3.0
"""The same where nothing shows that it ran: the votes are given again then."""
LONGEST: Final = 0.5
"""Of the limit, for which a completion is not lost yet: behind that there must be time for another reset."""
LATER: Final = 1.25
"""Times that the longest reset took, for which it is not lost in any case."""
IN_TIME: Final = 0.9
"""Of the limit: whatever a reset took before, there must be time to look whether this one ran."""
AGAIN: Final = 1.5
"""Times that a reset took, within which another one is done that was voted for meanwhile."""


class _Reset:
    """One reset under way."""

    __slots__ = (
        "acked",
        "at_once",
        "before",
        "began",
        "both_came",
        "completed_at",
        "completions",
        "counted_twice",
        "m",
        "of_another_seed",
        "patience",
        "rounds",
        "sent",
        "silent",
        "stepped",
        "to_repeat",
        "trusted",
        "voted",
        "votes",
        "wanted",
    )

    def __init__(self, m: ClientMachine, seed: int, before: float | None) -> None:
        self.m = m
        self.before = before
        """What the clock showed; None or 0 where it cannot tell whether the reset ran."""
        self.began = self.voted = m.now
        self.votes = ResetSimulation(seed)
        self.wanted = len(m.controlled)
        # Votes of a reset that was given up still count: a second one could stand for another client's.
        self.sent = self.acked = min(m.resets_outstanding, self.wanted)
        self.at_once = VOTES_AT_ONCE if m.profile.pipelining else 1
        """So many votes may wait for their acknowledgement."""
        self.to_repeat = 0
        """Votes of this round, which is not the first, that were not given yet."""
        self.of_another_seed = bool(self.sent and seed and seed != m.reset_seed)
        """Some of its votes were given for a world of another one."""
        self.completions = 0
        """That came, of one reset or of several."""
        self.completed_at = 0.0
        """When the first of them came."""
        self.rounds = 1
        """So often all votes were given."""
        self.counted_twice = False
        """They were given again although all had been acknowledged: there may be two resets."""
        self.both_came = False
        """The completions of both of them did."""
        self.trusted = not m.disturbed and not self.sent and m.clock.zeroed
        usual = max(2.0 * m.lateness.reset_took, USUAL if before else USUAL_UNSEEN)
        longest = min(LATER * m.lateness.reset_took, IN_TIME * m.limits.reset)
        self.patience = min(usual, max(LONGEST * m.limits.reset, longest))
        """Seconds from the votes in which the completion is not lost yet: worlds take their time to begin anew."""
        self.silent = False
        """The simulator did not answer the latest question."""
        self.stepped = False
        """A step was completed meanwhile that none of this session's was: before the reset, or behind it."""

    @property
    def patient_until(self) -> float:
        """Until then it is too early to believe that the completion is lost."""
        return self.voted + self.patience

    @property
    def completed(self) -> bool:
        return self.completions > 0

    @property
    def finished(self) -> bool:
        return self.completed and self.sent >= self.wanted and self.acked >= self.wanted

    def send_next(self) -> None:
        self.voted = self.m.now
        self.sent += 1
        self.m.resets_outstanding += 1
        self.m.reset_seed = self.votes.seed
        self.m.send(self.votes)

    def vote_again(self) -> None:
        self.rounds += 1
        self.counted_twice = self.counted_twice or self.acked >= self.wanted
        self.patience = min(2.0 * self.patience, LONGEST * self.m.limits.reset)
        self.acked = 0
        self.voted = self.m.now
        at_once = min(self.wanted, VOTES_AT_ONCE)
        self.to_repeat = self.wanted - at_once
        for _ in range(at_once):
            self.m.send(self.votes)

    def take(self, reply: Reply) -> None:
        if type(reply) is ResetSimulationAck:
            self.acked += 1
            if self.sent < self.wanted:
                if self.acked <= self.sent < self.acked + self.at_once:
                    self.send_next()
            elif self.to_repeat:
                self.to_repeat -= 1
                self.voted = self.m.now
                self.m.send(self.votes)
        elif not isinstance(reply, Truncated) and reply.CODE in RESET_COMPLETED:
            self.completed_at = self.completed_at or self.m.now
            self.completions += 1
            # Until that is concluded, which Ctrl-C may keep it from.
            self.m.left_reset_done = self.finished and not (self.m.foreign or self.counted_twice)
            self.m.acknowledge_reset(reply.CODE)
        else:
            message = reply.message if isinstance(reply, Truncated) else reply
            if isinstance(message, StepCompleted) and not self.m.recalls(message):
                self.stepped = True
            self.m.unexpected(reply)

    @property
    def owed(self) -> int:
        """Completions that may still come of these votes: of each round one, or one for each agent.

        One of a vote that came twice, too; and where nobody else votes the latest itself may come once more.
        """
        counted = max(self.acked, self.wanted) + (self.rounds - 1) * self.wanted
        return max(counted - self.completions, 0) + (not self.m.foreign)


def reset(m: ClientMachine, seed: int) -> Exchange[bool]:
    """Reset the world, one vote for each agent of this session; True where the completion was seen.

    ``seed``: a 32-bit integer, 0 for "don't care". Raises BarrierStuck when others do not vote within the limit.
    """
    if m.vote_outstanding:
        raise StepUncertain(
            "a session never resets with a step vote outstanding: it would fire later", interrupted=True
        )
    if not m.controlled:
        raise LocalProtocolError(
            "a session that controls no agent has no vote in a reset", hint="register first"
        )
    r = yield from _completed(m, seed)
    if r.of_another_seed and not m.foreign:
        # The votes of one that was interrupted counted, as they must where others vote too, and so did their seed.
        r = yield from _completed(m, seed)
    return r.finished


def _completed(m: ClientMachine, seed: int) -> Exchange[_Reset]:
    """One reset. Raises as ``reset`` does."""
    r = yield from _voted(m, seed)
    limit = m.now + m.limits.reset
    waits = m.waits()
    quiet_at = m.now + m.patience
    while True:
        reply = None
        while not r.finished:
            reply = yield quiet_at
            if reply is None:
                break
            r.take(reply)
            # Silence begins behind the latest of votes that are given one by one.
            quiet_at = max(quiet_at, min(r.voted + m.patience, limit))
            if r.acked >= r.wanted:
                # Only the world is awaited: its silence says nothing yet.
                quiet_at = max(quiet_at, min(r.patient_until, limit))
        ran = r.finished
        if not ran:
            m.anomaly("a reset met silence")
            m.no_later = limit + LAST_WORD
            try:
                ran = yield from _reset_found_out(m, r, limit)
            finally:
                m.no_later = inf
        if ran and r.finished and r.counted_twice:
            yield from _await_the_other(m, r, limit)
        if ran and (yield from _began_anew(m, r)):
            return r
        quiet_at = min(m.now + waits.next(), limit)


def _voted(m: ClientMachine, seed: int) -> Exchange[_Reset]:
    """The first vote is given, or as many as may be under way where the server takes them so."""
    if seed and m.profile.seed_by is SeedBy.VALUE:
        yield from seed_by_value(m, seed)
    # What it shows is known behind that already, and a second look is only for clocks that may not count steps.
    look = m.clock.base is not None or m.clock.usual is None
    if m.clock.base is None:
        yield from start_clock(m)
    before = (yield from settled_clock(m)) if look else m.clock.base
    went_back = m.reset_told and before is not None and m.clock.went_back(before)
    if m.left_reset_done or (m.resets_outstanding and went_back):
        # That reset was given up by whoever asked for it, and has completed since.
        m.resets_outstanding = 0
        m.left_reset_done = False
    m.clock.runs_free = yield from runs_on(m, before)
    if m.clock.outlasts_resets or m.clock.runs_free:
        before = None
    m.lateness.begin_reset()
    r = _Reset(m, seed, before)
    if r.sent < r.wanted:
        r.send_next()
    while r.sent < min(r.wanted, r.acked + r.at_once):
        r.send_next()
    return r


def _await_the_other(m: ClientMachine, r: _Reset, limit: float) -> Exchange[None]:
    """All votes were given twice, and the first reset is done: the other one takes as long, if there is one."""
    took = r.completed_at - r.began
    until = min(r.completed_at + AGAIN * took, limit)
    while m.now < until:
        before = r.completions
        reply = yield until
        if reply is None:
            return
        r.take(reply)
        # Those of one reset come together, where each agent has its own.
        if r.completions > before and m.now - r.completed_at > took / 4.0:
            r.both_came = True
            return


def _began_anew(m: ClientMachine, r: _Reset) -> Exchange[bool]:
    """Learn where the clock stands behind the reset. False where what completed was an older one."""
    took_until = r.completed_at or m.now
    m.resets_owed = r.owed
    outstanding = m.resets_outstanding
    m.left_reset_done = False
    if r.finished:
        # Who asked for it may not wait for what is asked now; the next one must not await it once more.
        m.resets_outstanding = 0
    m.reset_told = m.latest_in_doubt = False
    m.may_lag.clear()
    m.clock.forget()
    m.suspect = ""
    yield from start_clock(m)
    if m.clock.runs_free and (yield from runs_on(m, (yield from settled_clock(m)))):
        does_not_count_steps(m)
    if r.before and m.clock.base == r.before:
        if not r.finished or (m.disturbed and r.rounds == 1):
            # What was taken for our reset's completion belonged to an older one.
            m.anomaly("a completion of an earlier reset was taken for this one")
            r.completions = 0
            r.completed_at = 0.0
            m.resets_outstanding = outstanding
            return False
        # Nothing was ever late or doubled, or votes were repeated and complete.
        m.clock.outlasts_resets = True
    m.clock.zeroed = m.clock.base == 0.0
    m.clock.zeroes = m.clock.zeroes or bool(m.clock.zeroed and r.before)
    if not m.foreign:
        # With others, how long it took would say more of them.
        # What completed behind votes that were given again was theirs, unless it took so long that both came.
        began = r.began if r.rounds == 1 or r.both_came else r.voted
        m.lateness.reset_ran(began, took_until, completed=r.finished)
    m.vote_outstanding = False
    m.resets_outstanding = 0
    m.echo.begin()
    _look_for_a_step(m, r)
    return True


def _look_for_a_step(m: ClientMachine, r: _Reset) -> None:
    """One may have run behind the reset: where votes outlive it and those who gave them, or where one was completed.

    Another client's votes that come twice do that. Raises StepUncertain.
    """
    may_have = m.profile.votes_survive_reset or r.stepped
    if m.guarded and may_have and m.clock.base and not m.clock.outlasts_resets:
        m.suspect = f"the clock shows {m.clock.base:.9g} s behind a reset: a vote of before it ran a step"
        raise StepUncertain(f"the episode cannot begin: {m.suspect}", by_network=m.doubled)


def _reset_found_out(m: ClientMachine, r: _Reset, limit: float) -> Exchange[bool]:
    """After a silence: whether the reset ran. Votes again where the table allows it."""
    if m.now >= limit:
        m.suspect = "a reset of this session never completed"
        if r.silent:
            raise SessionLost(f"{m.peer} fell silent in the middle of a reset, for {m.now - r.began:.1f} s")
        who, hint = yield from who_is_missing(m, r.began)
        raise BarrierStuck(
            f"the reset did not complete within {m.limits.reset:g} s",
            hint=hint,
            who=who,
            agents=sorted(m.foreign),
        )
    m.acknowledge_reset(m.profile.reset_completed)
    if r.sent < r.wanted:
        r.send_next()
        return False
    try:
        row = yield from _row(m, r)
    except QueryTimeout:
        # A server with one thread answers nothing while it works.
        r.silent = True
        return r.finished
    r.silent = False
    if r.finished or row.action is Action.RESTORE:
        return True
    if row.action is Action.REPEAT:
        r.vote_again()
    return False


def _row(m: ClientMachine, r: _Reset) -> Exchange[Row]:
    """What the table says of the evidence there is."""
    moved = Moved.UNKNOWN
    before = r.before
    if before and m.clock.value_id is not None:
        text = yield from get_value(m, m.clock.value_id, stray=r.take)
        moved = Moved.NO if text is None or seconds(m, text) in (None, before) else Moved.ONCE
    yield from overview(m, stray=r.take)
    acknowledged = Acknowledged.ALL if r.acked >= r.wanted else Acknowledged.FEWER
    hasty = m.now < r.patient_until
    evidence = Evidence(acknowledged, moved, not m.foreign, m.punctual, hasty=hasty, trusted=r.trusted)
    row = decide(RESET_TABLE, evidence)
    if row.action is Action.REPEAT:
        # That overview may be a late one, of before another client came.
        yield from overview(m, stray=r.take)
        row = decide(RESET_TABLE, replace(evidence, sole=not m.foreign))
    return row
