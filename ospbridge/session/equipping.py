"""What tasks want of a simulator beside their agents: events and variables, asked for when it is joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ospbridge.osp.client.machine import Exchange
    from ospbridge.session.conversation import Conversation
    from ospbridge.task.base import Task

__all__ = ["equip"]


def equip(conversation: Conversation, tasks: Collection[Task]) -> Exchange[None]:
    """Ask for what the tasks want and is not told yet; what they remark is this session's from now on.

    Raises ConfigurationError, ValueNotFound.
    """
    for task in tasks:
        task.remark = conversation.machine.notices.remark
    for event in dict.fromkeys(event for task in tasks for event in task.events):
        if not (yield from conversation.register_event(event)):
            wanting = ", ".join(repr(task.agent.name) for task in tasks if event in task.events)
            raise ConfigurationError(
                f"{conversation.server} has no event {event!r}, which the task of agent {wanting} wants",
                hint="events must be named exactly; see the simulator's own documents",
            )
    wanted = dict.fromkeys(name for task in tasks for name in task.values)
    missing = [name for name in wanted if name not in conversation.watched]
    if missing:
        yield from conversation.watch(missing)
