"""What may stand in a configuration file: sections, and a table of keys for each.

The tables are made from the options of the command line, so that a key and its flag never differ; this module only says
what a key is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.toml.tables import Table

__all__ = ["ABSENT", "Key", "Kind", "Section"]

Placed: TypeAlias = "Callable[[Any, Path], Any]"
Convert: TypeAlias = Callable[[Any], Any]
"""From what stands in the file to what the program takes. Raises ValueError with what is wrong."""


class Kind(Enum):
    """What a value is in TOML."""

    TEXT = "a text"
    TEXTS = "a list of texts"
    FILE = "a path"
    WHOLE = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    WORD = "a word"
    TABLE = "a text, a list of texts, or a table"


ABSENT: Any = None
"""The value of a key that stands nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a section. ``least`` and ``most`` are of numbers; ``above``: ``least`` itself is too small."""

    name: str
    kind: Kind
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: bool = False
    convert: Convert = lambda said: said
    placed: Placed | None = None
    """For what may name a file: the same from a directory that relative paths count from."""
    inner: tuple[str, ...] = ()
    """The keys of a table, the first of which is what a text or a list means."""
    alone: bool = False
    """It names what only one of the section's tables can have, such as an address."""

    def said(self, table: Table) -> Any:
        """What stands at this key of ``table``, which has it; ABSENT where that is wrong, which is noted."""
        name = self.name
        if self.kind is Kind.FLAG:
            return table.flag(name)
        if self.kind is Kind.WORD:
            return table.word(name, self.words)
        if self.kind is Kind.TEXTS:
            return list(table.texts(name))
        if self.kind is Kind.TABLE:
            return self._table(table)
        if self.kind in (Kind.TEXT, Kind.FILE):
            return table.text(name) or ABSENT
        return table.number(
            name, least=self.least, most=self.most, above=self.above, whole=self.kind is Kind.WHOLE
        )

    def _table(self, table: Table) -> Any:
        """What its own keys take is known to who converts it."""
        value = table.data[self.name]
        if isinstance(value, str | list):
            return {self.inner[0]: value}
        if not isinstance(value, dict):
            table.wrong(self.name, self.kind.value, value)
            return ABSENT
        return table.within(self.name, self.inner).data


@dataclass(frozen=True, slots=True)
class Section:
    """``[[name]]``, and the keys of each of its tables in the order in which they are shown.

    ``single``: there is one table only, ``[name]``.
    """

    name: str
    keys: tuple[Key, ...]
    single: bool = False

    @property
    def header(self) -> str:
        """As it stands above a table."""
        return f"[{self.name}]" if self.single else f"[[{self.name}]]"

    def __getitem__(self, name: str) -> Key:
        return next(key for key in self.keys if key.name == name)
