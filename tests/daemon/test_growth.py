"""Nothing piles up in a daemon, however many episodes it sees; `.ci/long hours` has an hour of a whole bridge."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from ospbridge.daemon.conductor import Conductor
from tests.daemon.running import descriptors, threads
from tests.daemon.stage import ONE, FakeSession, conductor_of, inputs, recorded

KEPT = 64
"""Episodes of an agent whose lengths and returns are kept."""
ROOM = 300
"""Objects that Python may keep for itself; each episode makes more than a hundred."""


async def episodes(conductor: Conductor, session: FakeSession, count: int) -> None:
    """An agent that is attached, observed, plays and leaves, again and again."""
    observer = object()
    for number in range(count):
        both = conductor.attach(["*"], ONE)
        conductor.observers.join("a", observer)
        session.ending = {"a": 3} if number % 2 else {}
        await conductor.reset(both, number + 1, 1)
        for _ in range(3):
            playing = [each for each in both if each in conductor.lockstep.playing]
            await conductor.step([(each, inputs(0.5)) for each in playing])
        await conductor.observers.since("a", observer, 0, 0.0)
        conductor.observers.leave(observer)
        conductor.leave(both)
        session.steps.clear()
        session.seeds.clear()


@pytest.mark.trio
async def test_episodes_that_are_over_leave_nothing_behind(tmp_path: Path) -> None:
    session = FakeSession("a", "b")
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path) as recording:
        found = []
        for _ in range(5):
            await episodes(conductor, session, KEPT)
            while recording.status.recorded % (2 * KEPT):
                await trio.sleep(0.005)
            gc.collect()
            found.append((sys.getallocatedblocks(), descriptors(), threads()))
    # What leaks grows each time; what else the process holds may come and go.
    for numbers, room in zip(zip(*found, strict=True), (ROOM, 1, 1), strict=True):
        assert min(later - earlier for earlier, later in pairwise(numbers)) < room, found
