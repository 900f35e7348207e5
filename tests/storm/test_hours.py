"""Hours of a whole bridge, in seconds: what it holds on to does not grow."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import trio

from tests.storm.bridge import run
from tests.storm.lives import HORIZON, Storm, Weather

if TYPE_CHECKING:
    from pathlib import Path

    from tests.storm.bridge import Work
    from tests.storm.kernel import Kernel

pytestmark = pytest.mark.exhaustive

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

    calm = Weather(0.0, 0.0, 0.0, 0.0)
    storm = Storm(1, profile, 2, 1, calm, steps=440, thinks=25.0)
    work = run(storm, tmp_path, look)
    assert work.seconds >= 3 * 3600
    assert all(life.steps >= 440 for life in work.lives)
    early, late = seen[3:7], seen[-5:-1]
    assert max(held.tasks for held in late) <= max(held.tasks for held in early)
    assert max(held.sockets for held in late) <= max(held.sockets for held in early)
    assert max(held.spool for held in seen) < LARGEST_SPOOL
    # An episode more or less may be under way.
    assert max(held.objects for held in late) <= max(held.objects for held in early) + 50 * HORIZON, (
        early,
        late,
    )
