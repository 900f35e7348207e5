"""What it takes to make a service of this program, and to take it away again: files, and commands of systemd's.

A plan is made first, from what is there, so that it can be shown instead of carried out.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError, ServiceManagerError, UsageError
from ospbridge.service.placing import PlacedFile, Standing
from ospbridge.service.scope import GROUP, SERVICE
from ospbridge.service.systemctl import run, run_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ospbridge.service.scope import Scope

__all__ = [
    "Installation",
    "Step",
    "needed_places",
    "quoted",
    "shipped_text",
    "this_program",
    "unit_of",
    "unquoted",
]


def this_program() -> tuple[str, ...]:
    """The words that start `ospbridge` from the environment that this process runs in."""
    beside = Path(sys.executable).parent / "ospbridge"
    if beside.is_file() and os.access(beside, os.X_OK):
        return (str(beside),)
    return (sys.executable, "-m", "ospbridge")


def needed_places() -> list[Path]:
    """What the service must be able to read to run this program."""
    interpreter = Path(sys.executable)
    return [
        interpreter,
        interpreter.resolve(),
        Path(sys.prefix),
        Path(sys.base_prefix).resolve(),
        Path(__file__).resolve().parents[1],
    ]


def quoted(word: str) -> str:
    """A word of a command line as a unit has it. Raises UsageError for one that no unit can have."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{word!r} is not UTF-8, as everything in a unit must be", hint="give it another name"
        ) from None
    if any(character < " " or character == "\x7f" for character in word):
        # Of a program's path systemd takes none, and what follows a line break would be a setting of its own.
        raise UsageError(
            f"{word!r} has a line break or another control character, which no path in a unit may have",
            hint="give it another name",
        )
    said = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = (
        said == word and word and not any(character.isspace() or character in "'\";" for character in word)
    )
    return said if plain else f'"{said}"'


def unquoted(said: str) -> str:
    """The word that ``quoted`` made this of."""
    inner = said[1:-1] if len(said) > 1 and said[0] == said[-1] == '"' else said
    return re.sub(r'\\([\\"])|%(%)|\$(\$)', lambda found: found[found.lastindex or 0], inner)


_PACKAGE: Final = Path(__file__).parents[1]


def shipped_text(name: str) -> str:
    """What the file of that name says, for instance ``user/ospbridge.service``."""
    installed = _PACKAGE / "systemd"
    folder = installed if installed.is_dir() else _PACKAGE.parent / "systemd"
    return (folder / name).read_text("utf-8")


_SHIPPED_START: Final = re.compile(r"^ExecStart=ospbridge connect --config .*$", re.MULTILINE)
_START: Final = re.compile(r"^ExecStart=.* connect --config (.+)$", re.MULTILINE)
_INSTANCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LONGEST_NAME: Final = 40
DIRECTORIES: Final = 0o755
"""Of directories of the system that are made: the daemon is not root, whatever root's umask is."""


