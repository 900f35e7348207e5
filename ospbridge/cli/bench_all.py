"""`ospbridge bench all`: every measurement that takes no longer than a minute or two, one after the other."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from ospbridge.cli.bench_choosing import chosen, only_option
from ospbridge.cli.bench_output import JSON, report_options

if TYPE_CHECKING:
    from ospbridge.bench.report import Report
    from ospbridge.cli.bench_output import Output

__all__ = ["MEASUREMENTS", "measure_all"]

MEASUREMENTS: Final[dict[str, tuple[str, ...]]] = {
    "step": ("ospbridge.bench.step", "measure_steps"),
    "agents": ("ospbridge.bench.agents", "measure_agents"),
    "fleet": ("ospbridge.bench.fleet", "measure_fleet"),
    "hub": ("ospbridge.bench.hub", "measure_hub"),
    "relay": ("ospbridge.bench.relaying", "measure_relaying", "measure_driving"),
    "peers": ("ospbridge.bench.peers", "measure_peers"),
    "startup": ("ospbridge.bench.startup", "measure_startup"),
}
"""By the subcommand's name the module and its functions that measure: called with ``runs`` and ``told``, each returns a
``Report``."""


@click.command("all")
@only_option("Make only the measurements whose name begins with NAME; may be repeated.")
@report_options(
    runs=5, json_text=f'Print {{"reports"}}, a list with one of these for each: {JSON.removeprefix("Print ")}'
)
def measure_all(*, runs: int, only: tuple[str, ...], output: Output) -> None:
    """Make all measurements but the longest, each as its subcommand makes it.

    This takes some minutes, in which nothing else should run on the machine. `scale` and `memory` take longer, and
    `stalls` needs a C compiler: these are left out. Where one fails, or is interrupted, those before it are told all
    the same.
    """
    wanted = chosen(only, tuple(MEASUREMENTS)) or tuple(MEASUREMENTS)
    reports: list[Report] = []
    try:
        with output.measuring() as told:
            for name in wanted:
                module, *functions = MEASUREMENTS[name]
                for function in functions:
                    measure = getattr(import_module(module), function)
                    reports.append(
                        measure(runs=runs, told=lambda subject, name=name: told(f"{name}: {subject}"))
                    )
    finally:
        if reports:
            output.tell(*reports, several=True)
