"""What ``ospbridge connect`` is to do: its flags, the environment, a file and the defaults, made into one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ospbridge.cli.joining import settings_from
from ospbridge.cli.keys import DAEMON, RLLINK, SIMULATOR, as_written, option_of, sections
from ospbridge.cli.upstream import OF_MODE, upstream_from
from ospbridge.cli.variables import variable_read

if TYPE_CHECKING:
    import os

    from ospbridge.config.effective import Entry, Value
    from ospbridge.config.keys import Section
    from ospbridge.daemon.settings import Feeding, Settings

__all__ = ["Configuration", "configuration"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The daemon itself, the simulators, and the RLlink servers, as entries."""

    daemon: Entry
    simulators: list[Entry]
    servers: list[Entry]

    @property
    def entries(self) -> list[Entry]:
        """All, in the order in which a file has them."""
        return [self.daemon, *self.simulators, *self.servers]

    def check(self) -> None:
        """What would keep the daemon from starting. Raises ConfigurationError, UsageError."""
        self.check_daemon()
        with self.daemon.blamed():
            if self.daemon["dashboard"] is not None:
                from ospbridge.dashboard.address import place, read_token

                token = read_token(self.daemon["dashboard_token"])
                place(self.daemon["dashboard"], guarded=bool(token))
        for entry, settings in zip(self.simulators, self.settings(), strict=True):
            listen = settings.listen
            if listen is not None and _all_known(listen.files.cert, listen.files.key, listen.files.ca):
                with entry.blamed():
                    listen.files.context(server=True)
        for entry, feeding in zip(self.servers, self.feedings(), strict=True):
            tls = feeding.upstream.address.tls
            if tls is not None and _all_known(tls.cert, tls.key, tls.ca):
                with entry.blamed():
                    tls.context()

    def check_daemon(self) -> None:
        """What is said of the daemon itself, and could work nowhere. Raises ConfigurationError, UsageError."""
        with self.daemon.blamed():
            if self.daemon["metrics"] is not None:
                from ospbridge.daemon.metrics_server import need_the_extra

                need_the_extra()
            self.check_dashboard()
            for name in self.daemon["dashboard_host"] or ():
                from ospbridge.dashboard.address import called

                called(name)

    def check_dashboard(self) -> None:
        """Raises UsageError for what is said of a dashboard where none was asked for."""
        from ospbridge.errors import UsageError

        for name in ("dashboard_token", "dashboard_host"):
            if self.daemon["dashboard"] is None and self.daemon.said(name):
                raise UsageError(
                    f"--{name.replace('_', '-')} was given, but no dashboard",
                    hint="add --dashboard [HOST:]PORT",
                )

    def settings(self) -> list[Settings]:
        """Raises ConfigurationError, UsageError for what cannot work."""
        made = []
        for entry in self.simulators:
            with entry.blamed():
                made.append(settings_from({name: value.value for name, value in entry.values.items()}))
        return made

    def feedings(self) -> list[Feeding]:
        """Raises ConfigurationError, UsageError for what cannot work."""
        from ospbridge.daemon.settings import Feeding

        made = []
        for entry in self.servers:
            with entry.blamed():
                options = {option_of(RLLINK, name): value.value for name, value in entry.values.items()}
                said = {option_of(RLLINK, name) for name in entry.values if entry.said(name)}
                server = upstream_from(options, given=said.__contains__)
                assert server is not None
                made.append(Feeding(server, tuple(entry["simulators"] or ())))
        return made


def _all_known(*files: str | os.PathLike[str] | None) -> bool:
    """Whether the daemon will find them as they are here: systemd provides credentials while the service runs."""
    paths = [Path(file) for file in files if file is not None]
    return not any(path.is_relative_to("/run") and "credentials" in path.parts for path in paths)


def configuration(context: click.Context, file: Path | None) -> Configuration:
    """What counts for the command of ``context``. Raises ConfigurationError, UsageError."""
    from ospbridge.config.effective import Value, effective
    from ospbridge.config.reading import load
    from ospbridge.errors import ConfigurationError
    from ospbridge.observe.runtime import default_hub

    tables = sections(context.command)
    written = load(file, list(tables.values())) if file is not None else None
    flags = {name: _given(context, section) for name, section in tables.items()}
    simulators = effective(tables[SIMULATOR], written, flags[SIMULATOR], at_least=1, settle=_settle_address)
    for entry in simulators:
        if entry["name"] is None:
            entry.values["name"] = Value("", None)
        if entry["hub"] is None:
            hub = f"unix:{default_hub(entry['name'])}"
            entry.values["hub"] = Value(hub, hub)
    server = flags[RLLINK]["address"].value
    if server is None and not (written and written.tables[RLLINK]):
        # Says what is wrong with flags for a server that nobody named.
        upstream_from(context.params)
    servers = effective(tables[RLLINK], written, flags[RLLINK], at_least=0 if server is None else 1)
    for entry in servers:
        if entry["address"] is None:
            raise ConfigurationError(
                f"{entry.where}: has no address", hint='for instance address = "127.0.0.1:5555"'
            )
        _silence_other_modes(entry)
    (daemon,) = effective(tables[DAEMON], written, flags[DAEMON], at_least=1)
    return Configuration(daemon, simulators, servers)


def _settle_address(simulator: Entry) -> None:
    """The default is that of simulators which somebody else starts: one that is launched gets a free port."""
    from ospbridge.config.effective import Value
    from ospbridge.config.keys import ABSENT

    if simulator["launch"] is not ABSENT and not simulator.said("address"):
        simulator.values["address"] = Value(ABSENT, ABSENT)


def _silence_other_modes(entry: Entry) -> None:
    """Defaults of keys that mean nothing in its mode are not worth a word: a file may not say them."""
    from ospbridge.config.effective import Value

    for mode, names in OF_MODE.items():
        for name in names if mode != entry["mode"] else ():
            if not entry.said(name):
                entry.values[name] = Value(entry[name], None)


def _given(context: click.Context, section: Section) -> dict[str, Value]:
    """What flags and environment variables say of a section's keys, or the default."""
    from ospbridge.config.effective import DEFAULT, Value

    options = {option.name: option for option in context.command.params}
    found = {}
    for key in section.keys:
        name = option_of(section.name, key.name)
        option = options.get(name)
        if option is None:
            continue
        value: Any = context.params[name]
        origin = DEFAULT
        source = context.get_parameter_source(name)
        if source is ParameterSource.COMMANDLINE:
            origin = option.opts[0]
        elif source is ParameterSource.ENVIRONMENT:
            origin = variable_read(option, context) or DEFAULT
        raw = getattr(option, "default", None)
        said = raw if origin == DEFAULT and isinstance(raw, str) else as_written(key, value)
        found[key.name] = Value(value, said, origin)
    return found