def unit_of(instance: str | None) -> str:
    """The unit's name. Raises UsageError for an instance that cannot be one."""
    if instance is None:
        return f"{SERVICE}.service"
    if not _INSTANCE.fullmatch(instance) or len(instance) > _LONGEST_NAME:
        raise UsageError(
            f"{instance!r} is no name of an instance",
            hint=f"letters, digits, '_', '.' and '-', at most {_LONGEST_NAME} of them, and a letter or digit first",
        )
    return f"{SERVICE}@{instance}.service"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: a file to write or to remove, or a command to run. ``lenient``: it may fail."""

    file: PlacedFile | None = None
    removed: bool = False
    command: tuple[str, ...] = ()
    lenient: bool = False

    def __str__(self) -> str:
        if self.file is None:
            return f"run     {' '.join(self.command)}"
        return f"{'remove' if self.removed else 'write':8}{self.file.path}"

    def do(self) -> None:
        """Raises ConfigurationError, ServiceManagerError."""
        if self.file is not None:
            if self.removed:
                self.file.remove()
            else:
                self.file.write()
            return
        try:
            run_command(self.command)
        except ServiceManagerError:
            if not self.lenient:
                raise


@dataclass(frozen=True, slots=True)
class Installation:
    """A service in a scope; ``config`` is its configuration, where it is not the usual one."""

    scope: Scope
    instance: str | None = None
    config: Path | None = None
    program: Sequence[str] = field(default_factory=this_program)

    @property
    def unit(self) -> str:
        return unit_of(self.instance)

    @property
    def configuration(self) -> Path:
        """The daemon's configuration."""
        return self.config or self.scope.configuration / f"{self.instance or SERVICE}.toml"

    def check_visible(self) -> None:
        """Raises UsageError where the service could not see its program or its configuration."""
        needed = [*needed_places(), self.configuration.absolute()]
        for path in needed:
            hidden = next((each for each in self.scope.hidden if path.is_relative_to(each)), None)
            if hidden is not None:
                raise UsageError(
                    f"{path} lies in {hidden}, which a service of the system cannot look into",
                    hint="install ospbridge where everybody can read it, for instance with "
                    "`/usr/bin/python3 -m venv /opt/ospbridge`, and its configuration in /etc/ospbridge; or make a "
                    "service of your own with --user",
                )

    def check_alone(self) -> None:
        """Raises UsageError where one daemon for all runs and another is wanted for some, or the other way round."""
        if self.scope.user:
            return
        other = f"{SERVICE}@*.service" if self.instance is None else unit_of(None)
        running = run(
            self.scope, "list-units", "--plain", "--no-legend", "--state=active,activating,reloading", other
        )
        at_boot = sorted(each.name for each in self.scope.units.glob(f"*.target.wants/{other}"))
        if running.strip():
            unit, how = running.split()[0], "runs"
        elif at_boot:
            unit, how = at_boot[0], "is started at boot"
        else:
            return
        instance = unit.removeprefix(SERVICE).removesuffix(".service").removeprefix("@")
        words = "uninstall" + f" --instance {instance}" * bool(instance)
        raise UsageError(
            f"{unit} {how}, and {self.unit} would end it",
            hint=f"let one daemon join all simulators, or each its own; `ospbridge service {words}` takes that one "
            f"away, and `systemctl disable --now {unit}` leaves its files",
        )

    def check_same_configuration(self) -> None:
        """Raises UsageError where it is there with another configuration, and none was given now."""
        if self.config is not None:
            return
        placed = self._drop_in if self.instance is not None else self.scope.units / self.unit
        try:
            starts = _START.findall(placed.read_text("utf-8", "surrogateescape"))
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigurationError(
                f"{placed} cannot be read: {error.strerror}", hint="look at what stands there"
            ) from None
        before = unquoted(starts[-1]) if starts else str(self.configuration)
        if before != str(self.configuration):
            raise UsageError(
                f"{self.unit} reads {before} so far, and would read {self.configuration}",
                hint=f"give it again with --config {shlex.quote(before)}, or --force",
            )

    @property
    def _drop_in(self) -> Path:
        """Where an instance's own configuration is named."""
        return self.scope.units / f"{self.unit}.d" / "configuration.conf"

    def files(self) -> list[PlacedFile]:
        """All that belong to it. Raises ConfigurationError where the package lacks one."""
        prefix = "user/" if self.scope.user else ""
        name = f"{SERVICE}@.service" if self.instance is not None else f"{SERVICE}.service"
        # Of a template only what holds for all of its instances.
        config = None if self.instance is not None else self.config
        directories = None if self.scope.user else DIRECTORIES
        found = [
            PlacedFile(
                self.scope.units / name, self._unit_text(prefix + name, config), directories=directories
            )
        ]
        if self.instance is not None and self.config is not None:
            text = f"[Service]\nExecStart=\n{self._start(quoted(str(self.config.absolute())))}\n"
            found.append(PlacedFile(self._drop_in, text, directories=directories))
        if not self.scope.user:
            text = _shipped("sysusers.d/ospbridge.conf")
            found.append(PlacedFile(self.scope.sysusers, text, directories=directories))
        if self.config is None:
            group = None if self.scope.user else GROUP
            mode = 0o600 if self.scope.user else 0o640
            found.append(
                PlacedFile(
                    self.configuration,
                    _shipped("ospbridge.toml"),
                    keep=True,
                    mode=mode,
                    group=group,
                    directories=directories,
                )
            )
        return found

    def _unit_text(self, shipped: str, config: Path | None) -> str:
        if config is not None:
            said = quoted(str(config.absolute()))
        elif self.instance is not None:
            said = f"{quoted(str(self.scope.configuration))}/%i.toml"
        else:
            said = quoted(str(self.configuration))
        text, count = _SHIPPED_START.subn(lambda _: self._start(said), _shipped(shipped))
        assert count == 1, shipped
        return text

    def _start(self, config: str) -> str:
        return f"ExecStart={' '.join(map(quoted, self.program))} connect --config {config}"

    def install_steps(self, *, now: bool, force: bool) -> list[Step]:
        """Raises UsageError for files that somebody has changed, or another configuration, unless by ``force``."""
        standings = [(file, file.standing()) for file in self.files()]
        if not force:
            _refuse_changed([file for file, standing in standings if standing is Standing.CHANGED], "replace")
            self.check_same_configuration()
        writing = [Step(file) for file, standing in standings if standing is not Standing.SAME]
        systemctl = self.scope.systemctl
        steps = [step for step in writing if step.file is not None and not step.file.keep]
        if force and self.instance is not None and self.config is None and self._drop_in.exists():
            steps.append(Step(PlacedFile(self._drop_in, ""), removed=True))
        if not self.scope.user:
            steps.append(Step(command=("systemd-sysusers", str(self.scope.sysusers))))
        # The group is there by now, which may read it.
        steps += [step for step in writing if step not in steps]
        steps += [
            Step(command=(*systemctl, "daemon-reload")),
            Step(command=(*systemctl, "enable", self.unit)),
        ]
        if now:
            # Where nothing is new, a daemon that runs is let alone.
            verb = "restart" if any(step.file is not None for step in steps) else "start"
            steps.append(Step(command=(*systemctl, verb, self.unit)))
        return steps

    def uninstall_steps(self, *, force: bool) -> list[Step]:
        """Configuration, state and group stay. Raises UsageError as ``install_steps`` does."""
        files = [file for file in self.files() if not file.keep and file.path != self.scope.sysusers]
        if self.instance is not None:
            drop_in = PlacedFile(self._drop_in, "")
            files = [file for file in files if file.path != drop_in.path] + [drop_in]
            if self._others():
                files = [drop_in]
        standings = [(file, file.standing()) for file in files]
        if not force:
            _refuse_changed([file for file, standing in standings if standing is Standing.CHANGED], "remove")
        steps = []
        systemctl = self.scope.systemctl
        template = self.scope.units / (f"{SERVICE}@.service" if self.instance is not None else self.unit)
        if template.exists():
            steps.append(Step(command=(*systemctl, "disable", "--now", self.unit)))
        steps += [
            Step(file, removed=True) for file, standing in standings if standing is not Standing.MISSING
        ]
        if steps:
            steps.append(Step(command=(*systemctl, "daemon-reload")))
            steps.append(Step(command=(*systemctl, "reset-failed", self.unit), lenient=True))
        return steps

    def _others(self) -> bool:
        """Whether other instances are started at boot, by the same template."""
        enabled = self.scope.units.glob(f"*.target.wants/{SERVICE}@*.service")
        return any(each.name != self.unit for each in enabled)

    def carry_out(self, steps: Sequence[Step]) -> None:
        """Raises ConfigurationError, ServiceManagerError."""
        for step in steps:
            try:
                step.do()
            except ServiceManagerError as error:
                if step.command[-2:-1] not in (("start",), ("restart",)):
                    raise
                raise ServiceManagerError(
                    f"{self.unit} does not start: {error.message}",
                    hint=f"`{self.scope.journalctl} --unit {self.unit}` says why; `ospbridge doctor --config "
                    f"{self.configuration}` may know more",
                ) from None

    def running(self) -> bool:
        """Whether it runs by now."""
        return run(self.scope, "show", self.unit, "--property=ActiveState").strip() == "ActiveState=active"


def _refuse_changed(files: Sequence[PlacedFile], verb: str) -> None:
    if files:
        raise UsageError(
            f"somebody has changed {', '.join(str(file.path) for file in files)}",
            hint=f"move your changes to a drop-in with `systemctl edit`, or {verb} what stands there with --force",
        )


def _shipped(name: str) -> str:
    try:
        return shipped_text(name)
    except OSError as error:
        raise ConfigurationError(
            f"the installation lacks systemd/{name}: {error.strerror}", hint="install ospbridge again"
        ) from None
