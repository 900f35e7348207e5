"""Holding the last vote back, on a network that repeats datagrams: was one of the others counted twice?

An acknowledgement that comes twice says nothing of the vote: either that came twice, too, and the barrier counts the
copy for a vote which is still to come, or only the answer was repeated. While one vote of ours is missing the world
must stand still. Where it moves all the same, a copy was counted; where it does not, none was. A copy that came too
late for one step is left over for the next one; and so is the last vote of a step that a copy made run too early.

Only a session that controls all agents can do that: the votes of others come when they like.

Where it controls one agent, a vote that was counted twice runs a step of its own. A world that takes its time may still
be at it when the first one is completed, and each later step would be the one before it: so there, too, the next vote
waits until the world stood still, and so does the end of the episode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import QueryTimeout
from ospbridge.osp.client import timekeeping
from ospbridge.osp.client.clock import Moved
from ospbridge.osp.client.timekeeping import read_clock, settled_clock
from ospbridge.osp.step.finding_out import uncertain
from ospbridge.osp.step.overcounting import can_hold_back, votes_alone
from ospbridge.osp.step.reading_back import CALM, let_come

if TYPE_CHECKING:
    from ospbridge.errors import StepUncertain
    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from ospbridge.osp.step.under_way import StepUnderWay

__all__ = ["audit", "conclude", "hold_back", "look_back", "patience"]

SHORTEST: Final = 0.1
"""Seconds that a world is given to move: twice as long as real servers stall."""
SHORTEST_ALONE: Final = 0.02
"""The same where one vote is a step: it is under way already, or will never be."""
UNKNOWN: Final = 1.0
"""The same where no step was timed yet."""
LOOKS: Final = 5
"""At the clock, at most, while more and more comes twice."""
LONGER: Final = 3.0
"""Times as long as a step takes: the world is given that, where it is more."""
AT_LEAST: Final = 1.25
"""The same where three times would be too much of the limit."""


def hold_back(m: ClientMachine, s: StepUnderWay) -> Exchange[None]:
    """All votes but the last are counted: see that the world waits for it, and give it.

    Raises StepUncertain where the world moves without it, or does not answer behind the only vote there was.
    """
    s.holding = True
    waits = yield from _waits(m, s)
    s.holding = False
    if s.early:
        raise _too_early(m)
    s.doubled = s.doubled or not waits
    m.overcounted = m.latest_in_doubt = False
    s.began = s.moved_at = m.now
    s.send_next()


def _waits(m: ClientMachine, s: StepUnderWay) -> Exchange[bool]:
    """Whether the world stands still behind all that came twice, if anything did; False where that cannot be seen."""
    doubted = m.overcounted
    try:
        # What came twice at once has come before the answer to this.
        yield from read_clock(m, s.take)
        for _ in range(LOOKS):
            if not m.overcounted:
                return True
            doubted = True
            # What comes twice meanwhile needs its own time.
            m.overcounted = False
            time = yield from _time_behind(m, s, patience(m))
            if time is not None and not s.early and m.clock.judge(time) is not Moved.NO:
                # Copies of an answer of long ago agree with each other, too: look when they are through.
                time = yield from _time_behind(m, s, CALM)
            if time is None or m.clock.base is None:
                # The clock is gone, or a reset was told meanwhile, which ends the episode.
                return False
            if s.early or m.clock.judge(time) is not Moved.NO:
                raise _too_early(m)
    except QueryTimeout:
        if votes_alone(m):
            raise uncertain(
                m,
                "a vote may have been counted twice, and what came of it cannot be asked",
                by_network=True,
            ) from None
        # A server that answers nothing between two votes.
        m.lateness.answers_between_votes = False
        return not (doubted or m.overcounted)
    return not m.overcounted


def _too_early(m: ClientMachine) -> StepUncertain:
    why = "the world made a step more" if votes_alone(m) else "a step ran before all votes were in"
    return uncertain(m, f"a vote was counted twice: {why}", by_network=True)


def _time_behind(m: ClientMachine, s: StepUnderWay, seconds: float) -> Exchange[float | None]:
    """What the clock shows when the world has had so long to move."""
    until = m.now + seconds
    while m.now < until and not s.early:
        reply = yield until
        if reply is None:
            break
        s.take(reply)
    return (yield from settled_clock(m, s.take))


def look_back(m: ClientMachine) -> Exchange[str]:
    """Before a reset: what speaks against the steps of an episode that nobody waits for the end of, or nothing."""
    if m.vote_outstanding or (m.clock.audited == m.clock.count and not m.suspect):
        return ""
    return (yield from audit(m, behind=True))


def conclude(m: ClientMachine) -> Exchange[None]:
    """In mid-episode, before what the clock shows of the steps so far is dropped: see that they ran as they were given.

    What speaks against them is told by the next step, and by the audit.
    """
    if not (m.vote_outstanding or m.suspect) and m.clock.audited != m.clock.count:
        yield from audit(m)


def audit(m: ClientMachine, *, behind: bool = False) -> Exchange[str]:
    """As ``timekeeping.audit``, when a step that nobody gave has had the time to show."""
    doubtful = m.overcounted or (m.lateness.repeats and m.unsettled)
    if doubtful and votes_alone(m) and can_hold_back(m) and not (m.suspect or m.vote_outstanding):
        yield from let_come(m, patience(m))
    return (yield from timekeeping.audit(m, behind=behind))


def patience(m: ClientMachine) -> float:
    """Seconds that a world is given to move."""
    took = m.lateness.step_took
    shortest = SHORTEST_ALONE if votes_alone(m) else SHORTEST
    most = max(m.limits.step / 4.0, AT_LEAST * took)
    return min(max(LONGER * took, shortest) if took else UNKNOWN, most)
