"""Environments through ``ospbridge connect``: what the direct ones promise holds through the hub too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import HubLost
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected, hosted, reached
from tests.envs.vectors import HeldWorld

pytestmark = pytest.mark.loopback


@pytest.fixture
def hub(runtime_directory: Path) -> Path:
    """Where the daemon of this test listens."""
    return runtime_directory / "hub"


def attached(hub: Path, agent: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}", agent=agent, **options)


@pytest.mark.parametrize("way", ["direct", "hub"])
def test_two_threads_step_an_agent_each_and_every_step_runs_once_with_both_inputs(
    way: str, profile: Profile, hub: Path
) -> None:
    ran: list[dict[str, Any]] = []
    steps, together = 200, Barrier(2)
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile, ledger=ran.append) as simulator,
        reached(way, simulator.address, hub, "--quorum", "2") as where,
        ThreadPoolExecutor(2) as pool,
    ):

        def play(agent: str, sign: int) -> None:
            with closing(gymnasium.make("ospbridge/Agent-v0", agent=agent, **where)) as env:
                together.wait(30)
                env.reset(seed=1)
                for number in range(steps):
                    *_, truncated, info = env.step(np.full(1, sign * number / 1024, np.float32))
                    assert not truncated, info["reason"]
                together.wait(30)

        for played in [pool.submit(play, "agent1", 1), pool.submit(play, "agent2", -1)]:
            played.result(60)
    # After the reset and its neutral step.
    assert [entry["kind"] for entry in ran[: steps + 2]] == ["reset"] + ["step"] * (steps + 1)
    for number, entry in enumerate(ran[2 : steps + 2]):
        one, other = entry["agents"]["agent1"], entry["agents"]["agent2"]
        assert (one["inputs"], other["inputs"]) == ([number / 1024], [-number / 1024])
        assert len(one["votes"]) == len(other["votes"]) == 1


def test_a_daemon_killed_in_mid_step_is_told_and_leaves_nothing_taken_for_the_next(
    profile: Profile, hub: Path
) -> None:
    world = HeldWorld(1, 1, agents=2)
    with UdpSimulator(world, port=0, profile=profile) as simulator, ThreadPoolExecutor(1) as pool:
        with connected(simulator.address, hub) as daemon:
            env = attached(hub, "agent1")
            env.reset(seed=1)
            world.hold()
            step = pool.submit(env.step, np.zeros(1, np.float32))
            assert world.begun.wait(30)
            daemon.kill()
            with pytest.raises(HubLost):
                step.result(30)
            world.go.set()
        with hosted(simulator.address, hub), closing(attached(hub, "agent2")) as other:
            other.reset(seed=1)
            other.step(np.zeros(1, np.float32))
        with BlockingSession.connect(simulator.address, reclaim_stale=False) as session:
            assert all(entry.available for entry in session.agents())
