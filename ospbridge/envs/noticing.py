"""What users should know of a simulator, or of what they play together there: a warning, once in each session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnasium import logger

from ospbridge.osp.notices import WorldReset, told_by
from ospbridge.task.pacing import HINT, unlike
from ospbridge.text import LINE, listed, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.interface import Feedback
    from ospbridge.osp.notices import Notice
    from ospbridge.session.core import SessionCore
    from ospbridge.task.base import Task

__all__ = ["tell", "tell_at_once", "tell_of_doubt", "tell_of_unlike_paces"]


def tell(notices: Iterable[Notice]) -> str:
    """Warn of what these say of the simulator. Returns what is said of a reset by others, empty where none came."""
    told = told_by(notices)
    for remark in told.remarks:
        logger.warn("%s", printable(remark, LINE))
    return told.reset


def tell_at_once(core: SessionCore) -> None:
    """The same for what is there, and leave a reset by others to the next step, whose episode it ends."""
    notices = core.pop_notices()
    core.machine.notices.extend(n for n in notices if isinstance(n, WorldReset))
    tell(notices)


def tell_of_doubt(begun: Iterable[Feedback]) -> None:
    """Warn of abandoned episodes that cannot be trusted, which the first feedback of the next ones tells."""
    for reason in dict.fromkeys(feedback.reason for feedback in begun if feedback.reason):
        logger.warn("%s", printable(reason, LINE))


def tell_of_unlike_paces(tasks: Iterable[Task]) -> None:
    """Warn of tasks that repeat an action unlike often, and will step together."""
    repeats = unlike(tasks)
    if repeats:
        told = listed(f"{repeat} of agent {name!r}" for name, repeat in repeats.items())
        logger.warn("action_repeat differs (%s), %d is taken for all (%s)", told, max(repeats.values()), HINT)
