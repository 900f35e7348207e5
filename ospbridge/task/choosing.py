"""Values by name or pattern, and a number for each: what the lists and tables of a scenario mean for one agent.

A simulator may give several values one name. They are told apart by their positions: a glob means each of them once,
and a name that could mean either is a mistake.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from ospbridge.text import pluralize
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.toml.tables import Mistakes, PerValue

__all__ = ["choose", "need_one", "spread"]

APART: Final = "give each a name of its own in the simulator"


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
                f"expected {pluralize(len(known), 'number')}, got {len(given)}",
                f"one for each of {', '.join(known)}",
            )
            return default
        return list(given)
    numbers = list(default)
    for pattern, number in given.items():
        for at in choose((pattern,), known, where, mistakes):
            numbers[at] = number
    return numbers


def choose(
    patterns: Iterable[str], names: Iterable[str], where: str, mistakes: Mistakes, what: str = "name"
) -> list[int]:
    """Where those stand that fit, in the order of the patterns. A name may itself look like a pattern."""
    known = list(names)
    # Of thousands of names that are told one by one, each is looked for in no time.
    places: dict[str, list[int]] = {}
    for at, name in enumerate(known):
        places.setdefault(name, []).append(at)
    chosen: dict[int, None] = {}
    for pattern in patterns:
        if pattern in places:
            hits = places[pattern]
            if len(hits) > 1:
                told = _several(pattern, hits, what)
                mistakes.note(where, told, f"{APART}, or mean all of them by a glob")
        else:
            hits = [at for at, name in enumerate(known) if fnmatchcase(name, pattern)]
        if not hits and not (pattern == "*" and not known):
            mistakes.note(where, f"no {what} {pattern!r}", nearest(pattern, known) or _some(known, what))
        chosen.update(dict.fromkeys(hits))
    return list(chosen)


def need_one(name: str, names: Sequence[str], where: str, mistakes: Mistakes, what: str) -> None:
    """Note where not just one is called so."""
    hits = [at for at, known in enumerate(names) if known == name]
    if not hits:
        mistakes.note(where, f"no {what} {name!r}", nearest(name, names) or _some(list(names), what))
    elif len(hits) > 1:
        mistakes.note(where, _several(name, hits, what), f"{APART}, or read it by position in a class")


def _several(name: str, hits: Sequence[int], what: str) -> str:
    places = f"{', '.join(map(str, hits[:-1]))} and {hits[-1]}"
    return f"{len(hits)} {what}s are called {name!r}, at {places} counted from 0"


def _some(names: list[str], what: str) -> str:
    if not names:
        return f"there is no {what} at all"
    shown = ", ".join(names[:6])
    return f"there are {shown}" + (f" and {len(names) - 6} more" if len(names) > 6 else "")
