"""The keys of configuration files, made from the options of ``ospbridge connect``: whoever adds an option adds a key.

A key has its option's name, without the prefix where it has one, its range and its default. Two keys have no option,
since the command line names one simulator only.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.launching import LAUNCH_KEYS, Launch, placed
from ospbridge.config.keys import Key, Kind, Section

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DAEMON", "RLLINK", "SIMULATOR", "as_written", "option_of", "sections"]

DAEMON: Final = "daemon"
SIMULATOR: Final = "simulator"
RLLINK: Final = "rllink"
ADDRESS: Final = "address"
_NO_KEYS: Final = ("config", "origin")
"""Options that are about the command itself."""
_OF_DAEMON: Final = ("log_level", "log_json", "metrics", "dashboard", "dashboard_token", "dashboard_host")
"""Options that are about the daemon, not about a simulator or an upstream."""
_WITHOUT_PREFIX: Final = ("insecure",)
"""Options of upstreams that stand without the prefix."""
_ALONE: Final = ("simulator", "hub", "listen", "trace", "rllink", "rllink_spool")
_LONGEST_NAME: Final = 40
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def sections(command: click.Command) -> dict[str, Section]:
    """Of each section's name, what may stand in it, by the options that ``command`` takes."""
    found: dict[str, list[Key]] = {
        DAEMON: [],
        SIMULATOR: [Key(name="name", kind=Kind.TEXT, convert=_name, alone=True)],
        RLLINK: [],
    }
    for option in command.params:
        if not isinstance(option, click.Option) or option.name in _NO_KEYS:
            continue
        section, name = _section_and_key(option.name or "")
        found[section].append(_key(name, option))
        if option.name == RLLINK:
            found[RLLINK].append(Key(name="simulators", kind=Kind.TEXTS))
    return {name: Section(name, tuple(keys), single=name == DAEMON) for name, keys in found.items()}


def _section_and_key(option: str) -> tuple[str, str]:
    if option in (SIMULATOR, RLLINK):
        return option, ADDRESS
    if option in _OF_DAEMON:
        return DAEMON, option
    if option in _WITHOUT_PREFIX:
        return RLLINK, option
    key = option.removeprefix(f"{RLLINK}_")
    return (SIMULATOR, option) if key == option else (RLLINK, key)


def option_of(section: str, key: str) -> str:
    """The name that click has for the option of a key."""
    if key == ADDRESS:
        return section
    return key if section != RLLINK or key in _WITHOUT_PREFIX else f"{RLLINK}_{key}"


def _key(name: str, option: click.Option) -> Key:
    kind = _kind(option)
    bounds: dict[str, Any] = {}
    if isinstance(option.type, click.IntRange | click.FloatRange):
        bounds = {"least": option.type.min, "most": option.type.max, "above": option.type.min_open}
    return Key(
        name=name,
        kind=kind,
        words=tuple(option.type.choices) if isinstance(option.type, click.Choice) else (),
        convert=partial(_convert, option),
        placed=_PLACED.get(option.name or ""),
        alone=option.name in _ALONE,
        inner=LAUNCH_KEYS if isinstance(option.type, Launch) else (),
        **bounds,
    )


def _kind(option: click.Option) -> Kind:
    if option.multiple:
        return Kind.TEXTS
    kinds: tuple[tuple[type[Any], Kind], ...] = (
        (click.Choice, Kind.WORD),
        (click.IntRange, Kind.WHOLE),
        (click.FloatRange, Kind.NUMBER),
        (click.types.BoolParamType, Kind.FLAG),
        (click.Path, Kind.FILE),
        (Launch, Kind.TABLE),
    )
    return next((kind for of, kind in kinds if isinstance(option.type, of)), Kind.TEXT)


def _convert(option: click.Option, said: Any) -> Any:
    if option.name == "scenario":
        _look_for(said)
    try:
        if option.multiple:
            return tuple(option.type.convert(each, option, None) for each in said)
        return option.type.convert(said, option, None)
    except click.BadParameter as error:
        raise ValueError(error.message.rstrip(".")) from None


def as_written(key: Key, value: Any) -> Any:
    """An option's value as it would stand in a file; None where it has none."""
    if value is None:
        return None
    if key.kind is Kind.TEXTS:
        return [str(each) for each in value]
    return str(value) if key.kind in (Kind.TEXT, Kind.FILE, Kind.WORD) else value


def _name(said: str) -> str:
    if not _NAME.fullmatch(said) or len(said) > _LONGEST_NAME:
        raise ValueError(
            f"{said!r} is no name: letters, digits, '_', '.' and '-', at most {_LONGEST_NAME} of them, and a letter or "
            "digit first"
        )
    return said


def _hub(said: str, directory: Path) -> str:
    scheme, colon, path = said.partition(":")
    return f"{scheme}:{directory / path}" if colon and path else said


def _scenario(said: str, directory: Path) -> str:
    # Anything else is the name of a shipped one.
    return str(directory / said) if said.endswith(".toml") or "/" in said else said


def _look_for(scenario: str) -> None:
    """Raises ValueError for one that is not there: it is told together with the file's other mistakes."""
    from ospbridge.errors import ScenarioNotFound
    from ospbridge.task.loading import find

    try:
        find(scenario)
    except ScenarioNotFound as error:
        raise ValueError(f"{error.message} ({error.hint})") from None


_PLACED: Final[Mapping[str, Any]] = {"hub": _hub, "scenario": _scenario, "launch": placed}
