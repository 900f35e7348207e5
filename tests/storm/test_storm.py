"""Whole bridges in storms: what environments believe is what ran, or they are told; nothing hangs, grows or gets lost.

``python -m tests.storm`` plays as many as one likes, and replays the one that failed. Storms over sessions alone are in
``tests/osp/test_terrible_network.py``.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio

from tests.storm.bridge import Work, played, run
from tests.storm.kernel import Kernel
from tests.storm.lives import HARSH, HORIZON, MILD, Storm, Weather, untrue

CALM = Weather(0.0, 0.0, 0.0, 0.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
def test_a_whole_bridge_in_a_harsh_storm_believes_what_ran_or_is_told_and_loses_no_episode(seed: int) -> None:
    _, found = played(Storm.of(seed, HARSH, told=3))
    assert not found, f"python -m tests.storm {seed} --told 3"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_whole_bridge_in_a_mild_storm_believes_what_ran_or_is_told_and_loses_no_episode(seed: int) -> None:
    work, found = played(Storm.of(seed, MILD))
    assert not found, f"python -m tests.storm {seed} --mild"
    assert all(life.steps >= 100 for life in work.lives)


@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_a_whole_bridge_without_a_storm_is_told_nothing(tmp_path: Path, profile: str) -> None:
    work = run(replace(Storm.of(0, CALM), profile=profile, agents=3, clients=2), tmp_path)
    assert not list(untrue(work.lives, work.ledger))
    assert [life.troubles for life in work.lives] == [[]] * 3
    assert work.daemons == 1
    ended = [episode for life in work.lives for episode in life.episodes if episode.ended]
    told = [episode.told for episode in ended if episode.told]
    # The first to reset ends the episodes of those who joined before it.
    assert len(told) < len(ended) / 2
    # The judge sees what did not run.
    steps = [at for at, entry in enumerate(work.ledger) if entry["kind"] == "step"]
    del work.ledger[steps[5]]
    assert list(untrue(work.lives, work.ledger))


def test_a_seed_of_a_whole_bridge_tells_the_same_story_again(tmp_path: Path) -> None:
    stories = []
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        work = run(replace(Storm.of(4, MILD), steps=30), tmp_path / name)
        stories.append((work.ledger, work.lives, work.seconds, work.datagrams))
    assert stories[0] == stories[1]


LARGEST_SPOOL = 5 * 2**20
"""Bytes of its files when nothing waits in it: SQLite keeps a log of a thousand pages, and begins it again."""


@dataclass(frozen=True)
class Held:
    """What a bridge holds on to at a moment."""

    tasks: int
    sockets: int
    objects: int
    """That may hold others."""
    spool: int
    """Bytes of the files on disk."""


@pytest.mark.timeout(300)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_three_hours_of_a_bridge_hold_on_to_nothing_more_than_the_first(tmp_path: Path, profile: str) -> None:
    seen: list[Held] = []

    def look(kernel: Kernel, work: Work) -> None:
        # What the simulator wrote down is the test's, not the bridge's.
        work.ledger.clear()
        for life in work.lives:
            del life.episodes[:-1]
        gc.collect()
        seen.append(
            Held(
                trio.lowlevel.current_statistics().tasks_living,
                len(kernel.files),
                len(gc.get_objects()),
                sum(file.stat().st_size for file in tmp_path.glob("spool*")),
            )
        )

    work = run(Storm(1, profile, 2, 1, CALM, steps=190, thinks=60.0), tmp_path, look)
    assert work.seconds >= 3 * 3600
    assert all(life.steps >= 190 for life in work.lives)
    early, late = seen[3:7], seen[-5:-1]
    assert max(held.tasks for held in late) <= max(held.tasks for held in early)
    assert max(held.sockets for held in late) <= max(held.sockets for held in early)
    assert max(held.spool for held in seen) < LARGEST_SPOOL
    # An episode more or less may be under way.
    assert max(held.objects for held in late) <= max(held.objects for held in early) + 50 * HORIZON, seen
