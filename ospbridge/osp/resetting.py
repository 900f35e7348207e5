"""The reset: one vote for each agent, one completion for every client (OSP 1.1, section 4.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import BarrierStuck, LocalProtocolError, QueryTimeout, StepUncertain, ValueRejected
from ospbridge.osp.asking import get_value, overview, set_value, who_is_missing
from ospbridge.osp.client import RESET_COMPLETED, Notice
from ospbridge.osp.clock import Moved
from ospbridge.osp.listing import find_value
from ospbridge.osp.messages import ResetSimulation, ResetSimulationAck, Truncated
from ospbridge.osp.profile import SeedBy
from ospbridge.osp.recovery import RESET_TABLE, Acknowledged, Action, Evidence, decide
from ospbridge.osp.timekeeping import seconds, settled_clock, start_clock

if TYPE_CHECKING:
    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = ["SEED", "reset"]

SEED: Final = "/Simulation/Seed"


class _Reset:
    """One reset under way."""

    __slots__ = ("acked", "completed", "m", "repeated", "sent", "votes", "wanted")

    def __init__(self, m: ClientMachine, seed: int) -> None:
        self.m = m
        self.votes = ResetSimulation(seed)
        self.wanted = len(m.controlled)
        # Votes of a reset that was given up still count: a second one could stand for another client's.
        self.sent = self.acked = min(m.resets_outstanding, self.wanted)
        self.completed = False
        self.repeated = 0

    @property
    def finished(self) -> bool:
        return self.completed and self.sent >= self.wanted and self.acked >= self.wanted

    def send_next(self) -> None:
        self.sent += 1
        self.m.resets_outstanding += 1
        self.m.send(self.votes)

    def take(self, reply: Reply) -> None:
        if type(reply) is ResetSimulationAck:
            self.acked += 1
            if self.acked == self.sent < self.wanted:
                self.send_next()
        elif not isinstance(reply, Truncated) and reply.CODE in RESET_COMPLETED:
            self.completed = True
            self.m.acknowledge_reset(reply.CODE)
        else:
            self.m.unexpected(reply)


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
        yield from start_clock(m)
    before = yield from settled_clock(m)
    r = _Reset(m, seed)
    limit = m.now + m.limits.reset
    waits = m.waits()
    if r.sent < r.wanted:
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
            yield from start_clock(m)
            if not before or m.clock.base is None or m.clock.base != before:
                m.vote_outstanding = False
                m.resets_outstanding = 0
                _look_for_a_step(m)
                return r.finished
            # What was taken for our reset's completion belonged to an older one.
            m.anomaly("a completion of an earlier reset was taken for this one")
            r.completed = False
        quiet_at = min(m.now + waits.next(), limit)


def _look_for_a_step(m: ClientMachine) -> None:
    """Where votes outlive a reset and those who gave them, one may have run a step behind it. Raises StepUncertain."""
    if m.guarded and m.profile.votes_survive_reset and m.clock.base:
        m.suspect = f"the clock shows {m.clock.base:.9g} s behind a reset: a vote of before it ran a step"
        raise StepUncertain(f"the episode cannot begin: {m.suspect}")


def _seed_by_value(m: ClientMachine, seed: int) -> Exchange[None]:
    if m.seedless:
        return
    try:
        entry = yield from find_value(m, SEED)
    except QueryTimeout:
        entry = None
    if entry is None:
        m.seedless = True
        m.notices.append(Notice(f"{m.peer} has no variable {SEED}: seeds have no effect"))
        return
    try:
        yield from set_value(m, entry.id, str(seed), name=SEED)
    except ValueRejected:
        m.notices.append(Notice(f"{m.peer} refused the seed {seed}"))


def _reset_found_out(m: ClientMachine, r: _Reset, before: float | None, limit: float) -> Exchange[bool]:
    """After a silence: whether the reset ran. Votes again where the table allows it."""
    if m.now >= limit:
        m.suspect = "a reset of this session never completed"
        who = yield from who_is_missing(m)
        raise BarrierStuck(f"the reset did not complete within {m.limits.reset:g} s ({who})")
    m.acknowledge_reset(m.profile.reset_completed)
    if r.sent < r.wanted:
        r.send_next()
        return False
    moved = Moved.UNKNOWN
    if before:
        clock = m.clock.value_id
        text = yield from get_value(m, clock, stray=r.take)
        moved = Moved.NO if text is None or seconds(m, text) in (None, before) else Moved.ONCE
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
