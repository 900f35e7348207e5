"""A simulator's variables by their names: finding one, reading it, setting it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ValueNotFound
from ospbridge.interface import ValueReading
from ospbridge.osp.client import asking
from ospbridge.osp.client.listing import find_value
from ospbridge.osp.client.renumbering import forget_ids, write_value
from ospbridge.osp.step import barrier
from ospbridge.session.arguments import text_of, value_name
from ospbridge.task.variables import components_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.interface import ValueEntry
    from ospbridge.osp.client.machine import ClientMachine, Exchange

__all__ = ["components", "named", "read", "write"]

NO_VECTORS: Final = frozenset({"Int", "Integer", "Double", "NormalizedDouble", "Bool", "String", "FileName"})
"""Types whose contents need not be looked at."""


def named(m: ClientMachine, name: str) -> Exchange[ValueEntry]:
    """The variable of that name. Raises ValueNotFound."""
    value_name(name)
    entry = yield from find_value(m, name)
    if entry is None:
        near = difflib.get_close_matches(name, m.values, n=1)
        raise ValueNotFound(
            f"{m.peer} has no value {name!r}", hint=f"did you mean {near[0]!r}?" if near else ""
        )
    return entry


def read(m: ClientMachine, name: str) -> Exchange[ValueReading]:
    """A variable with its content. Raises ValueNotFound."""
    entry = yield from named(m, name)
    content = yield from asking.settled_value(m, entry.id)
    if content is None:
        forget_ids(m)
        entry = yield from named(m, name)
        content = yield from asking.settled_value(m, entry.id)
    if content is None:
        raise _unknown(m, name)
    return ValueReading(entry.name, entry.type, content)


def components(m: ClientMachine, names: Iterable[str]) -> Exchange[dict[str, int]]:
    """How many components each has that is a vector; without those that are none, or are not there."""
    found: dict[str, int] = {}
    for name in names:
        entry = yield from find_value(m, name)
        if entry is None or entry.type in NO_VECTORS:
            continue
        if count := components_in((yield from read(m, name)).value):
            found[name] = count
    return found


def write(m: ClientMachine, name: str, content: str) -> Exchange[None]:
    """Set a variable. Raises ValueNotFound, ValueRejected."""
    text_of(content, "the content of a value", "'0.25': values travel as text")
    yield from named(m, name)
    # It may say how long a step takes.
    yield from barrier.conclude(m)
    if not (yield from write_value(m, name, content)):
        raise _unknown(m, name)


def _unknown(m: ClientMachine, name: str) -> ValueNotFound:
    return ValueNotFound(f"{m.peer} does not know value {name!r} any more")
