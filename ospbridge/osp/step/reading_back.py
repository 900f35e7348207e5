"""Reading inputs back from the value repository, on a network that disturbs: did the step run with those given?

See ``echo`` for why that must be asked, and what the answers are compared with. While our next vote is missing the
world holds still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import IncompleteListing, QueryTimeout
from ospbridge.osp.client.asking import settled_value
from ospbridge.osp.number_text import number
from ospbridge.osp.step.restore import known_ids, list_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from ospbridge.osp.step.echo import AgentEcho
    from ospbridge.osp.step.votes import Vote

__all__ = ["CALM", "let_come", "replaced"]

CALM: Final = 0.1
"""Seconds that answers of long ago are given to come."""
LISTINGS_AT_MOST: Final = 3
"""So often is looked for inputs in a session: a repository may not have them."""


def replaced(m: ClientMachine, votes: Sequence[Vote]) -> Exchange[str]:
    """Read back what the step that just ran was given; what contradicts it, or nothing."""
    for vote in votes:
        agent = m.echo.of(vote, as_given=m.profile.outputs_normalised)
        if not agent.other(vote.inputs):
            continue
        yield from _find(m, vote, agent)
        for at in agent.telling(vote.inputs):
            value_id, given = agent.ids[at], float(vote.inputs[at])
            assert value_id is not None
            text = yield from settled_value(m, value_id)
            try:
                if agent.inputs[at].doubts_it(given, number(text or "")):
                    # Copies of an answer of long ago agree with each other, too: look when they are through.
                    yield from let_come(m, CALM)
                    text = yield from settled_value(m, value_id)
                read = number(text or "")
                m.printing.learn(text or "")
            except ValueError:
                agent.ids[at] = None
                continue
            found = agent.inputs[at].contradiction(given, read)
            if found is not None:
                given, read = found
                return (
                    f"{vote.agent.inputs[at].name} of agent {vote.agent.name!r} reads {read:.7g}, it was given "
                    f"{given:.7g}: an earlier request came late and took the place of this one"
                )
        agent.remember(vote.inputs)
    return ""


def let_come(m: ClientMachine, seconds: float) -> Exchange[None]:
    """Nothing is awaited for so long, but what is on its way is taken in."""
    until = m.now + seconds
    while m.now < until:
        reply = yield until
        if reply is None:
            return
        m.unexpected(reply)


def _find(m: ClientMachine, vote: Vote, agent: AgentEcho) -> Exchange[None]:
    """Learn where in the repository the inputs stand, if anywhere."""
    if agent.looked:
        return
    names = [value.name for value in vote.agent.inputs]
    found = known_ids(m, vote.agent, names)
    if None in found and m.echo.listings < LISTINGS_AT_MOST and not m.repository_mute:
        m.echo.listings += 1
        try:
            yield from list_all(m)
        except IncompleteListing:
            return
        except QueryTimeout:
            m.mute_questions += 1
            return
        found = known_ids(m, vote.agent, names)
    agent.found(found)
