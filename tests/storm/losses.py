"""``python -m tests.storm.losses``: what losses cost at a simulator like `ospbridge sim --profile nerd --stall 0.02`.

One agent, and three of one client; 1,000 steps with each of three seeds, in memory under virtual time. Prints a table
for docs/measurements.md, and exits with 1 where a step was wrong and untold.

python -m tests.storm.losses --steps 200
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass, replace
from typing import Final

from tests.storm.explaining import judge
from tests.storm.lives import Storm, Weather

STEPS: Final = 1000
SEEDS: Final = range(3)
CREWS: Final = (1, 3)
"""Numbers of agents, all of one client."""
STALL: Final = 0.02
CALM: Final = Weather(0.0, 0.0, 0.0, 0.0, delay_max=0.08)
_QUIET: Final = Storm(0, "nerd", 1, 1, CALM, stall=STALL)
NETWORKS: Final = {
    "no loss": _QUIET,
    "no loss, stopped now and then": replace(_QUIET, runs=0.1),
    "loses 2 %": replace(_QUIET, weather=replace(CALM, drop=0.02)),
    "loses 2 %, stopped now and then": replace(_QUIET, weather=replace(CALM, drop=0.02), runs=5.0),
    "loses, doubles, delays 2 %": replace(
        _QUIET, weather=replace(CALM, drop=0.02, duplicate=0.02, delay=0.02)
    ),
}
"""Delays are of up to 80 ms; a simulator that is stopped now and then is so for 0.1 to 2 s."""


@dataclass(frozen=True)
class Figures:
    """What came of one run, or of several."""

    steps: int
    seconds: float
    ends: int
    """How often a session was rebuilt."""
    beyond: int
    """Episodes of which something was wrong and untold where the promise ends."""
    wrong: int
    """Episodes of which something was wrong and untold else."""

    @property
    def steps_a_second(self) -> float:
        return self.steps / self.seconds

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.steps + other.steps,
            self.seconds + other.seconds,
            self.ends + other.ends,
            self.beyond + other.beyond,
            self.wrong + other.wrong,
        )


NOTHING: Final = Figures(0, 0.0, 0, 0, 0)


def storm_of(network: str, agents: int, seed: int, steps: int, profile: str = "nerd") -> Storm:
    """One episode goes on until something ends it."""
    return replace(NETWORKS[network], profile=profile, agents=agents, seed=seed, steps=steps, horizon=steps)


def in_memory(storm: Storm) -> Figures:
    """Under virtual time. Raises Hang."""
    verdict = judge(storm)
    return Figures(verdict.steps, verdict.seconds, verdict.ends, len(verdict.beyond), len(verdict.broken))


def together(network: str, agents: int, *, steps: int = STEPS, profile: str = "nerd") -> Figures:
    """Of all seeds, in memory."""
    return sum((in_memory(storm_of(network, agents, seed, steps, profile)) for seed in SEEDS), NOTHING)


COLUMNS: Final = (
    "network",
    "agents",
    "steps/s",
    "of each seed",
    "ends in 1,000 steps",
    "wrong and untold where the promise may end",
    "else",
)


def row(network: str, agents: int, of_seeds: list[Figures]) -> str:
    figures = sum(of_seeds, NOTHING)
    cells = (
        network,
        str(agents),
        f"{figures.steps_a_second:,.1f}",
        ", ".join(f"{each.steps_a_second:,.1f}" for each in of_seeds),
        f"{1000 * figures.ends / figures.steps:.1f}",
        str(figures.beyond),
        str(figures.wrong),
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm.losses")
    parser.add_argument("--steps", type=int, default=STEPS)
    steps = parser.parse_args().steps
    wrong = 0
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for network, agents in itertools.product(NETWORKS, CREWS):
        figures = [in_memory(storm_of(network, agents, seed, steps)) for seed in SEEDS]
        wrong += sum(each.wrong for each in figures)
        print(row(network, agents, figures), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
