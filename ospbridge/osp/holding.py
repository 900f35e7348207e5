"""Holding the last vote back, on a network that repeats datagrams: was one of the others counted twice?

An acknowledgement that comes twice says nothing of the vote: either that came twice, too, and the barrier counts the
copy for a vote which is still to come, or only the answer was repeated. While one vote of ours is missing the world
must stand still. Where it moves all the same, a copy was counted; where it does not, none was. A copy that came too
late for one step is left over for the next one; and so is the last vote of a step that a copy made run too early.

Only a session that controls all agents can do that: the votes of others come when they like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import QueryTimeout
from ospbridge.osp.clock import Moved
from ospbridge.osp.finding_out import uncertain
from ospbridge.osp.timekeeping import read_clock, settled_clock

if TYPE_CHECKING:
    from ospbridge.errors import StepUncertain
    from ospbridge.osp.client import ClientMachine, Exchange
    from ospbridge.osp.under_way import StepUnderWay

__all__ = ["hold_back"]

SHORTEST: Final = 0.1
"""Seconds that a world is given to move: twice as long as real servers stall."""
UNKNOWN: Final = 1.0
"""The same where no step was timed yet."""
LOOKS: Final = 5
"""At most, while more comes twice."""
LONGER: Final = 3.0
"""So many times as long as steps take is it given otherwise."""


def hold_back(m: ClientMachine, s: StepUnderWay) -> Exchange[None]:
    """All votes but the last are counted: see that the world waits for it, and give it.

    Raises StepUncertain where the world moves without it.
    """
    waits = yield from _waits(m, s)
    if s.early:
        raise _too_early(m)
    s.doubled = s.doubled or not waits
    m.overcounted = m.latest_in_doubt = False
    s.send_next()


def _waits(m: ClientMachine, s: StepUnderWay) -> Exchange[bool]:
    """Whether the world was seen to stand still behind all that came twice, where anything did."""
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
            time = yield from _time_behind_a_while(m, s)
            if time is None:
                return False
            if s.early or m.clock.judge(time) is not Moved.NO:
                raise _too_early(m)
    except QueryTimeout:
        # A server that answers nothing between two votes.
        m.lateness.answers_between_votes = False
        return not (doubted or m.overcounted)
    return not m.overcounted


def _too_early(m: ClientMachine) -> StepUncertain:
    return uncertain(m, "a vote was counted twice: a step ran before all votes were in", by_network=True)


def _time_behind_a_while(m: ClientMachine, s: StepUnderWay) -> Exchange[float | None]:
    """What the clock shows when the world has had the time to move."""
    until = m.now + _patience(m)
    while m.now < until and not s.early:
        reply = yield until
        if reply is None:
            break
        s.take(reply)
    return (yield from settled_clock(m, s.take))


def _patience(m: ClientMachine) -> float:
    took = m.lateness.step_took
    return min(max(LONGER * took, SHORTEST) if took else UNKNOWN, m.limits.step / 4.0)
