"""``python -m tests.storm.seeds``: 1,000 networks that lose, double, reorder and delay; what came of sessions there.

python -m tests.storm.seeds            1,000 seeds, in as many processes as there are cores
python -m tests.storm.seeds 0:100000   others
python -m tests.storm.seeds 4711       one of them, told in full

Exits with 1 where a session believed what was not so, or hung, and the network gives no excuse for it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Final

from ospbridge.osp.profile import PROFILES
from tests.storm.explaining import Verdict, judge
from tests.storm.lives import Storm, Weather

CALM: Final = Weather(0.0, 0.0, 0.0, 0.0, delay_max=0.08)
WEATHERS: Final = {
    "loses 10 %": replace(CALM, drop=0.1),
    "doubles 10 %": replace(CALM, duplicate=0.1),
    "reorders 10 %": replace(CALM, reorder=0.1),
    "delays 10 %": replace(CALM, delay=0.1),
    "loses and doubles 10 %": replace(CALM, drop=0.1, duplicate=0.1),
    "all of them": replace(CALM, drop=0.1, duplicate=0.1, reorder=0.1, delay=0.1),
}
"""Delays are of up to 80 ms."""
CREWS: Final = ((1, 1), (2, 1), (3, 1), (2, 2), (3, 2))
"""Numbers of agents and of clients."""
CASES: Final = tuple(product(WEATHERS, PROFILES, CREWS))
STEPS: Final = 40
"""Of each environment, if it was not told of an end so often before:"""
TOLD: Final = 6


def storm_of(seed: int) -> Storm:
    """Each weather comes with each profile and crew once in 60 seeds."""
    weather, profile, (agents, clients) = CASES[seed % len(CASES)]
    return Storm(seed, profile, agents, clients, WEATHERS[weather], steps=STEPS, told=TOLD)


def judged(seed: int) -> tuple[int, Verdict | None, str]:
    """Seed, what came of it, and what went wrong."""
    try:
        verdict = judge(storm_of(seed))
    except Exception as error:  # noqa: BLE001  # told with its seed
        return seed, None, f"{type(error).__name__}: {error}"
    return seed, verdict, "; ".join(verdict.broken)


def table(verdicts: Sequence[Verdict]) -> str:
    """What came of each weather, as the pages of the documentation have it."""
    of_weather: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        of_weather[CASES[verdict.storm.seed % len(CASES)][0]].append(verdict)
    lines = [
        "| network | seeds | steps | episodes | told of an end | wrong and untold where the promise ends | else |",
        "|---|---|---|---|---|---|---|",
    ]
    for weather in WEATHERS:
        found = of_weather[weather]
        numbers = [
            len(found),
            sum(verdict.steps for verdict in found),
            sum(verdict.episodes for verdict in found),
            sum(verdict.told for verdict in found),
            sum(bool(verdict.beyond) for verdict in found),
            sum(bool(verdict.broken) for verdict in found),
        ]
        lines.append(f"| {weather} | {' | '.join(f'{number:,}' for number in numbers)} |")
    return "\n".join(lines)


def seeds_of(text: str) -> range:
    """As "7" one seed, as "7:20" all from 7 to 19."""
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.storm.seeds", description=__doc__.partition(":")[2]
    )
    parser.add_argument("seeds", nargs="?", default="0:1000", type=seeds_of)
    seeds = parser.parse_args().seeds
    verdicts: list[Verdict] = []
    failed = 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for seed, verdict, wrong in pool.map(judged, seeds, chunksize=4):
            if verdict is not None:
                verdicts.append(verdict)
                for said in verdict.beyond:
                    print(f"seed {seed}: where the promise ends: {said}")
            if wrong:
                failed += 1
                print(f"seed {seed} {' '.join(map(str, CASES[seed % len(CASES)]))}: {wrong}")
            if verdict is not None and len(seeds) == 1:
                print(verdict)
    print(table(verdicts))
    print(f"{len(seeds):,} seeds, {failed:,} of them failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
