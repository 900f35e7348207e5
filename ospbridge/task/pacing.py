"""Agents that step together although their tasks repeat an action unlike often: what is made of it, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.task.base import Task

__all__ = ["HINT", "unlike"]

HINT: Final = (
    "all agents of a simulator step together: give their tasks the same action_repeat, by a scenario that matches all "
    "of them, or do not play them together"
)


def unlike(tasks: Iterable[Task]) -> dict[str, int]:
    """The ``action_repeat`` of each agent, of which the largest is taken for all; empty where they are equal."""
    repeats = {task.agent.name: task.action_repeat for task in tasks}
    return repeats if len(set(repeats.values())) > 1 else {}
