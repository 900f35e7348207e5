"""`ospbridge tune`: the scheduling of a simulator that runs on this host already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import SimulatorAddress, json_option, timeout_option, waiting_told
from ospbridge.cli.output import Column, note, print_json, print_table
from ospbridge.cli.stopping import stoppable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.diagnosis.stalls import Pace
    from ospbridge.interface import Endpoint
    from ospbridge.launch.scheduling import RunningSimulator, Thread

__all__ = ["tune"]


@click.command()
@click.argument("simulator", type=SimulatorAddress(), metavar="HOST:PORT")
@click.option(
    "--pin",
    "core",
    type=click.IntRange(0),
    metavar="CORE",
    help="Let all its threads run on this core only, which is a little faster where another core is free.",
)
@click.option(
    "--undo", is_flag=True, help="Put its threads back under the ordinary policy, and on all cores."
)
@click.option(
    "--measure",
    is_flag=True,
    help="Step a free agent 1,000 times before and after, with an action that does nothing.",
)
@timeout_option(5.0, when="the simulator that is to be measured has not answered")
@json_option(
    'Print {"simulator", "pid", "command", "before", "after", "measured"}; the threads before and after as lists of '
    '{"id", "policy", "cores"}, what was measured as {"before", "after"} with {"steps", "stalled", "steps_per_second"} '
    "or a text that says why not, null without --measure; stalled is a share."
)
def tune(
    *, simulator: Endpoint, core: int | None, undo: bool, measure: bool, timeout: float, as_json: bool
) -> None:
    """Cure a running simulator of stalls of 50 ms.

    HOST:PORT is where it listens on this host. Some simulators, such as those of the NERD toolkit, lose wake-ups
    between their threads under the kernel's ordinary scheduling policy. This puts all threads of the process that
    listens there under SCHED_BATCH, which lasts until it ends, and needs no privilege if the process is your own.
    """
    from ospbridge.errors import UsageError
    from ospbridge.launch import scheduling

    if undo and core is not None:
        raise UsageError(
            "--undo lets the threads run on all cores, and --pin on one", hint="give one of both"
        )
    with stoppable(), waiting_told("looking at the simulator"):
        process = scheduling.owner_of(simulator)
        before = scheduling.threads_of(process)
        paces = [_pace(simulator, timeout)] if measure else []
        if undo or core is not None:
            scheduling.pin(process, core)
        scheduling.batch(process, undo=undo)
        after = scheduling.threads_of(process)
        if measure:
            # What kept it from being measured before would again.
            paces.append(paces[0] if isinstance(paces[0], str) else _pace(simulator, timeout))
    if as_json:
        print_json(_as_object(process, before, after, paces))
    else:
        _show(process, before, after, paces)


def _pace(simulator: Endpoint, timeout: float) -> Pace | str:
    """What is measured, or why nothing is."""
    from ospbridge.diagnosis.stalls import measured_pace
    from ospbridge.errors import OspBridgeError
    from ospbridge.osp.timing import Limits
    from ospbridge.session.blocking import BlockingSession

    try:
        limits = Limits(connect=timeout, step=5.0)
        with BlockingSession.connect(simulator, limits=limits, reclaim_stale=False) as session:
            return measured_pace(session)
    except OspBridgeError as error:
        return error.message


def _as_object(
    process: RunningSimulator, before: Sequence[Thread], after: Sequence[Thread], paces: Sequence[Pace | str]
) -> dict[str, Any]:
    return {
        "simulator": str(process.address),
        "pid": process.pid,
        "command": process.command,
        "before": [_thread(thread) for thread in before],
        "after": [_thread(thread) for thread in after],
        "measured": dict(zip(("before", "after"), map(_measured, paces), strict=True)) if paces else None,
    }


def _thread(thread: Thread) -> dict[str, Any]:
    return {"id": thread.id, "policy": thread.policy, "cores": sorted(thread.cores)}


def _measured(pace: Pace | str) -> dict[str, Any] | str:
    if isinstance(pace, str):
        return pace
    return {
        "steps": pace.steps,
        "stalled": round(pace.stalled, 5),
        "steps_per_second": round(pace.steps_per_second, 1),
    }


def _show(
    process: RunningSimulator, before: Sequence[Thread], after: Sequence[Thread], paces: Sequence[Pace | str]
) -> None:
    from ospbridge.diagnosis.stalls import policies_told

    rows = [
        (when, policies_told(threads), _cores(threads), *_cells(pace))
        for when, threads, pace in zip(("before", "after"), (before, after), paces or ("", ""), strict=True)
    ]
    columns = [Column(""), Column("THREADS"), Column("CORES")]
    if any(len(row) > len(columns) for row in rows):
        columns += [Column("STEPS/s", right=True), Column("STALLED", right=True)]
    title = f"{process.address}: pid {process.pid}, {process.command}"
    print_table(columns, rows, title=title)
    why = next((pace for pace in paces if isinstance(pace, str)), "")
    if why:
        note(f"not measured: {why}")
    told = policies_told(after)
    if told == policies_told(before) and _cores(before) == _cores(after):
        note("nothing was to be changed")


def _cells(pace: Pace | str) -> tuple[str, ...]:
    if isinstance(pace, str):
        return ()
    return f"{pace.steps_per_second:,.0f}", f"{pace.stalled:.2%}"


def _cores(threads: Sequence[Thread]) -> str:
    """Those that any of them may run on."""
    return " ".join(map(str, sorted({core for thread in threads for core in thread.cores})))
