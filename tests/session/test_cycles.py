"""Coming and going again and again: nothing piles up in the client, the daemon or the simulator."""

from __future__ import annotations

import gc
import operator
import os
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING

import gymnasium
import numpy as np
import pytest
import trio

import ospbridge
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.hub.server import HubServer
from ospbridge.daemon.settings import Settings
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.unix import HubSocket
from tests.daemon.forked import ForkedSimulator
from tests.daemon.processes import descriptors, resident, threads
from tests.daemon.running import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

assert ospbridge.__version__
pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.timeout(120)]
CYCLES = 1000
FEWER = 100
WITHIN = 10.0
WARM = 4
"""One of so many cycles goes by before nothing may grow any more."""
EACH = 32
"""Bytes of Python that a cycle may leave behind, on the average; the smallest object that is forgotten has more ..."""
BESIDES = 256 * 1024
"""... but for what is there once: trio keeps up to a thousand deadlines that are over, each with its scope."""
RESIDENT = 2 * 2**20
"""Bytes by which a process may grow, whose allocator keeps what it was given."""


class Flat:
    """Counts descriptors, threads, memory and tasks, here and in the processes ``pids``; none of them may grow."""

    def __init__(self, cycles: int, *pids: int, tasks: Callable[[], int] = lambda: 0) -> None:
        self._cycles = cycles
        self._warm = cycles // WARM
        self._pids = pids
        self._tasks = tasks
        self._done = 0
        self._before: tuple[list[int], list[int]] = ([], [])
        self._memory: tracemalloc.Snapshot | None = None

    def count(self) -> None:
        """One more cycle is over."""
        self._done += 1
        if self._done == self._warm // 2 and not self._pids:
            # It allocates a little of its own, and makes all slower.
            tracemalloc.start()
        elif self._done == self._warm:
            self._before, self._memory = self._counted(), self._traced()
        elif self._done == self._cycles:
            self._judge()

    def _judge(self) -> None:
        memory = self._grown()
        tracemalloc.stop()
        assert memory < EACH * (self._cycles - self._warm) + BESIDES
        counts_before, sizes_before = self._before
        counts, sizes = self._counted()
        give_up = time.monotonic() + WITHIN
        while any(map(operator.gt, counts, counts_before)) and time.monotonic() < give_up:
            # Who was left by the last one may not have seen it yet.
            time.sleep(0.01)
            counts, sizes = self._counted()
        assert all(map(operator.le, counts, counts_before)), (counts, counts_before)
        grown = [size - before for size, before in zip(sizes, sizes_before, strict=True)]
        assert all(size < RESIDENT for size in grown), grown

    def _counted(self) -> tuple[list[int], list[int]]:
        counts = [count(pid) for pid in (os.getpid(), *self._pids) for count in (descriptors, threads)]
        return [self._tasks(), *counts], [resident(pid) for pid in self._pids]

    @staticmethod
    def _traced() -> tracemalloc.Snapshot | None:
        gc.collect()
        return tracemalloc.take_snapshot() if tracemalloc.is_tracing() else None

    def _grown(self) -> int:
        """Bytes of Python, but for its table of interned strings: it doubles by megabytes where pathlib fills it."""
        now = self._traced()
        if now is None or self._memory is None:
            return 0
        changes = now.compare_to(self._memory, "lineno")
        return sum(change.size_diff for change in changes if not _interned(change))


def _interned(change: tracemalloc.StatisticDiff) -> bool:
    return "pathlib" in change.traceback[0].filename and change.count_diff <= 1


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    yield
    tracemalloc.stop()


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    """In a thread of this process, so that what it keeps is seen too."""
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as running:
        yield running


def test_a_session_that_comes_and_goes_a_thousand_times_leaves_nothing_behind(
    simulator: UdpSimulator,
) -> None:
    flat = Flat(CYCLES)
    for _ in range(CYCLES):
        with BlockingSession.connect(str(simulator.address), profile="document") as session:
            session.register("agent1")
        flat.count()
    assert not simulator.machine.controlled


@pytest.mark.trio
async def test_so_does_a_session_of_trio(simulator: UdpSimulator) -> None:
    flat = Flat(FEWER, tasks=_tasks)
    for _ in range(FEWER):
        async with await TrioSession.connect(str(simulator.address), profile="document") as session:
            await session.register("agent1")
        flat.count()
    assert not simulator.machine.controlled


def test_a_thousand_sessions_leave_nothing_in_the_simulators_process() -> None:
    with ForkedSimulator(agents=2) as simulator:
        flat = Flat(CYCLES, simulator.pid)
        for number in range(CYCLES):
            with BlockingSession.connect(simulator.address, profile="document") as session:
                session.register("agent1")
                if number % 10 == 0:
                    session.reset(1)
                    session.step({"agent1": [0.0, 0.0]})
            flat.count()


def test_an_environment_that_is_made_and_closed_leaves_nothing_behind(simulator: UdpSimulator) -> None:
    flat = Flat(FEWER)
    for seed in range(FEWER):
        env = gymnasium.make(
            "ospbridge/Agent-v0", simulator=str(simulator.address), agent="agent1", profile="document"
        )
        env.reset(seed=seed)
        env.step(np.zeros(2, np.float32))
        env.close()
        flat.count()
    assert not simulator.machine.controlled


def attach_and_leave(bridge: str | None = None) -> None:
    env = gymnasium.make("ospbridge/Agent-v0", agent="agent1", bridge=bridge, wait=10.0)
    env.reset(seed=1)
    env.step(np.zeros(2, np.float32))
    env.close()


def attach_and_hang_up(bridge: str | None = None) -> None:
    client = HubClient.connect(bridge, wait=10.0)
    client.attach("agent2")
    client.lose()


def test_attaching_and_leaving_leaves_nothing_in_the_daemons_process(tmp_path: Path) -> None:
    with ForkedSimulator(agents=2) as simulator, Daemon(simulator.address, directory=tmp_path) as daemon:
        flat = Flat(2 * FEWER, simulator.pid, daemon.process.pid)
        for _ in range(2 * FEWER):
            attach_and_leave()
            attach_and_hang_up()
            # It is seen to be gone.
            while any(agent.driver for agent in daemon.status().agents):
                pass
            flat.count()


@pytest.mark.trio
async def test_attaching_and_leaving_leaves_no_task_and_no_memory_behind(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    path = tmp_path / "hub"
    conductor = Conductor(Settings(hub=path, simulator=simulator.address, profile="document"))
    listener = HubSocket(path)
    bridge = f"unix:{path}"
    with HubServer(listener, conductor, spin=False) as server:
        flat = Flat(FEWER, tasks=_tasks)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conductor.run)
            nursery.start_soon(server.serve)
            for _ in range(FEWER):
                await trio.to_thread.run_sync(partial(attach_and_leave, bridge))
                await trio.to_thread.run_sync(partial(attach_and_hang_up, bridge))
                with trio.fail_after(10):
                    while server._clients:
                        await trio.sleep(0.001)
                flat.count()
            nursery.cancel_scope.cancel()
    listener.close()
    assert not simulator.machine.controlled


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living
