"""Reading the tables of a TOML file: every key is checked, every mistake is noted, and reading goes on.

A ``Table`` hands out the values of its keys, or their defaults where they are wrong. What the keys mean is no concern
of this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from enum import StrEnum

__all__ = ["Mistakes", "PerValue", "Table", "is_number"]

E = TypeVar("E", bound="StrEnum")
LARGEST = 2**31 - 1
MOST_BITS = 128
"""Of an integer that is shown as it is."""

PerValue: TypeAlias = float | tuple[float, ...] | Mapping[str, float]
"""A number for each interface value: one for all, one each in their order, or by name or glob."""


class Mistakes:
    """What is wrong, in the order found."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, where: str, what: str, hint: str = "") -> None:
        """``where``: the key path."""
        said = f"{where}: {what}" if where else what
        self.found.append(f"{said} ({hint})" if hint else said)


def _kind(value: object) -> str:
    """What a value is in the words of TOML, and itself where it is short."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        # Python itself refuses to write down what is longer than some thousands of digits.
        return f"an integer of {value.bit_length()} bits"
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def is_number(value: object) -> bool:
    """Neither NaN nor an integer that no float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


class Table:
    """One table of the file, at key path ``where``; ``keys`` are all it may hold."""

    def __init__(self, data: Any, where: str, keys: Iterable[str] | None, mistakes: Mistakes) -> None:
        self.where = where
        self.mistakes = mistakes
        self.data: dict[str, Any] = {}
        if not isinstance(data, dict):
            mistakes.note(where, f"expected a table, got {_kind(data)}")
            return
        self.data = data
        if keys is None:
            return
        known = tuple(keys)
        for key in data:
            if key not in known:
                mistakes.note(
                    self.at(key), "unknown key", nearest(key, known) or f"known are {', '.join(known)}"
                )

    def at(self, key: str) -> str:
        """The path of a key; quoted where TOML would quote it."""
        name = key if key.replace("_", "a").replace("-", "a").isalnum() and key.isascii() else repr(key)
        return f"{self.where}.{name}" if self.where else name

    def wrong(self, key: str, expected: str, came: object, hint: str = "") -> None:
        """Note a value that is not what the key takes."""
        self.mistakes.note(self.at(key), f"expected {expected}, got {_kind(came)}", hint)

    def within(self, key: str, keys: Iterable[str]) -> Table:
        """The table at a key; ``keys`` are all it may hold."""
        return Table(self.data[key], self.at(key), keys, self.mistakes)

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def text(self, key: str, default: str = "") -> str:
        """A text that is not empty."""
        value = self.data.get(key, default)
        if not isinstance(value, str) or (key in self.data and not value):
            self.wrong(key, "a text", value)
            return default
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where it does not stand there."""
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            self.wrong(key, "true or false", value)
            return False
        return value

    def whole(self, key: str, default: int, least: int, most: int = LARGEST) -> int:
        """A whole number."""
        value = self.data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            upper = f" to {most}" if most != LARGEST else " or more"
            self.wrong(key, f"a whole number, {least}{upper}", value)
            return default
        return value

    def seconds(self, key: str, default: float | None) -> float | None:
        """A positive number."""
        if key not in self.data:
            return default
        value = self.data[key]
        if not is_number(value) or not 0.0 < value < math.inf:
            self.wrong(key, "a positive number of seconds", value)
            return default
        return float(value)

    def number(
        self, key: str, *, least: float | None, most: float | None, above: bool = False, whole: bool = False
    ) -> float | int | None:
        """A number, not smaller than ``least`` (``above``: larger) nor larger than ``most``; None where it is none."""
        value = self.data[key]
        if (
            not is_number(value)
            or (whole and not isinstance(value, int))
            or not math.isfinite(value)
            or (least is not None and (value <= least if above else value < least))
            or (most is not None and value > most)
        ):
            kind = "a whole number" if whole else "a number"
            bounds = [
                "" if least is None else f"{'above' if above else 'from'} {least:.15g}",
                "" if most is None else f"to {most:.15g}",
            ]
            self.wrong(key, " ".join([kind, *filter(None, bounds)]), value)
            return None
        number: float | int = value if whole else float(value)
        return number

    def choice(self, key: str, default: E) -> E:
        """One of the words of an enumeration."""
        if key not in self.data:
            return default
        kind = type(default)
        word = self.word(key, [member.value for member in kind])
        return default if word is None else kind(word)

    def word(self, key: str, words: Sequence[str]) -> str | None:
        """One of these; None where it is none."""
        value = self.data[key]
        if value not in words:
            hint = nearest(value, words) if isinstance(value, str) else ""
            self.wrong(key, " or ".join(repr(word) for word in words), value, hint)
            return None
        return str(value)

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts, none of them twice."""
        value = self.data.get(key, default)
        if key not in self.data:
            return default
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            self.wrong(key, "a list of texts", value)
            return default
        if len(set(value)) < len(value):
            twice = next(text for text in value if value.count(text) > 1)
            self.mistakes.note(self.at(key), f"{twice!r} stands there twice")
        return tuple(value)

    def per_value(self, key: str) -> PerValue | None:
        """One number, a list of numbers, or numbers by name or glob; None where the key is not there."""
        value = self.data.get(key)
        if value is None:
            return None
        if is_number(value):
            return float(value)
        if isinstance(value, list) and all(map(is_number, value)):
            return tuple(map(float, value))
        if isinstance(value, dict) and all(map(is_number, value.values())):
            return {name: float(number) for name, number in value.items()}
        self.wrong(key, "a number, a list of numbers, or a table of numbers by name or glob", value)
        return None
