"""How a simulator is started: what users give as ``launch``, checked."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from ospbridge.errors import UsageError
from ospbridge.toml.nearest import nearest

__all__ = ["LaunchSpec", "launch_spec"]

PORT: Final = "{port}"
OWN_WORLD: Final = ("-m", "ospbridge", "sim")
READY: Final = 60.0
"""Seconds that a simulator may take to answer; one with a large scene takes a while."""
KEYS: Final = ("command", "cwd", "env", "log", "ready")
EXAMPLE: Final = 'for instance launch=["NerdSim", "-env", "world.xml", "-p", "{port}"]'


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A command, and what it runs under. Made by ``launch_spec``, which checks all of it."""

    command: tuple[str, ...]
    """Program and arguments, in one of which ``{port}`` stands for the UDP port to listen at."""
    cwd: Path
    """Absolute."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of this process."""
    log: Path | None = None
    """Where its output goes, ``{port}`` standing for the port; None: a file of its own in the state directory."""
    ready: float = READY
    """Seconds within which it has to answer."""
    pin: Literal["auto"] | int | None = "auto"
    """The core to run on; ``"auto"``: one of its own where there are enough; None: wherever the system likes."""
    batch: bool = True
    """Whether it runs under SCHED_BATCH."""

    def at(self, port: int) -> tuple[str, ...]:
        """The command for a port."""
        return tuple(word.replace(PORT, str(port)) for word in self.command)

    @property
    def name(self) -> str:
        """The program's, for people; of a world of ours its scenario's."""
        if self.command[1:4] == OWN_WORLD:
            return Path(self.command[4]).stem
        return Path(self.command[0]).name


def launch_spec(
    given: object, *, scenario: str | None = None, pin: object = "auto", batch: object = True
) -> LaunchSpec:
    """What ``launch=`` means: a list, a text as a shell has it, a table, or True for the world of ``scenario``.

    Raises UsageError for what cannot be started, with what was expected and what came.
    """
    table = dict(given) if isinstance(given, Mapping) else {"command": given}
    for key in table:
        if key not in KEYS:
            raise UsageError(
                f"launch has the unknown key {key!r}",
                hint=nearest(str(key), KEYS) or f"its keys are {', '.join(KEYS)}",
            )
    if "command" not in table:
        raise UsageError("launch has no command", hint=EXAMPLE)
    cwd = _directory(table.get("cwd"))
    env = _variables(table.get("env"))
    command = _command(table["command"], scenario)
    if not any(PORT in word for word in command):
        raise UsageError(
            f"launch says nowhere which port the simulator listens at: {shlex.join(command)}",
            hint=f"write {PORT} where its port belongs, {EXAMPLE}",
        )
    return LaunchSpec(
        command=(_program(command[0], cwd, env), *command[1:]),
        cwd=cwd,
        env=env,
        log=_log(table.get("log"), cwd),
        ready=_ready(table.get("ready", READY)),
        pin=_pin(pin),
        batch=_flag(batch),
    )


def _command(given: object, scenario: str | None) -> tuple[str, ...]:
    if given is True:
        if scenario is None:
            raise UsageError(
                "launch=True starts the world of a scenario, and none was given",
                hint=f"name a scenario, or give a command, {EXAMPLE}",
            )
        # A path means what it meant when the environment was made.
        named = os.path.abspath(scenario) if Path(scenario).suffix == ".toml" else scenario  # noqa: PTH100
        return (sys.executable, *OWN_WORLD, named, "--port", PORT, "--quiet")
    if isinstance(given, str):
        try:
            words = tuple(shlex.split(given))
        except ValueError as error:
            raise UsageError(
                f"launch={given!r} cannot be split as a shell would: {error}", hint=EXAMPLE
            ) from None
    elif isinstance(given, Sequence) and all(isinstance(word, str | os.PathLike) for word in given):
        words = tuple(map(os.fspath, given))
    else:
        raise UsageError(
            f"launch is a command, as a list or a text, a table or True, got {given!r}", hint=EXAMPLE
        )
    if not words or not words[0]:
        raise UsageError("launch names no program", hint=EXAMPLE)
    return words


def _program(named: str, cwd: Path, env: Mapping[str, str]) -> str:
    if os.sep in named:
        path = cwd / named
        if not path.exists():
            raise UsageError(
                f"there is no program {named} to launch (looked at {path})", hint="see cwd, and the path"
            )
        if path.is_dir() or not os.access(path, os.X_OK):
            raise UsageError(
                f"{path} cannot be launched: it is not an executable file", hint=f"chmod +x {path}"
            )
        return str(path)
    found = shutil.which(named, path=env.get("PATH"))
    if found is None:
        raise UsageError(
            f"there is no program {named!r} to launch on PATH",
            hint="install it, or give its path, such as ./" + named,
        )
    return os.path.abspath(found)  # noqa: PTH100  # a relative entry of PATH means the directory of now


def _directory(given: object) -> Path:
    if given is None:
        return Path.cwd()
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"launch's cwd is a directory, got {given!r}")
    directory = Path(given).expanduser().absolute()
    if not directory.is_dir():
        raise UsageError(f"launch's cwd {directory} is no directory", hint="make it, or name another one")
    return directory


def _variables(given: object) -> dict[str, str]:
    if given is None:
        return {}
    fits = isinstance(given, Mapping) and all(isinstance(x, str) for pair in given.items() for x in pair)
    if not fits:
        raise UsageError(
            f"launch's env is a table of texts, got {given!r}", hint='for instance env={"DISPLAY": ":0"}'
        )
    assert isinstance(given, Mapping)
    return dict(given)


def _log(given: object, cwd: Path) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise UsageError(f"launch's log is a file, got {given!r}")
    return cwd / Path(given).expanduser()


def _ready(given: object) -> float:
    seconds = given if isinstance(given, int | float) and not isinstance(given, bool) else float("nan")
    if not 0 < seconds < float("inf"):
        raise UsageError(f"launch's ready is a positive number of seconds, got {given!r}")
    return float(seconds)


def _pin(given: object) -> Any:
    if given is False or given is None:
        return None
    if given == "auto" or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise UsageError(
        f"pin is 'auto', the number of a core, or False, got {given!r}", hint="see `lscpu` for the cores"
    )


def _flag(given: object) -> bool:
    if isinstance(given, bool):
        return given
    raise UsageError(f"batch is True or False, got {given!r}")
