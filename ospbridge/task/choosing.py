"""Names by pattern, and a number for each of them: what the lists and tables of a scenario mean for one agent."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.toml.tables import Mistakes, PerValue

__all__ = ["choose", "spread"]


def spread(
    given: PerValue, names: Iterable[str], default: list[float], where: str, mistakes: Mistakes
) -> list[float]:
    """A number for each of ``names``; where a table names none, the default."""
    known = list(names)
    if isinstance(given, float):
        return [given] * len(known)
    if isinstance(given, tuple):
        if len(given) != len(known):
            mistakes.note(
                where,
                f"expected {len(known)} numbers, got {len(given)}",
                f"one for each of {', '.join(known)}",
            )
            return default
        return list(given)
    numbers = list(default)
    for pattern, number in given.items():
        for name in choose((pattern,), known, where, mistakes):
            numbers[known.index(name)] = number
    return numbers


def choose(
    patterns: Iterable[str], names: Iterable[str], where: str, mistakes: Mistakes, what: str = "name"
) -> list[str]:
    """The names that fit, in the order of the patterns. A name may itself look like a pattern."""
    known = list(names)
    chosen: list[str] = []
    for pattern in patterns:
        hits = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not hits and not (pattern == "*" and not known):
            mistakes.note(where, f"no {what} {pattern!r}", nearest(pattern, known) or _some(known, what))
        chosen += [name for name in hits if name not in chosen]
    return chosen


def _some(names: list[str], what: str) -> str:
    if not names:
        return f"there is no {what} at all"
    shown = ", ".join(names[:6])
    return f"there are {shown}" + (f" and {len(names) - 6} more" if len(names) > 6 else "")
