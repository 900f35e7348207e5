"""Agents that may be one step late: servers may keep what they have of an agent's votes for the steps to come.

Where such a server counts a vote twice nothing runs too early, since its world waits for a vote of each agent. But from
then on each step has the inputs of the one before for that agent. What looks the same is a network that repeated the
answer alone, which does no harm. Inputs that are read back tell (``echo``), if it is known what they look like.

What this module must not do: touch a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.osp.step.finding_out import uncertain

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine
    from ospbridge.osp.step.under_way import StepUnderWay

__all__ = ["see_that_nobody_lags"]


def see_that_nobody_lags(m: ClientMachine, s: StepUnderWay) -> None:
    """The world waited for all votes of this step, whose inputs were read back: see which agents are in time.

    Raises StepUncertain where that cannot be told of one.
    """
    for agent_id in m.may_lag.keys() & s.votes.keys():
        vote = s.votes[agent_id]
        echo = m.echo.of(vote, as_given=m.profile.outputs_normalised)
        left, before = m.may_lag[agent_id]
        given = vote.inputs.tobytes()
        if given == before:
            continue
        if echo.tells:
            # Nothing contradicted this step's.
            del m.may_lag[agent_id]
        elif left and not echo.blind:
            m.may_lag[agent_id] = left - 1, given
        else:
            raise uncertain(
                m,
                f"a vote of agent {vote.agent.name!r} was acknowledged twice, and the simulator does not show which "
                "inputs it has: its next ones may run one step late",
                by_network=True,
            )
