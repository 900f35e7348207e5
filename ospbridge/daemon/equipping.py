"""What tasks want of a simulator beside their agents: events and variables; and what is known before any step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.daemon.attachment import HeldAgent
    from ospbridge.session.trio_session import TrioSession
    from ospbridge.task.base import Task

__all__ = ["equip", "unobserved"]


def unobserved(agents: Iterable[HeldAgent]) -> dict[str, StepOutcome]:
    """What is known of a world that was reset and has not stepped: nothing, as zeros."""
    return {
        held.interface.name: StepOutcome(
            np.zeros(len(held.interface.outputs), np.float32), np.zeros(len(held.interface.infos), np.float32)
        )
        for held in agents
    }


async def equip(session: TrioSession, tasks: Sequence[Task]) -> None:
    """Ask the simulator for the events and variables that the tasks want."""
    for event in dict.fromkeys(event for task in tasks for event in task.events):
        if not await session.register_event(event):
            raise ConfigurationError(
                f"{session.server} has no event {event!r}, which a task wants",
                hint="events must be named exactly; see the simulator's own documents",
            )
    wanted = list(dict.fromkeys(name for task in tasks for name in task.values))
    if wanted:
        await session.watch(*wanted)
