"""``ospbridge bench hub``: what a daemon's hub costs many environments that step in lock-step.

For each number of agents there are the bare sockets, the conductor without a hub, that many environments in processes
of their own, and one client with a vector environment of them all. Daemons have a simulator each.

The processes need all cores, so that their simulator sleeps between steps, as simulators do, while that of the others
has a core to itself. What the hub alone costs them is seen beside a conductor whose simulator sleeps, too.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from ospbridge.bench.conducting import conducted
from ospbridge.bench.cores import processor_seconds
from ospbridge.bench.exercise import HUB
from ospbridge.bench.figures import PANELS, QUANTITIES, first, runs_of, timed, untold, values_of
from ospbridge.bench.processes import Program
from ospbridge.bench.report import Against, Panel, Quantity, Report, combine
from ospbridge.bench.stage import START, Stage, time_for
from ospbridge.bench.stepping import ATTACHED, decode_run
from ospbridge.bench.subjects import FLOORS
from ospbridge.bench.vectors import (
    WARM_UP,
    against_floors,
    counted,
    floors_of_many,
    in_each,
    vector_steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.bench.exercise import Exercise
    from ospbridge.bench.figures import Run, Runs, Subject, Told
    from ospbridge.bench.report import Values

__all__ = [
    "ASLEEP",
    "CONDUCTOR",
    "COUNTS",
    "DAEMON",
    "ONE_CLIENT",
    "PROCESSES",
    "hub_row",
    "hub_runs",
    "measure_hub",
]

COUNTS: Final = (1, 4, 16, 32)
CONDUCTOR: Final = "conductor"
ASLEEP: Final = "conductor, sleeping simulator"
PROCESSES: Final = "processes"
ONE_CLIENT: Final = "one client"
DAEMON: Final = Quantity("daemon_us", "DAEMON CPU us")
"""Processor time of the daemon for a step of all its agents."""


def hub_row(count: int, name: str) -> str:
    """The name of a row."""
    return counted(name, count, "agent")


class _Hub:
    """A daemon with so many agents, and those who step them; programs are started when first asked for."""

    def __init__(self, stage: Stage, programs: ExitStack, *, steps: int) -> None:
        self._stage = stage
        self._programs = programs
        self._steps = steps
        self._within = time_for(steps + WARM_UP, clients=stage.agents)
        self._processes: Program | None = None

    def processes(self) -> Values:
        """One environment in each of as many processes."""
        if self._processes is None:
            self._processes = self._started()
        program = self._processes

        def measure() -> Run:
            program.ask(f"{self._steps} {WARM_UP}")
            return decode_run(program.line(self._within))

        return self._with_daemon(measure)

    def one_client(self) -> Values:
        """One vector environment of all agents."""
        stage = self._stage
        options = {"bridge": stage.hub, "agents": "*", "wait": START}
        with vector_steps(stage.agents, stage.inputs, **options) as step:
            stage.keep_daemons_apart()
            return self._with_daemon(lambda: timed(step, self._steps, WARM_UP))

    def _started(self) -> Program:
        stage = self._stage
        names = ["agent"] if stage.agents == 1 else [f"agent{n + 1}" for n in range(stage.agents)]
        program = Program(
            "ospbridge.bench.stepping",
            *("--bridge", stage.hub),
            *(word for name in names for word in ("--agent", name)),
            name="the environments",
            environment={"OPENBLAS_NUM_THREADS": "1"},
        )
        self._programs.enter_context(program)
        if program.line(START + stage.agents) != ATTACHED:
            raise program.failed("said something else than that it is attached")
        return program

    def _with_daemon(self, measure: Callable[[], Run]) -> Values:
        """The figures, with what the daemon did for each step."""
        pid = self._stage.daemon.process.pid
        before = processor_seconds(pid)
        values = measure().values()
        spent = processor_seconds(pid) - before
        return values | {"daemon_us": spent * 1e6 / (self._steps + WARM_UP)}


def hub_runs(counts: Sequence[int] = COUNTS, exercise: Exercise = HUB, *, told: Told = untold) -> Runs:
    """Runs without end; for each count floors, conductors, processes, and one client if they are several."""
    programs = ExitStack()
    subjects: dict[str, Subject] = {}
    steps = exercise.steps

    def stage(agents: int) -> Stage:
        return programs.enter_context(Stage.of(exercise, agents=agents, apart=True))

    for count in counts:
        bare = stage(count)
        measures: dict[str, Callable[[], Run]] = {
            **floors_of_many(bare, steps),
            CONDUCTOR: partial(conducted, bare, steps, WARM_UP),
        }
        asleep = programs.enter_context(Stage.of(exercise, agents=count, sleeps=True))
        measures[ASLEEP] = partial(conducted, asleep, steps, WARM_UP)
        subjects |= {hub_row(count, name): values_of(measure) for name, measure in measures.items()}
        shared = programs.enter_context(Stage.of(exercise, agents=count, sleeps=True))
        subjects[hub_row(count, PROCESSES)] = _Hub(shared, programs, steps=steps).processes
        if count > 1:
            subjects[hub_row(count, ONE_CLIENT)] = _Hub(stage(count), programs, steps=steps).one_client
    return runs_of(subjects, told, programs)


def measure_hub(
    counts: Sequence[int] = COUNTS, exercise: Exercise = HUB, *, runs: int = 5, told: Told = untold
) -> Report:
    """Medians over some runs; as ``hub_runs``."""
    found = first(hub_runs(counts, exercise, told=told), runs)
    by_hub = (PROCESSES, ONE_CLIENT)
    lost = [
        Against("conductor's steps/s", "steps_per_second", in_each(hub_row, counts, by_hub, CONDUCTOR)),
        Against("the same, asleep", "steps_per_second", in_each(hub_row, counts, (PROCESSES,), ASLEEP)),
    ]
    return Report(
        "hub",
        "Environments of one daemon in lock-step",
        {"agents": ",".join(map(str, counts)), **exercise.parameters(runs)},
        (*QUANTITIES, DAEMON),
        combine(found, [*against_floors(hub_row, counts, (*FLOORS, CONDUCTOR, ASLEEP, *by_hub)), *lost]),
        panels=(*PANELS, Panel("steps a second", ("steps_per_second",))),
    )
