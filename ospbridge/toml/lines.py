"""Which line of a TOML file a mistake is about: found out by the parser itself, never guessed.

The standard library's parser tells no places. But a TOML file is a row of statements that begin on lines of their own,
and any number of whole statements from the top is TOML too. So the statement that brings a key path ends where the
shortest beginning of the file ends that is TOML and has the path, and it begins behind the beginning before that.
"""

from __future__ import annotations

import ast
import re
import tomllib
from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Lines"]

PATIENCE: Final = 500  # beginnings that are read for all mistakes of a file, at most
_STEP: Final = re.compile(r"""\.?(?:([A-Za-z0-9_-]+)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\[(\d+)\])""")


class Lines:
    """``text`` is that of the file, and is TOML."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._read: dict[int, dict[str, Any] | None] = {0: {}}

    def of(self, mistake: str) -> int | None:
        """The line, from 1, of the key path that ``mistake`` begins with; None where that cannot be told for sure."""
        path = _path(mistake)
        try:
            if not path or not _has(self._beginning(len(self._lines))[1], path):
                return None
            counts = range(len(self._lines))
            brought = bisect_left(counts, True, key=lambda count: _has(self._beginning(count)[1], path))
            return self._beginning(brought - 1)[0] + 1
        except TimeoutError:
            return None

    def placed(self, mistakes: Iterable[str]) -> list[str]:
        """Each with its line, where that is known, and in the order of the lines."""
        found = sorted(((self.of(mistake), mistake) for mistake in mistakes), key=lambda each: each[0] or inf)
        return [mistake if line is None else f"line {line}: {mistake}" for line, mistake in found]

    def _beginning(self, count: int) -> tuple[int, dict[str, Any]]:
        """How many of the first ``count`` lines are whole statements, and what they say."""
        while (data := self._said(count)) is None:
            count -= 1
        return count, data

    def _said(self, count: int) -> dict[str, Any] | None:
        if count not in self._read:
            if len(self._read) > PATIENCE:
                raise TimeoutError
            try:
                self._read[count] = tomllib.loads("\n".join(self._lines[:count]) + "\n")
            except tomllib.TOMLDecodeError:
                self._read[count] = None
        return self._read[count]


def _path(mistake: str) -> list[str | int]:
    """Names and indices, as ``Table.at`` writes them, in front of a colon; nothing where it is no path."""
    path: list[str | int] = []
    at = 0
    while step := _STEP.match(mistake, at):
        name, quoted, index = step.groups()
        path.append(int(index) if index else name or ast.literal_eval(quoted))
        at = step.end()
    return path if mistake.startswith(": ", at) else []


def _has(data: Any, path: list[str | int]) -> bool:
    """Whether there is exactly one place of that path: an array of tables as a whole has several."""
    for key in path:
        if isinstance(key, int):
            if not isinstance(data, list) or key >= len(data):
                return False
        elif not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return not (isinstance(data, list) and any(isinstance(each, dict) for each in data))
