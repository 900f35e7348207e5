"""``--launch`` of ``ospbridge connect``, and ``launch`` of configuration files: how the daemon starts a simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ospbridge.interface import Endpoint
    from ospbridge.launch.command import LaunchSpec

    LaunchType = click.ParamType[Any]
else:
    LaunchType = click.ParamType  # became generic after the oldest click that serves

__all__ = ["LAUNCH_KEYS", "Launch", "launch_from", "placed"]

LAUNCH_KEYS: Final = ("command", "cwd", "env", "log", "ready", "pin", "batch")
OWN_WORLD: Final = "scenario"
"""Instead of a command: the world of the scenario. No command is only this, since each names its port."""
LOCAL: Final = "127.0.0.1"


class Launch(LaunchType):
    """A command, or a table with the rest. It is looked at with the scenario, in ``launch_from``."""

    name = "COMMAND"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As it is."""
        return value


def placed(said: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The table from a directory that relative paths count from, which also is where the simulator runs."""
    table = dict(said)
    for name in ("cwd", "log"):
        given = table.get(name, "" if name == "cwd" else None)
        if isinstance(given, str):
            table[name] = str(directory / Path(given).expanduser())
    return table


def launch_from(
    said: object, scenario: str | None, address: Endpoint | None
) -> tuple[LaunchSpec | None, Endpoint]:
    """What is launched, and where; port 0: a free one. Raises UsageError, ConfigurationError for what cannot work."""
    from ospbridge.errors import UsageError
    from ospbridge.interface import Endpoint
    from ospbridge.launch.command import launch_spec

    if said is None:
        assert address is not None
        return None, address
    table = dict(said) if isinstance(said, dict) else {"command": said}
    if table.get("command") == OWN_WORLD:
        if scenario is None:
            raise UsageError(
                f"launch is {OWN_WORLD!r}, and no scenario was given",
                hint='name a scenario, or give a command, for instance "NerdSim -env world.xml -p {port}"',
            )
        table["command"] = True
    pin, batch = table.pop("pin", "auto"), table.pop("batch", True)
    spec = launch_spec(table, scenario=scenario, pin=pin, batch=batch)
    if address is None:
        return spec, Endpoint(LOCAL, 0)
    if address.host not in (LOCAL, "localhost"):
        raise UsageError(
            f"a simulator cannot be launched at {address}: it runs on this host",
            hint=f"write {LOCAL}:{address.port}, or leave out the address to have a free port chosen",
        )
    return spec, Endpoint(LOCAL, address.port)
