"""Votes of ours that were acknowledged twice: whether it can be told if they were counted twice, and by what.

If so, the barrier takes the copy for a vote that is still to come. ``holding`` and ``lagging`` look for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine

__all__ = [
    "can_hold_back",
    "counted_twice",
    "holds_back",
    "may_be_left_over",
    "may_stand_for_another",
    "votes_alone",
]

TOLD_WITHIN: Final = 4
"""Steps with other inputs than the one before, after which it is known whether an agent lags: three show what they look
like."""


def can_hold_back(m: ClientMachine) -> bool:
    """Whether it can be seen if the world waits for the last of our votes, or the only one."""
    return (
        not m.foreign
        and m.clock.available
        and m.clock.base is not None
        and (votes_alone(m) or m.lateness.answers_between_votes)
    )


def votes_alone(m: ClientMachine) -> bool:
    """One agent of ours, and nobody else's: each vote is a step, and one that is left over runs by itself."""
    return len(m.controlled) == 1 and not m.foreign


def holds_back(m: ClientMachine) -> bool:
    """Whether this step is to see if the world waits for its last vote."""
    return (m.overcounted or (m.lateness.repeats and not votes_alone(m))) and can_hold_back(m)


def may_stand_for_another(m: ClientMachine) -> bool:
    """A step may run without our last vote: others vote, or ours were seen to come twice where several count."""
    return bool(m.foreign) or (len(m.controlled) > 1 and m.lateness.repeats)


def counted_twice(m: ClientMachine, agent_id: int, *, too_late: bool) -> None:
    """A vote of that agent was acknowledged once more than it was sent.

    ``too_late``: it cannot count for the latest step.
    """
    m.lateness.repeats = m.doubles = m.doubled = True
    if can_hold_back(m):
        m.overcounted = True
        if not votes_alone(m):
            m.latest_in_doubt = m.latest_in_doubt or not too_late
            m.may_lag[agent_id] = TOLD_WITHIN, b""


def may_be_left_over(m: ClientMachine) -> None:
    """A vote was given again: not it but its acknowledgement may have been lost, while the world took its time."""
    if can_hold_back(m):
        m.overcounted = True
