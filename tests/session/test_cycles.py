"""Coming and going again and again: nothing piles up in the client, the daemon or the simulator."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.hub.listener import HubSocket
from ospbridge.daemon.hub.server import HubServer
from ospbridge.daemon.settings import Settings
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import descriptors, threads
from tests.session.servers import wait_for

pytestmark = pytest.mark.loopback
WARM = 20
"""Cycles that go by before nothing may grow any more."""
CYCLES = 40
BESIDES = 2 * CYCLES
"""Blocks of memory, or objects, that may be kept besides. What a cycle leaves behind has several blocks, each time."""


class Flat:
    """Counts descriptors, threads, tasks and blocks of memory of this process; none of them may grow."""

    def __init__(
        self, *, tasks: Callable[[], int] = lambda: 0, kept: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        self._tasks = tasks
        self._kept = kept
        self._done = 0
        self._before: tuple[list[int], int] = ([], 0)

    def count(self) -> None:
        """One more cycle is over."""
        self._done += 1
        if self._done == WARM:
            self._before = self._counted(), self._blocks()
        elif self._done == WARM + CYCLES:
            counts, blocks = self._before
            wait_for(lambda: all(now <= before for now, before in zip(self._counted(), counts, strict=True)))
            assert self._blocks() - blocks <= BESIDES

    def _counted(self) -> list[int]:
        return [self._tasks(), descriptors(os.getpid()), threads(os.getpid())]

    def _blocks(self) -> int:
        for _ in range(3):
            gc.collect()
        return self._kept()


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    """In a thread of this process, so that what it keeps is seen too."""
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as running:
        yield running


def test_an_environment_that_is_made_and_closed_leaves_nothing_behind(simulator: UdpSimulator) -> None:
    flat = Flat()
    for seed in range(WARM + CYCLES):
        env = gymnasium.make(
            "ospbridge/Agent-v0", simulator=str(simulator.address), agent="agent1", profile="document"
        )
        env.reset(seed=seed)
        env.step(np.zeros(2, np.float32))
        env.close()
        del env
        flat.count()
    assert not simulator.machine.controlled


def attach_and_leave(bridge: str | None = None) -> None:
    env = gymnasium.make("ospbridge/Agent-v0", agent="agent1", bridge=bridge, wait=10.0)
    env.reset(seed=1)
    env.step(np.zeros(2, np.float32))
    env.close()


def attach_and_hang_up(bridge: str | None = None) -> None:
    client = HubClient.connect(bridge, wait=10.0)
    client.attach_all(["agent2"])
    client.lose()


@pytest.mark.trio
async def test_attaching_and_leaving_leaves_nothing_in_the_daemon(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    path = tmp_path / "hub"
    conductor = Conductor(Settings(hub=path, simulator=simulator.address, profile="document"))
    listener = HubSocket(path)
    bridge = f"unix:{path}"
    with closing(HubServer(listener, conductor, spin=False)) as server:
        flat = Flat(tasks=_tasks, kept=_objects)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conductor.run)
            nursery.start_soon(server.serve)
            for _ in range(WARM + CYCLES):
                await trio.to_thread.run_sync(partial(attach_and_leave, bridge))
                await trio.to_thread.run_sync(partial(attach_and_hang_up, bridge))
                with trio.fail_after(30):
                    while server._clients:
                        await trio.sleep(0.001)
                flat.count()
            nursery.cancel_scope.cancel()
    listener.close()
    assert not simulator.machine.controlled


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _objects() -> int:
    """Of ours: trio itself keeps up to a thousand deadlines that are over, each with its scope."""
    return sum(str(type(found).__module__).startswith("ospbridge") for found in gc.get_objects())
