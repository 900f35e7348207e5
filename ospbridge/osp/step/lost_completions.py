"""Completions that are taken for lost: when to believe what the repository shows in their place.

A simulator may advance its clock when a step begins, and its values only when it ends: until then the repository shows
the step before. What is read back is believed at once where it is seen to be new. Where that cannot be seen (the first
step of an episode, agents at rest) it must stay as it is for a while; and the completion that comes next is believed
only after no other one followed it, for it may be the one that was taken for lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.counts import numbered
from ospbridge.errors import OspBridgeError, OutputsIncomplete, QueryTimeout
from ospbridge.osp.step.early import overtook
from ospbridge.osp.step.restore import restore

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from ospbridge.osp.messages import StepCompleted
    from ospbridge.osp.step.under_way import StepUnderWay

    Found = dict[int, StepCompleted]

__all__ = ["LOOKS", "UNSEEN", "late_after_all", "read_back"]

UNSEEN: Final = 2.0
"""Seconds that a completion is awaited once the clock has moved, where values are not seen to be new."""
LOOKS: Final = 4
"""Looks at all values until two in a row agree, at most."""
LONGER: Final = 1.5
"""Times as late as the completion before may the next one be."""


def read_back(m: ClientMachine, s: StepUnderWay) -> Exchange[Found | None]:
    """What the missing completions held; None where it is too early to tell, or they came meanwhile.

    A simulator that does not show these values leaves nothing but to wait: ``s.unreadable`` says why.
    """
    if s.unreadable is not None:
        return None
    try:
        found = yield from _look(m, s)
        for _ in range(LOOKS):
            # Values may have changed in the middle of it, and an answer may be a late one to a question of long ago.
            before, found = found, (yield from _look(m, s))
            if found == before:
                break
        else:
            return None
    except OutputsIncomplete as error:
        s.unreadable = error
        return None
    except QueryTimeout as error:
        if m.now < m.no_later:
            m.suspect = error.message
            raise
        # Answers did come, but one question for each value takes its time.
        values = sum(len(s.votes[a].agent.outputs) + len(s.votes[a].agent.infos) for a in s.missing)
        s.unreadable = OutputsIncomplete(
            f"a completion was lost, and reading its {numbered(values, 'value')} "
            f"back took longer than the {m.limits.step:g} s "
            "that a step may take",
            hint="allow steps more time, or run ospbridge nearer to the simulator: each value is several round trips",
        )
        return None
    except OspBridgeError as error:
        m.suspect = error.message
        raise
    if s.finished or not _settled(m, s, found):
        return None
    return {agent_id: found[agent_id] for agent_id in s.missing}


def _look(m: ClientMachine, s: StepUnderWay) -> Exchange[Found]:
    found = {}
    for agent_id in s.missing:
        if not s.finished:
            found[agent_id] = yield from restore(m, s.votes[agent_id].agent, None, stray=s.take)
    return found


def _new(m: ClientMachine, found: Found) -> bool:
    """Whether something differs from what the step before brought. What was before the first step is not known."""
    return bool(m.clock.count) and any(m.remembered().differs(reply) for reply in found.values())


def _settled(m: ClientMachine, s: StepUnderWay, found: Found) -> bool:
    """Whether this is what the step brought, as far as can be seen."""
    before, s.shown = s.shown, found
    since = m.lateness.doubted_since(s.votes)
    s.unseen = False
    if any(not m.lateness.doubts(agent_id) and agent_id not in s.familiar for agent_id in s.done):
        # The step of others is over, and so is this one.
        return True
    if any(before.get(agent_id, reply) != reply for agent_id, reply in found.items()):
        # They come behind the clock: this completion may just be on its way.
        m.lateness.came(m.now - s.moved_at)
        s.changed = True
        return False
    if since is None and (s.changed or _new(m, found) or overtook(s, found)):
        return True
    s.unseen = True
    # What is new may be what the step before brought, where that was not seen to be over.
    longer = 0.0 if since is None else LONGER * (s.moved_at - since)
    return m.now - s.moved_at >= min(max(UNSEEN, 2.0 * m.lateness.behind, longer), m.limits.step / 4.0)


def late_after_all(m: ClientMachine, s: StepUnderWay, limit: float) -> Exchange[str]:
    """Behind a step whose completion may be a late one of the step before: why it cannot be believed, or nothing."""
    since = m.lateness.doubted_since(s.votes)
    if since is None or s.began - since > m.limits.step / 4.0:
        return ""
    at = m.now
    until = min(at + LONGER * (at - since), limit)
    while not s.followed:
        reply = yield until
        if reply is None:
            break
        s.take(reply)
    late = [agent_id for agent_id in s.followed if m.lateness.doubts(agent_id)]
    for agent_id in late:
        m.lateness.came_behind(agent_id, at)
    if not late:
        return ""
    name = s.votes[late[0]].agent.name
    return f"the completion of agent {name!r} came {at - since:.2g} s late: older values were read back in its place"
