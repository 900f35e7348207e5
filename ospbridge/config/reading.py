"""From a file to what stands in it. Every mistake is told, all at once, with its line and key path."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ospbridge.config.keys import Kind
from ospbridge.errors import ConfigurationError, ConfigurationInvalid
from ospbridge.text import pluralize
from ospbridge.toml.lines import Lines
from ospbridge.toml.nearest import nearest
from ospbridge.toml.parsing import LARGEST, NoToml, decoded, parsed
from ospbridge.toml.tables import Mistakes, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ospbridge.config.keys import Section

__all__ = ["Written", "WrittenFile", "load", "read"]

NAME = "name"
"""The key that names a table, for the keys of other sections."""


@dataclass(frozen=True, slots=True)
class Written:
    """One table of a file. ``said`` is as it stands there, ``values`` as the program takes it."""

    path: str
    """Such as ``simulator[0]``, or ``daemon`` where there is one only."""
    line: int | None
    said: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The tables of each section, in their order."""

    origin: str
    tables: dict[str, list[Written]]


def load(path: Path, sections: Sequence[Section]) -> WrittenFile:
    """What the file says. Raises ConfigurationError; ConfigurationInvalid for its mistakes."""
    try:
        data, piped = _content(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", hint="name a TOML file with --config FILE"
        ) from None
    if piped and not data:
        raise ConfigurationError(
            f"{path} is a pipe that nobody writes to", hint="name a TOML file with --config FILE"
        )
    if len(data) > LARGEST:
        raise ConfigurationError(
            f"{path} is no configuration: it has more than {LARGEST:,} bytes", hint="name a TOML file"
        )
    try:
        return read(decoded(data), sections, origin=str(path), directory=path.absolute().parent)
    except NoToml as error:
        raise _invalid(str(path), [str(error)]) from None


def _content(path: Path) -> tuple[bytes, bool]:
    """Of a file, which may be a device that never ends, or a pipe; whether it is one. Raises OSError."""

    def at_once(name: str, flags: int) -> int:
        # Where nobody writes to a pipe it opens all the same then, and is empty: a daemon that looks must not hang.
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=at_once) as file:
        os.set_blocking(file.fileno(), True)
        return file.read(LARGEST + 1), stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)


def read(text: str, sections: Sequence[Section], *, origin: str, directory: Path) -> WrittenFile:
    """What ``text`` says; paths in it count from ``directory``. Raises ConfigurationInvalid."""
    try:
        data = parsed(text)
    except NoToml as error:
        raise _invalid(origin, [str(error)]) from None
    mistakes = Mistakes()
    whole = Table(data, "", [section.name for section in sections], mistakes)
    lines = Lines(text)
    tables = {
        section.name: [
            _written(
                Table(
                    each,
                    section.name if section.single else f"{section.name}[{at}]",
                    [key.name for key in section.keys],
                    mistakes,
                ),
                section,
                directory,
                lines,
            )
            for at, each in enumerate(_tables(whole, section))
        ]
        for section in sections
    }
    _check_names(tables, mistakes)
    if mistakes.found:
        raise _invalid(origin, lines.placed(mistakes.found))
    return WrittenFile(origin, tables)


def _tables(whole: Table, section: Section) -> Sequence[Any]:
    name = section.name
    if section.single:
        found = [whole.data[name]] if name in whole.data else []
        if found and isinstance(found[0], list):
            whole.mistakes.note(
                f"{name}[0]", "there is only one such table", f"begin it with {section.header}"
            )
            return []
        return found
    found = whole.data.get(name, [])
    if not isinstance(found, list):
        whole.wrong(name, "an array of tables", found, f"begin it with {section.header}")
        return []
    return found


def _written(table: Table, section: Section, directory: Path, lines: Lines) -> Written:
    written = Written(table.where, lines.of(f"{table.where}: "))
    for key in section.keys:
        if key.name not in table:
            continue
        before = len(table.mistakes.found)
        said = key.said(table)
        if len(table.mistakes.found) > before:
            continue
        if key.kind is Kind.FILE:
            said = str(directory / said)
        elif key.placed is not None:
            said = key.placed(said, directory)
        try:
            value = key.convert(said)
        except ValueError as error:
            table.mistakes.note(table.at(key.name), str(error))
            continue
        written.said[key.name] = said
        written.values[key.name] = value
        written.lines[key.name] = lines.of(f"{table.at(key.name)}: ")
    return written


def _check_names(tables: dict[str, list[Written]], mistakes: Mistakes) -> None:
    """Each of several tables has a name where its section has names, and names refer to some."""
    named = {table.path: table.said.get(NAME) for table in tables.get("simulator", ())}
    if len(named) > 1:
        for path, name in named.items():
            if name is None:
                mistakes.note(path, "has no name, and there are several", 'for instance name = "left"')
    known = [name for name in named.values() if name is not None]
    for table in tables.get("rllink", ()):
        for at, name in enumerate(table.said.get("simulators", ())):
            if name not in known:
                mistakes.note(f"{table.path}.simulators[{at}]", f"no simulator {name!r}", _known(name, known))


def _known(name: str, known: Sequence[str]) -> str:
    return nearest(name, known) or (f"there are {', '.join(known)}" if known else "none has a name")


def _invalid(origin: str, mistakes: Iterable[str]) -> ConfigurationInvalid:
    found = list(mistakes)
    count = pluralize(len(found), "mistake")
    return ConfigurationInvalid(f"{origin} has {count}", mistakes=found, rows=found)
