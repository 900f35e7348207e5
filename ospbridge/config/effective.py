"""What counts: flags and environment variables first, then the file, then the default; and where each value is from."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ospbridge.config.keys import ABSENT
from ospbridge.errors import ConfigurationError, FileInvalid, UsageError
from ospbridge.text import LINE, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ospbridge.config.keys import Section
    from ospbridge.config.reading import Written, WrittenFile

__all__ = ["DEFAULT", "Entry", "Value", "effective", "shown"]

DEFAULT = "default"
"""The origin of what nobody said."""


@dataclass(frozen=True, slots=True)
class Value:
    """``value`` as the program takes it, ``said`` as it would stand in a file, ``origin`` where it was said."""

    value: Any
    said: Any
    origin: str = DEFAULT


@dataclass(frozen=True, slots=True)
class Entry:
    """One table of a section, as it counts. ``where``: its place in the file, empty where it has none."""

    section: Section
    where: str = ""
    values: dict[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def said(self, name: str) -> bool:
        """Whether somebody said it, instead of the default."""
        return self.values[name].origin != DEFAULT

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What is wrong with it within is told with its place."""
        try:
            yield
        except (ConfigurationError, UsageError) as error:
            if not self.where:
                raise
            if isinstance(error, FileInvalid):
                raise error.within(self.where) from None
            raise ConfigurationError(f"{self.where}: {error.message}", hint=error.hint) from None


def effective(
    section: Section,
    file: WrittenFile | None,
    given: Mapping[str, Value],
    *,
    at_least: int = 0,
    settle: Callable[[Entry], None] = lambda _: None,
) -> list[Entry]:
    """The entries of a section: those of the file, and where there are fewer than ``at_least``, as many.

    ``given`` has a value for each key that has a flag; what was said there counts for every entry. ``settle`` may
    change what nobody said, before entries are compared. Raises UsageError where that names what only one of several
    can have, ConfigurationError where two have it.
    """
    tables: list[Written | None] = list(file.tables[section.name]) if file is not None else []
    tables += [None] * (at_least - len(tables))
    if len(tables) > 1:
        assert file is not None
        for key in section.keys:
            value = given.get(key.name)
            if key.alone and value is not None and value.origin != DEFAULT:
                raise UsageError(
                    f"{value.origin} is for one {section.name}, and {file.origin} has {len(tables)}",
                    hint=f"say {key.name} in the file's [[{section.name}]] tables",
                )
    entries = [_entry(section, file, table, given) for table in tables]
    for entry in entries:
        settle(entry)
    _check_alone(entries)
    return entries


def _check_alone(entries: Sequence[Entry]) -> None:
    """Raises ConfigurationError for two that have what only one can have."""
    for at, entry in enumerate(entries):
        for key in entry.section.keys:
            value = entry[key.name]
            if not key.alone or value is ABSENT:
                continue
            other = next((each for each in entries[:at] if each[key.name] == value), None)
            if other is not None:
                said = entry.values[key.name].said
                raise ConfigurationError(
                    f"{entry.where}: {key.name} is {said!r}, which another [[{entry.section.name}]] has already",
                    hint=f"give each {key.name} of its own; the other one stands at {other.where}",
                )


def _entry(
    section: Section, file: WrittenFile | None, table: Written | None, given: Mapping[str, Value]
) -> Entry:
    where = ""
    if table is not None:
        assert file is not None
        where = f"{_place(file, table.line)}: {table.path}"
    entry = Entry(section, where)
    for key in section.keys:
        flag = given.get(key.name, Value(ABSENT, ABSENT))
        if table is not None and file is not None and key.name in table.values and flag.origin == DEFAULT:
            value = Value(table.values[key.name], table.said[key.name], _place(file, table.lines[key.name]))
        else:
            value = flag
        entry.values[key.name] = value
    return entry


def _place(file: WrittenFile, line: int | None) -> str:
    return file.origin if line is None else f"{file.origin}:{line}"


def shown(entries: Iterable[Entry], *, origins: bool) -> str:
    """What nobody said and has no default is left out, as it would be in a file."""
    parts = []
    for entry in entries:
        lines = [entry.section.header]
        for name, value in entry.values.items():
            if value.said is not ABSENT and value.said != []:
                line = f"{name} = {_toml(value.said)}"
                lines.append(f"{line}  # {printable(value.origin, LINE)}" if origins else line)
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, str):
        # A JSON text is one of TOML, but for what neither shows to anybody. A file's name that is not UTF-8 can stand
        # in neither, and is shown so that no file takes it for another.
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(value)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else _toml(name)
