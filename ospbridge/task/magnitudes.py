"""Numbers of a scenario that travel as float32, and so must not be larger than that holds.

All do that a simulator is told or tells, but for the texts of its variables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.toml.tables import Mistakes, PerValue, Table

__all__ = ["LARGEST_FLOAT32", "as_inputs", "check_size", "numbers_of", "positive"]

LARGEST_FLOAT32: Final = (2.0 - 2.0**-23) * 2.0**127


def as_inputs(table: Table, key: str) -> PerValue | None:
    """A number for each input; infinite where there is no limit."""
    value = table.per_value(key)
    check_size(table.mistakes, table.at(key), numbers_of(value), LARGEST_FLOAT32)
    return value


def check_size(mistakes: Mistakes, where: str, numbers: Iterable[float], largest: float) -> None:
    """Note the first that is finite, and would be infinite for who takes no larger one than ``largest``."""
    beyond = next((number for number in numbers if largest < abs(number) < math.inf), None)
    if beyond is not None:
        mistakes.note(where, f"{beyond:g} is too large for a float32, which ends at {largest:g}")


def numbers_of(value: PerValue | None) -> Iterable[float]:
    """All that it says, whichever way; nothing where it is None."""
    if value is None:
        return ()
    if isinstance(value, float):
        return (value,)
    return value if isinstance(value, tuple) else value.values()


def positive(table: Table, key: str) -> PerValue | None:
    """A number for each input, all greater than 0."""
    value = as_inputs(table, key)
    if any(number <= 0.0 for number in numbers_of(value)):
        table.mistakes.note(table.at(key), "must be greater than 0")
    return value
