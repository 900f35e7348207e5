"""Which file a scenario is in, and what that holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ospbridge.errors import ScenarioInvalid, ScenarioNotFound
from ospbridge.task.reading import invalid, read
from ospbridge.task.shipped import shipped, shipped_file
from ospbridge.toml.nearest import nearest
from ospbridge.toml.parsing import LARGEST, NoToml, decoded

if TYPE_CHECKING:
    from ospbridge.task.scenario import Scenario

__all__ = ["find", "load"]


def load(scenario: str | os.PathLike[str]) -> Scenario:
    """The scenario of a file, or the shipped one of that name. Raises ScenarioNotFound, ScenarioInvalid."""
    path = find(scenario)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScenarioNotFound(f"{path} cannot be read: {error.strerror}", hint="name a TOML file") from None
    if len(data) > LARGEST:
        raise ScenarioInvalid(f"{path} is no scenario: it has {len(data)} bytes", hint="name a TOML file")
    try:
        text = decoded(data)
    except NoToml as error:
        raise invalid(str(path), [str(error)]) from None
    return read(text, str(path))


def find(scenario: str | os.PathLike[str]) -> Path:
    """The file of a path or of a shipped scenario's name. Raises ScenarioNotFound."""
    scenario = os.fspath(scenario)
    path = Path(scenario)
    try:
        if path.is_file():
            return path
    except OSError as error:
        raise ScenarioNotFound(
            f"there is no file {scenario}: {error.strerror}", hint=f"shipped are {', '.join(shipped())}"
        ) from None
    may_be_shipped = path.suffix != ".toml" and len(path.parts) <= 1
    if may_be_shipped and (file := shipped_file(scenario)) is not None:
        return file
    if scenario and path.exists():
        what = "a directory" if path.is_dir() else "not a regular file"
        raise ScenarioNotFound(f"{scenario} is {what}", hint="name a TOML file")
    if may_be_shipped:
        names = shipped()
        raise ScenarioNotFound(
            f"no scenario is called {scenario!r}",
            hint=nearest(scenario, names) or f"name a TOML file, or one of {', '.join(names)}",
        )
    raise ScenarioNotFound(f"there is no file {scenario}", hint=f"shipped are {', '.join(shipped())}")
