"""``ospbridge bench scale``: what a step and the memory cost where there is more of something.

Agents of one simulator, values of an agent, simulators of one daemon, processes at one hub. Each size has programs of
its own, so that its memory is its own. Where a step costs no more for each of many than for each of few, it grows in
proportion or better. A week of episodes in a spool is ``ospbridge.bench.scale_spool``.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.bench.figures import BRIEF
from ospbridge.bench.report import Against, Panel, Quantity, Report, combine
from ospbridge.bench.scale_programs import daemon_of, stepped_by
from ospbridge.bench.stage import AGENT, Stage
from ospbridge.bench.turns import untold
from ospbridge.bench.usage import resident

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ospbridge.bench.processes import Program
    from ospbridge.bench.report import Row, Values
    from ospbridge.bench.scale_client import Stepped
    from ospbridge.bench.turns import Told

__all__ = ["PARTS", "Part", "measure_part", "sizes"]

DIRECT: Final = "direct"
HUB: Final = "hub"
EACH: Final = "each_us"
QUANTITIES: Final = (
    *BRIEF,
    Quantity(EACH, "P50 us FOR EACH", digits=2),
    Quantity("client_mb", "CLIENT MB"),
    Quantity("daemon_mb", "DAEMON MB"),
)
"""Memory is what is resident behind the last step; that of several clients is their mean."""
PANELS: Final = (
    Panel("time of a step (us): median, 99 %", ("p50_us", "p99_us")),
    Panel("memory (MB): client, daemon", ("client_mb", "daemon_mb")),
)
WORSE: Final = 1.5
"""Growth is told as more than in proportion where each of more costs so many times what each of fewer does."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something of which there may be more."""

    name: str
    title: str
    unit: str
    units: str
    """What there is one of, and what there is more of."""
    sizes: tuple[int, ...]
    steps: int
    """Of the smallest size; others take fewer, a tenth at least."""
    measured: Callable[[int, int], dict[str, Values]]
    """Takes size and steps; what that took, by the way that was measured."""
    shared: bool = True
    """A step is of all that there are, and is shared among them; else it is of one of them."""
    note: str = ""

    def named(self, size: int) -> str:
        """So many of them, in words."""
        return f"{size:,} {self.unit if size == 1 else self.units}"


def sizes(part: Part, share: float) -> tuple[int, ...]:
    """Those up to this share of the largest; the smallest at least."""
    return tuple(size for size in part.sizes if size <= share * part.sizes[-1]) or part.sizes[:1]


