"""``ospbridge conformance``: what kind of OSP server a simulator has, and where it leaves the protocol's document."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.options import (
    SILENCE,
    SimulatorAddress,
    json_option,
    timeout_option,
    trace_option,
    tracing,
)
from ospbridge.cli.output import Column, note, print_json, print_table
from ospbridge.cli.stopping import stoppable, uninterrupted
from ospbridge.text import LINE, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.diagnosis.conformance import Report
    from ospbridge.diagnosis.findings import Deviation
    from ospbridge.interface import Endpoint

__all__ = ["conformance"]

DEVIATIONS: Final = 25
"""How many there are, for the progress bar that is drawn before they are imported."""


@click.command()
@click.argument("simulator", type=SimulatorAddress(), metavar="HOST:PORT")
@click.option(
    "--invasive",
    is_flag=True,
    help="Try also what needs a second client, or ends the sessions of all clients.",
)
@trace_option()
@timeout_option()
@json_option(
    'Print {"simulator", "profile", "agents", "deviations"}; each deviation is {"id", "title", "document", "server", '
    '"verdict", "detail", "invasive"} with the verdict "seen", "not seen" or "not tried".'
)
def conformance(
    *, simulator: Endpoint, invasive: bool, trace: Path | None, timeout: float, as_json: bool
) -> None:
    """Probe how a simulator speaks OSP.

    Prints its profile, and for each known deviation from the document of OSP 1.1 whether it was seen, not seen, or
    could not be tried and why. It does nothing that is known to crash a server.

    It takes up to two free agents for a moment, steps them and resets the world, unless other clients control agents:
    then it only asks questions. Best run against a simulator that was just started and that nobody uses.

    The exit code is 0 if probing finished, whatever it found.
    """
    from ospbridge.diagnosis.conformance import Conformance

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(tracing(trace))
        stack.enter_context(stoppable())
        told = stack.enter_context(_progress(f"waiting for a simulator at {simulator}"))
        probing = Conformance(simulator, invasive=invasive, timeout=timeout, trace=writer)
        try:
            report = probing.run(told)
        finally:
            with uninterrupted():
                probing.close()
    if as_json:
        print_json(_plain(simulator, report))
    else:
        _show(simulator, report)


@contextlib.contextmanager
def _progress(first: str) -> Iterator[Callable[[Deviation], None]]:
    """A bar on standard error, if that is a terminal, once it takes longer than a moment."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(first, total=DEVIATIONS)
    timer = threading.Timer(SILENCE, bar.start)
    timer.daemon = True
    timer.start()
    done = 0

    def told(deviation: Deviation) -> None:
        nonlocal done
        bar.update(task, completed=done, description=f"{deviation.id} {deviation.title}")
        done += 1

    try:
        yield told
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def _plain(simulator: Endpoint, report: Report) -> dict[str, Any]:
    return {
        "simulator": str(simulator),
        "profile": report.profile.name,
        "agents": list(report.agents),
        "deviations": [
            {
                "id": deviation.id,
                "title": deviation.title,
                "document": deviation.document,
                "server": deviation.server,
                "verdict": finding.verdict.value,
                "detail": finding.detail,
                "invasive": deviation.invasive,
            }
            for deviation, finding in report.findings
        ],
    }


def _show(simulator: Endpoint, report: Report) -> None:
    from ospbridge.diagnosis.findings import Verdict

    agents = listed(report.agents)
    print_table(
        (
            Column("ID"),
            Column("DEVIATION"),
            Column("VERDICT"),
            Column("WHAT WAS SEEN, OR WHY NOTHING", most=LINE),
        ),
        [
            (deviation.id, deviation.title, finding.verdict.value, finding.detail)
            for deviation, finding in report.findings
        ],
        title=f"{simulator}: profile {report.profile.name}; agents: {agents or 'none'}",
    )
    counts = ", ".join(f"{report.count(verdict)} {verdict.value}" for verdict in Verdict)
    note(f"{len(report.findings)} deviations: {counts}")
