"""The latest warnings of a program, kept in memory for whoever shows them.

``Recent`` is a processor of structlog: ``logs.configure(recent=...)`` puts it in. What it keeps is text already, short
and few, so that nothing of what was logged is kept alive by it.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ospbridge.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, WrappedLogger

__all__ = ["MOST_KEPT", "Recent", "Warned"]

MOST_KEPT: Final = 200
"""Warnings; older ones are forgotten."""
MOST_FIELDS: Final = 16
LONGEST: Final = 400
"""Bytes of an event or a field's value that are kept."""
_LEVELS: Final = frozenset({"warning", "error", "critical"})
_NOT_FIELDS: Final = frozenset({"timestamp", "level", "event", "exc_info", "stack_info", "exception"})


class Warned(msgspec.Struct, frozen=True):
    """One event of level warning or above. ``number`` counts them from 1, ``time`` is UTC in ISO 8601."""

    number: int
    time: str
    level: str
    event: str
    fields: tuple[tuple[str, str], ...] = ()


class Recent:
    """Remembers the latest warnings as they are logged, and changes nothing about them."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._kept: deque[Warned] = deque(maxlen=most)
        self._numbers = itertools.count(1)

    @property
    def warnings(self) -> Sequence[Warned]:
        """The oldest first."""
        return tuple(self._kept)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        level = event.get("level", method)
        if level in _LEVELS:
            fields = [(name, value) for name, value in event.items() if name not in _NOT_FIELDS]
            self._kept.append(
                Warned(
                    next(self._numbers),
                    _text(event.get("timestamp", "")),
                    level,
                    _text(event.get("event", "")),
                    tuple((_text(name), _text(value)) for name, value in fields[:MOST_FIELDS]),
                )
            )
        return event


def _text(value: Any) -> str:
    """What is logged may be anything, even what cannot be written down; logging must not fail for it."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  # whatever its __str__ does
        text = f"a {type(value).__name__}"
    return printable(text, LONGEST)
