"""``ospbridge bench stalls``: what a simulator's scheduling policy makes of the wake-ups that it loses.

The server is ``stalling.c``, a process for each turn; the client is the blocking floor, which sends its next request as
soon as it has the completion of the last one.
"""

from __future__ import annotations

import contextlib
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.bench.figures import first, runs_of, untold
from ospbridge.bench.floors import one_floor
from ospbridge.bench.report import Against, Panel, Quantity, Report, combine
from ospbridge.bench.stalling import building, running
from ospbridge.launch import scheduling
from ospbridge.launch.command import launch_spec
from ospbridge.launch.simulator import launch
from ospbridge.osp.notices import STALLED
from ospbridge.osp.profile import NERD
from ospbridge.transport.addresses import parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ospbridge.bench.figures import Told
    from ospbridge.bench.report import Row, Values

__all__ = ["DEFAULT", "LAUNCHED", "PINNED", "TUNED", "WAYS", "conclusive", "measure_stalls", "shortcomings"]

DEFAULT: Final = "default policy"
TUNED: Final = "tuned while it runs"
LAUNCHED: Final = "launched"
PINNED: Final = "launched and pinned"
WAYS: Final = (DEFAULT, TUNED, LAUNCHED, PINNED)
RATE: Final = "steps_per_second"
SHARE: Final = "stalled_percent"
QUANTITIES: Final = (
    Quantity("p50_us", "P50 us"),
    Quantity("p99_us", "P99 us"),
    Quantity(RATE, "STEPS/s", digits=0),
    Quantity(SHARE, "STALLED %", digits=2),
)
LONGEST: Final = 10.0
"""Seconds of a turn: where every fifth step stalls 1,000 of them take as long."""
INPUTS: Final = 2
OUTPUTS: Final = 2
"""Of the server's agent."""
CONCLUSIVE: Final = 1.0
"""Percent of steps that must stall under the default policy for the others to tell anything."""
STALLED_AT_MOST: Final = {TUNED: 0.3, LAUNCHED: 0.3, PINNED: 0.1}
"""Percent of steps that may stall."""
FASTER_AT_LEAST: Final = {LAUNCHED: 4.0, PINNED: 5.0}
"""Times the steps a second of the default policy, where so much can be won."""
WON_BACK: Final = 0.7
"""Of what the default policy would gain if none of its steps stalled: how many stall, a run does not choose."""


def measure_stalls(*, steps: int = 1000, busy: int = 100, runs: int = 5, told: Told = untold) -> Report:
    """Each way as often as ``runs`` says, in turn, with so many steps or for ``LONGEST`` seconds.

    ``busy``: microseconds that a step of the server takes. ``told`` is called with a way's name before each turn.
    Raises UsageError without a C compiler or SCHED_BATCH, ProgramFailed, QueryTimeout.
    """
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(building())
        subjects = {way: partial(_turn, way, program, steps, busy) for way in WAYS}
        found = first(runs_of(subjects, told, contextlib.nullcontext()), runs)
    rows = combine(found, [Against(DEFAULT, RATE, dict.fromkeys(WAYS, DEFAULT))])
    return Report(
        "stalls",
        "A server that loses wake-ups, by its scheduling policy",
        {"steps": steps, "busy_us": busy, "runs": runs},
        QUANTITIES,
        rows,
        panels=(Panel("steps a second", (RATE,)), Panel("steps that stalled (%)", (SHARE,))),
        notes=("ratios are of steps a second: more is faster", *_notes(rows)),
    )


def conclusive(rows: Sequence[Row]) -> bool:
    """Whether enough steps stalled under the default policy for the other ways to tell anything."""
    return _by_name(rows)[DEFAULT].values[SHARE] > CONCLUSIVE


def shortcomings(rows: Sequence[Row]) -> tuple[str, ...]:
    """What is not as wanted, where the rows are conclusive."""
    by_name = _by_name(rows)
    stalled = [
        f"{name}: {by_name[name].values[SHARE]:.2f} % stalled, wanted are {most:g} % at most"
        for name, most in STALLED_AT_MOST.items()
        if by_name[name].values[SHARE] > most
    ]
    default = by_name[DEFAULT].values
    without_stalls = 1e6 / (default["p50_us"] * default[RATE])
    slow = [
        f"{name}: {by_name[name].ratios[DEFAULT]:.1f} times the steps a second, wanted are {least:.2g} times at least"
        for name, most in FASTER_AT_LEAST.items()
        if by_name[name].ratios[DEFAULT] < (least := min(most, WON_BACK * without_stalls))
    ]
    return (*stalled, *slow)


def _by_name(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    if conclusive(rows):
        return shortcomings(rows)
    told = f"{_by_name(rows)[DEFAULT].values[SHARE]:.2f} % of the steps under the default policy stalled"
    return (f"inconclusive: {told}, and it takes more than {CONCLUSIVE:g} % to see a cure",)


def _turn(way: str, program: Path, steps: int, busy: int) -> Values:
    with (
        _server(way, program, busy) as server,
        one_floor(server, NERD, INPUTS, OUTPUTS, spin=False) as step,
    ):
        if way == TUNED:
            scheduling.batch(scheduling.owner_of(parse_endpoint(server)))
        stamps = [perf_counter()]
        while len(stamps) <= steps and stamps[-1] - stamps[0] < LONGEST:
            step()
            stamps.append(perf_counter())
    seconds = np.diff(np.array(stamps))
    p50, p99 = np.percentile(seconds, (50, 99)) * 1e6
    return {
        "p50_us": float(p50),
        "p99_us": float(p99),
        RATE: len(seconds) / float(seconds.sum()),
        SHARE: 100.0 * float((seconds > STALLED).mean()),
    }


@contextlib.contextmanager
def _server(way: str, program: Path, busy: int) -> Iterator[str]:
    """Its address. One that is launched is so as environments do it; others are of the session of their client."""
    if way in (DEFAULT, TUNED):
        with running(program, busy=busy) as server:
            yield server.address
        return
    command = [str(program), "{port}", str(busy)]
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory:
        spec = launch_spec(
            {"command": command, "log": Path(directory) / "log"}, pin="auto" if way == PINNED else False
        )
        (simulator,) = launch(spec)
        try:
            yield str(simulator.address)
        finally:
            simulator.stop()
