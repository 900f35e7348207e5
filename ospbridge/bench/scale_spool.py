"""A week of episodes in a spool: what an episode costs on its way in and out, and what memory, file and opening cost.

An upstream that is away for a week leaves them there: an episode a second, 50 steps of four observed numbers and one
action. ``python -m ospbridge.bench.scale_spool`` is the process whose memory is told; it says one JSON line for each
level on the way up, a ``Level``.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
import numpy as np

from ospbridge.bench.processes import Program
from ospbridge.bench.report import Panel, Quantity, Report, combine
from ospbridge.bench.turns import untold
from ospbridge.bench.usage import resident
from ospbridge.record.spool import Spool
from ospbridge.rllink.dialects import packed_up
from ospbridge.rllink.messages import EpisodeFragment

if TYPE_CHECKING:
    from ospbridge.bench.report import Values
    from ospbridge.bench.turns import Told

__all__ = ["SHARES", "WEEK", "Level", "measure_spool"]

WEEK: Final = 7 * 24 * 3600
"""Episodes: one a second."""
STEPS: Final = 50
OBSERVED: Final = 4
SHARES: Final = (0.01, 0.1, 1.0)
"""Of all episodes: when it is told how things stand."""
LEAST: Final = 100
"""Episodes, so that each level has more than the one before."""
PARCELS: Final = 64
"""So many different ones are written, again and again: making them is not what is measured."""
DELIVERIES: Final = 10
DELIVERY: Final = {"steps": 10_000, "size": 2 * 2**20}
"""What is taken at once, as the relay does."""
LIMIT: Final = 64 * 2**30
"""Bytes: nothing shall be dropped."""
BEHIND: Final = 10_000
"""Entries that wait for the disk before it is waited for, far less than the spool allows."""
SETTLE_WITHIN: Final = 60.0
"""Seconds for the disk to keep up."""
QUANTITIES: Final = (
    Quantity("put_p50_us", "PUT P50 us"),
    Quantity("put_p99_us", "PUT P99 us"),
    Quantity("stored_us", "STORED us"),
    Quantity("drained_us", "DRAINED us"),
    Quantity("opened_ms", "OPENED ms"),
    Quantity("memory_mb", "MEMORY MB"),
    Quantity("file_mb", "FILE MB"),
)
"""Of one episode but for the last three. Stored: until it is on the disk. Drained: taken and forgotten."""


class Level(msgspec.Struct, frozen=True):
    """How it stands with so many episodes in the spool. Times in seconds, sizes in bytes."""

    episodes: int
    put_p50: float
    put_p99: float
    stored: float
    """Of each episode since the level before, until it is on the disk."""
    drained: float
    """Of each of some deliveries, until they are forgotten."""
    opened: float
    memory: int
    file: int

    def values(self) -> Values:
        """By the keys of ``QUANTITIES``."""
        return {
            "put_p50_us": self.put_p50 * 1e6,
            "put_p99_us": self.put_p99 * 1e6,
            "stored_us": self.stored * 1e6,
            "drained_us": self.drained * 1e6,
            "opened_ms": self.opened * 1e3,
            "memory_mb": self.memory / 1e6,
            "file_mb": self.file / 1e6,
        }


def measure_spool(*, episodes: int = WEEK, told: Told = untold) -> Report:
    """At each level up to so many episodes, a hundred at least. Raises ProgramFailed where the spool's process does."""
    episodes = max(episodes, LEAST)
    run: dict[str, Values] = {}
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory:
        arguments = ("--episodes", str(episodes), str(Path(directory) / "spool.sqlite"))
        with Program("ospbridge.bench.scale_spool", *arguments, name="the spool's process") as program:
            for share in SHARES:
                name = f"{share:.0%}: {round(share * episodes):,} episodes"
                told(name)
                line = program.line(60.0 + 0.01 * episodes)
                run[name] = msgspec.json.decode(line, type=Level).values()
    return Report(
        "scale",
        "A week of episodes in a spool",
        {"part": "spool", "episodes": episodes},
        QUANTITIES,
        combine([run]),
        panels=(
            Panel("an episode is stored, drained (us)", ("stored_us", "drained_us")),
            Panel("memory of the process (MB)", ("memory_mb",)),
        ),
    )


class Filling:
    """A spool that is filled level by level."""

    def __init__(self, path: Path, episodes: int) -> None:
        self._path = path
        self._stack = ExitStack()
        self._spool = self._open()
        self._bodies = parcels()
        self._put = 0
        # All pages are written to, and so there, before any memory is told.
        self._seconds = np.full(episodes, -1.0, np.float32)

    def _open(self) -> Spool:
        return self._stack.enter_context(Spool(self._path, limit=LIMIT))

    def to(self, episodes: int) -> Level:
        """Fill up to so many."""
        first = self._put
        began = time.perf_counter()
        for number in range(first, episodes):
            body = self._bodies[number % PARCELS]
            before = time.perf_counter()
            self._spool.put(f"{number:032x}", STEPS, body)
            self._seconds[number] = time.perf_counter() - before
            if number % 1000 == 0 and self._spool.figures.unwritten > BEHIND:
                self._settle()
        self._settle()
        stored = (time.perf_counter() - began) / (episodes - first)
        self._put = episodes
        drained = self._drain()
        memory = resident()
        p50, p99 = np.percentile(self._seconds[first:episodes], (50, 99))
        self._stack.close()
        began = time.perf_counter()
        self._spool = self._open()
        opened = time.perf_counter() - began
        found = self._spool.figures
        if (found.entries, found.dropped) != (episodes, 0):
            raise SystemExit(f"the spool was to hold {episodes:,} episodes, and has {found}")
        return Level(
            episodes, float(p50), float(p99), stored, drained, opened, memory, self._path.stat().st_size
        )

    def _settle(self) -> None:
        if not self._spool.settle(SETTLE_WITHIN):
            raise SystemExit(f"the disk did not keep up within {SETTLE_WITHIN:g} s: {self._spool.figures}")

    def _drain(self) -> float:
        """Seconds an episode; what was drained is put back behind the others."""
        taken, seconds = [], 0.0
        for _ in range(DELIVERIES):
            began = time.perf_counter()
            entries = self._spool.take(**DELIVERY)
            self._spool.forget(entries)
            seconds += time.perf_counter() - began
            taken += entries
        for entry in taken:
            self._spool.put(entry.key, entry.steps, entry.body)
        self._settle()
        return seconds / len(taken)

    def close(self) -> None:
        self._stack.close()


def parcels() -> list[bytes]:
    """Episodes as the relay keeps them."""
    random = np.random.default_rng(1)
    return [
        packed_up(
            EpisodeFragment(
                f"{number:032x}",
                random.standard_normal((STEPS + 1, OBSERVED)).astype(np.float32),
                random.integers(0, 2, STEPS),
                np.ones(STEPS, np.float32),
                terminated=True,
            )
        )
        for number in range(PARCELS)
    ]


@click.command()
@click.option("--episodes", type=click.IntRange(LEAST), default=WEEK, help="How many in the end.")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def main(*, episodes: int, path: Path) -> None:
    """Fill the spool at PATH, and tell at each level how it stands."""
    filling = Filling(path, episodes)
    try:
        for share in SHARES:
            click.echo(msgspec.json.encode(filling.to(round(share * episodes))))
    finally:
        filling.close()


if __name__ == "__main__":
    main()