def measure_part(part: Part, *, share: float = 1.0, runs: int = 1, told: Told = untold) -> Report:
    """Every size up to a share of the largest, in turn. Raises ProgramFailed where a program fails."""
    found: list[dict[str, Values]] = []
    places: dict[str, tuple[str, int]] = {}
    for _ in range(runs):
        run: dict[str, Values] = {}
        for size in sizes(part, share):
            told(part.named(size))
            steps = max(part.steps * part.sizes[0] // size, part.steps // 10, 10)
            for way, values in part.measured(size, steps).items():
                name = f"{part.named(size)}, {way}"
                run[name] = values | {EACH: values["p50_us"] / (size if part.shared else 1)}
                places[name] = way, size
        found.append(run)
    smallest = {name: f"{part.named(part.sizes[0])}, {way}" for name, (way, _) in places.items()}
    rows = combine(found, [Against("smallest", "p50_us", smallest)])
    worse = _worse_than_in_proportion(rows, places)
    return Report(
        "scale",
        part.title,
        {"part": part.name, "runs": runs},
        QUANTITIES,
        rows,
        panels=PANELS,
        notes=(*([part.note] if part.note else []), *worse),
    )


def _worse_than_in_proportion(rows: Sequence[Row], places: dict[str, tuple[str, int]]) -> Iterator[str]:
    """Where more of something costs more for each: steps of one size against those of the next smaller one."""
    before: dict[str, Row] = {}
    for row in rows:
        way, _ = places[row.name]
        if way in before and row.values[EACH] > WORSE * before[way].values[EACH]:
            times = row.values[EACH] / before[way].values[EACH]
            yield f"a step of {row.name} costs {times:.2f} times as much for each as one of {before[way].name}"
        before[way] = row


# --- parts ---------------------------------------------------------------------------------------------------------


def _values(told: Sequence[Stepped], daemon: Program | None = None) -> Values:
    """Medians over the clients, and the memory of a daemon that still runs."""
    runs = [each.run for each in told]
    values = {
        "p50_us": statistics.median(run.p50 for run in runs),
        "p99_us": statistics.median(run.p99 for run in runs),
        "steps_per_second": statistics.median(run.steps_per_second for run in runs),
        "client_mb": statistics.mean(each.memory for each in told) / 1e6,
    }
    if daemon is not None:
        values["daemon_mb"] = resident(daemon.process.pid) / 1e6
    return values


def _both_ways(stage: Stage, *options: str, steps: int) -> dict[str, Values]:
    """One client, directly and through a daemon."""
    found = {DIRECT: _values(stepped_by(("--simulator", stage.responder, *options), steps=steps))}
    with daemon_of("--simulator", stage.responder) as (daemon, directory):
        told = stepped_by(("--bridge", f"unix:{directory / 'hub.sock'}", *options), steps=steps)
        found[HUB] = _values(told, daemon)
    return found


def _agents(size: int, steps: int) -> dict[str, Values]:
    """One client has them all, as a vector environment."""
    with Stage(inputs=8, outputs=16, agents=size) as stage:
        return _both_ways(stage, "--count", str(size), steps=steps)


def _numbers(size: int, steps: int) -> dict[str, Values]:
    with Stage(inputs=size // 2, outputs=size - size // 2) as stage:
        return _both_ways(stage, steps=steps)


def _simulators(size: int, steps: int) -> dict[str, Values]:
    """One client steps an agent of each, one behind the other."""
    with Stage(inputs=8, outputs=16, simulators=size) as stage, tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "simulators.toml"
        tables = (
            f'[[simulator]]\nname = "s{number}"\naddress = "{address}"\n'
            for number, address in enumerate(stage.responders)
        )
        file.write_text("\n".join(tables))
        with daemon_of("--config", str(file)) as (daemon, hubs):
            bridges = [
                option
                for number in range(size)
                for option in ("--bridge", f"unix:{hubs / f'hub-s{number}.sock'}")
            ]
            return {HUB: _values(stepped_by(bridges, steps=steps * size), daemon)}


def _processes(size: int, steps: int) -> dict[str, Values]:
    """Each has one environment on an agent of its own; all agents step together."""
    with (
        Stage(inputs=8, outputs=16, agents=size) as stage,
        daemon_of("--simulator", stage.responder, "--quorum", str(size)) as (daemon, directory),
    ):
        names = [AGENT] if size == 1 else [f"{AGENT}{number}" for number in range(1, size + 1)]
        bridge = f"unix:{directory / 'hub.sock'}"
        told = stepped_by(*(("--bridge", bridge, "--agent", name) for name in names), steps=steps)
        return {HUB: _values(told, daemon)}


PARTS: Final = {
    part.name: part
    for part in (
        Part("agents", "Agents of one simulator", "agent", "agents", (1, 4, 16, 64), 2000, _agents),
        Part(
            "values",
            "Inputs and outputs of an agent",
            "value",
            "values",
            (10, 100, 1000, 10_000),
            2000,
            _numbers,
            note="a datagram of UDP holds 16,370 numbers in either direction; servers of the NERD toolkit cut at 1,024 "
            "bytes, some 250 numbers, and the rest is read from their repository",
        ),
        Part(
            "simulators",
            "Simulators of one daemon",
            "simulator",
            "simulators",
            (1, 4, 16, 64),
            2000,
            _simulators,
            shared=False,
        ),
        Part("processes", "Processes at one hub", "process", "processes", (1, 2, 8, 32), 2000, _processes),
    )
}
"""By name."""
