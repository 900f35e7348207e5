"""``python -m tests.storm``: whole bridges in storms, one for each seed; a seed that fails is replayed by its number.

python -m tests.storm 4711             one seed, told in full
python -m tests.storm 0:1000           a range, in as many processes as there are cores
python -m tests.storm.seeds 0:100000   sessions alone, which is quicker
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import click

from tests.storm.judging import played
from tests.storm.lives import HARSH, MILD, Storm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.storm.bridge import Work


def tell(work: Work, seconds: float) -> None:
    storm = work.storm
    click.echo(
        f"seed {storm.seed}: {storm.profile}, {storm.agents} agents, {storm.clients} clients, "
        f"{work.datagrams} datagrams, {work.seconds:.0f} virtual seconds in {seconds:.1f}, "
        f"the daemon was started {work.daemons} times"
    )
    for life in work.lives:
        click.echo(f"  {life.agent}: {life.steps} steps, {len(life.episodes)} episodes")
        for number, episode in enumerate(life.episodes):
            if episode.told:
                click.echo(
                    f"    told of episode {number}, after {len(episode.actions)} steps: {episode.told}"
                )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("seeds", help="a seed, or FIRST:END")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--mild", action="store_true", help="0.5 %% of each fault instead of 10 %%")
    parser.add_argument("--told", type=int, default=0, help="an environment that was told so often is done")
    options = parser.parse_args(arguments)
    first, colon, end = options.seeds.partition(":")
    seeds = range(int(first), int(end) if colon else int(first) + 1)
    storms = [Storm.of(seed, MILD if options.mild else HARSH, told=options.told) for seed in seeds]
    began = time.monotonic()
    if not colon:
        work, found = played(storms[0])
        tell(work, time.monotonic() - began)
        click.echo("\n".join(f"  FAULT {fault}" for fault in found))
        return bool(found)
    failed = episodes = untold = steps = datagrams = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, (work, found) in enumerate(pool.map(played, storms, chunksize=4), start=1):
            failed += bool(found)
            for fault in found:
                click.echo(f"seed {work.storm.seed}: {fault}")
            lived = [episode for life in work.lives for episode in life.episodes]
            episodes += len(lived)
            untold += sum(episode.ended and not episode.told for episode in lived)
            steps += sum(life.steps for life in work.lives)
            datagrams += work.datagrams
            if done % 100 == 0:
                click.echo(f"{done} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    click.echo(
        f"{len(seeds)} seeds, {failed} failed: {steps} steps, {episodes} episodes ({untold} without a word), "
        f"{datagrams} datagrams in {time.monotonic() - began:.0f} s"
    )
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
