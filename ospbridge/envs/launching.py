"""Simulators that environments launch: what the options mean, and what the system did not allow, told once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.envs.terms import say
from ospbridge.errors import UsageError
from ospbridge.launch.command import LaunchSpec, launch_spec
from ospbridge.launch.simulator import LaunchedSimulator, launch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from ospbridge.envs.options import Options

__all__ = ["launch_of", "launched_for"]

WITHOUT: Final = {
    "batch": "launched simulators do not run under SCHED_BATCH, and real ones may stall: {}",
    "pin": "launched simulators do not run on a core of their own: {}",
}
_told: set[str] = set()


def launch_of(options: Options, addresses: Sequence[str] | None) -> LaunchSpec | None:
    """What is to be launched; None where nothing is. Raises UsageError."""
    given, pin, batch = options["launch"], options["pin"], options["batch"]
    if given is None or given is False:
        if pin != "auto" or batch is not True:
            raise UsageError(
                "pin and batch were given without launch", hint="they say how a launched simulator runs"
            )
        return None
    if addresses:
        raise UsageError(
            f"launch was given, and {addresses[0]} too",
            hint="a launched simulator gets an address of its own; leave out simulator and bridge",
        )
    return launch_spec(given, scenario=options["scenario"], pin=pin, batch=batch)


def launched_for(spec: LaunchSpec, count: int, undo: ExitStack, *, of: int = 1) -> list[LaunchedSimulator]:
    """Simulators that listen, which ``undo`` stops. Raises SimulatorNotStarted.

    ``of``: as many the fleet may have. What the system did not allow is warned of, once in a process.
    """
    simulators = launch(spec, count, of=of) if count > 0 else []
    for simulator in simulators:
        undo.callback(simulator.stop)
        for what, why in simulator.refused.items():
            if what not in _told:
                _told.add(what)
                say(WITHOUT[what].format(why))
    return simulators
