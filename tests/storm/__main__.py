"""``python -m tests.storm``: whole bridges in storms, one for each seed; a seed that fails is replayed by its number.

python -m tests.storm 4711             one seed, told in full
python -m tests.storm 0:1000           a range, in as many processes as there are cores
python -m tests.storm.seeds 0:100000   sessions alone, which is quicker
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import click

from tests.storm.bridge import Work, played
from tests.storm.lives import HARSH, MILD, Storm
from tests.storm.seeds import seeds_of


def tell(work: Work) -> None:
    click.echo(
        f"{work.storm}, {work.seconds:.0f} virtual seconds, the daemon was started {work.daemons} times"
    )
    for life in work.lives:
        for number, episode in enumerate(life.episodes):
            if episode.told:
                click.echo(f"  {life.agent}, episode {number}, {len(episode.actions)} steps: {episode.told}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("seeds", help="a seed, or FIRST:END", type=seeds_of)
    parser.add_argument("--mild", action="store_true", help="0.5 %% of each fault instead of 10 %%")
    parser.add_argument("--told", type=int, default=0, help="an environment that was told so often is done")
    options = parser.parse_args()
    weather = MILD if options.mild else HARSH
    storms = [Storm.of(seed, weather, told=options.told) for seed in options.seeds]
    counts: Counter[str] = Counter(seeds=len(storms))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for work, found in pool.map(played, storms, chunksize=4):
            if len(storms) == 1:
                tell(work)
            for fault in found:
                click.echo(f"seed {work.storm.seed}: {fault}")
            lived = [episode for life in work.lives for episode in life.episodes]
            counts["failed"] += bool(found)
            counts["steps"] += sum(life.steps for life in work.lives)
            counts["episodes"] += len(lived)
            counts["of them told of nothing"] += sum(each.ended and not each.told for each in lived)
            counts["datagrams"] += work.datagrams
    click.echo(", ".join(f"{count:,} {what}" for what, count in counts.items()))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
