"""How a simulator is started: what users give as ``launch``, checked."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
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
KEYS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "command": ("a command, as a list or a text, a table or True", lambda _: True),
    "cwd": ("a directory", lambda given: isinstance(given, str | os.PathLike)),
    "env": (
        "a table of texts, such as {'DISPLAY': ':0'}",
        lambda given: (
            isinstance(given, Mapping) and all(isinstance(x, str) for pair in given.items() for x in pair)
        ),
    ),
    "log": ("a file", lambda given: isinstance(given, str | os.PathLike) and bool(os.fspath(given))),
    "ready": (
        "a positive number of seconds",
        lambda given: (
            isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < float("inf")
        ),
    ),
}
"""What a table holds: what each key is, and whether a value is that."""
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
    given: object, *, scenario: str | None = None, pin: Any = "auto", batch: object = True
) -> LaunchSpec:
    """What ``launch=`` means: a list, a text as a shell has it, a table, or True for the world of ``scenario``.

    Raises UsageError for what cannot be started, with what was expected and what came.
    """
    table: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"command": given}
    if "command" not in table:
        raise UsageError("launch has no command", hint=EXAMPLE)
    for key, value in table.items():
        if key not in KEYS:
            raise UsageError(
                f"launch has the unknown key {key!r}",
                hint=nearest(str(key), KEYS) or f"its keys are {', '.join(KEYS)}",
            )
        what, fits = KEYS[key]
        if value is not None and not fits(value):
            raise UsageError(f"launch's {key} is {what}, got {value!r}")
    if pin is not False and pin is not None and pin != "auto" and (type(pin) is not int or pin < 0):
        raise UsageError(
            f"pin is 'auto', the number of a core, or False, got {pin!r}", hint="see `lscpu` for the cores"
        )
    if not isinstance(batch, bool):
        raise UsageError(f"batch is True or False, got {batch!r}")
    cwd = Path(table.get("cwd") or ".").expanduser().absolute()
    if not cwd.is_dir():
        raise UsageError(f"launch's cwd {cwd} is no directory", hint="make it, or name another one")
    env, log, ready = table.get("env"), table.get("log"), table.get("ready")
    command = _command(table["command"], scenario)
    if not any(PORT in word for word in command):
        raise UsageError(
            f"launch says nowhere which port the simulator listens at: {shlex.join(command)}",
            hint=f"write {PORT} where its port belongs, {EXAMPLE}",
        )
    return LaunchSpec(
        command=(_program(command[0], cwd, env or {}), *command[1:]),
        cwd=cwd,
        env=dict(env or {}),
        log=None if log is None else cwd / Path(log).expanduser(),
        ready=READY if ready is None else float(ready),
        pin=None if pin is False else pin,
        batch=batch,
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
        raise UsageError(f"launch is {KEYS['command'][0]}, got {given!r}", hint=EXAMPLE)
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
