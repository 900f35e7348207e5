"""Completions that came before the last acknowledgement: whether they are this step's after all.

The network may have changed the order, the server may acknowledge last as a rule, or a vote was counted for another
one, so that the step ran without ours. ``under_way`` keeps them aside as ``strange``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.osp.step.overcounting import may_stand_for_another

if TYPE_CHECKING:
    from ospbridge.osp.messages import StepCompleted
    from ospbridge.osp.step.under_way import StepUnderWay

__all__ = [
    "acknowledged_last",
    "behind_rule",
    "believe_early",
    "believe_rule",
    "came_early",
    "overtook",
    "undecidable",
]


def acknowledged_last(s: StepUnderWay, agent_id: int) -> bool:
    """Whether a completion before the acknowledgement is what this simulator makes of every step.

    Only where no other vote can have run it, as far as the network has shown. If one had, ours would be left over,
    and run the next step before its own last vote can: that has another order, and is told.
    """
    m = s.m
    return m.lateness.acknowledges_last and not (
        may_stand_for_another(m) or s.resent or s.doubled or m.lateness.awaits(agent_id)
    )


def behind_rule(s: StepUnderWay, agent_id: int) -> bool:
    """Whether a completion that comes now is such a one: of all acknowledgements only the last is missing."""
    return not s.unsent and s.unacked == {s.last} and acknowledged_last(s, agent_id)


def believe_rule(s: StepUnderWay) -> None:
    """The acknowledgement came that this simulator sends last: the completions before it are the step's."""
    first = {reply.agent_id: reply for reply in s.strange}
    if len(first) < len(s.strange):
        return
    for agent_id, reply in first.items():
        s.done[agent_id] = reply
        if s.m.recalls(reply):
            s.familiar.add(agent_id)


def believe_early(s: StepUnderWay, *, ran: bool) -> None:
    """The repository does not show what the step brought: believe what came before its acknowledgement.

    That is no earlier step's where nothing like it came before; but where others vote too, or for another agent, it
    may be of a step that ran without our vote. ``ran``: the clock shows that this step ran; else only a completion
    tells so.
    """
    m = s.m
    if m.shares_the_barrier:
        return
    early = _unknown(s)
    alone = not (s.resent or s.doubled or m.clock.available)
    if ran or (alone and early):
        if ran and early and not (s.unacked or s.unsent):
            m.lateness.acknowledged_behind += 1
        m.owed_acks |= s.unacked
        s.unacked.clear()
        s.done = early | s.done


def _unknown(s: StepUnderWay) -> dict[int, StepCompleted]:
    """What came too early, and no earlier step brought."""
    m = s.m
    return {
        reply.agent_id: reply
        for reply in s.strange
        if not m.recalls(reply) and not m.lateness.awaits(reply.agent_id)
    }


def overtook(s: StepUnderWay, found: dict[int, StepCompleted]) -> bool:
    """Whether what is missing came too early and is just what was ``found``, and the votes are acknowledged now.

    Then it is no earlier step's, nor is what was found: datagrams only overtook each other.
    """
    return not (s.unacked or s.unsent) and came_early(s, found) == found.keys()


def came_early(s: StepUnderWay, found: dict[int, StepCompleted]) -> set[int]:
    """Agents whose completion came too early and is just what was ``found``: that is not lost, whoever ran the step."""
    early = _unknown(s)
    return {
        agent_id
        for agent_id, reply in found.items()
        if agent_id in early and s.m.remembered().same(early[agent_id], reply)
    }


def undecidable(s: StepUnderWay) -> bool:
    """All that is missing came too early, and where several vote nothing that may still come tells more."""
    early = _unknown(s)
    return s.m.shares_the_barrier and all(agent_id in early for agent_id in s.missing)
