"""Environments through ``ospbridge connect``: what the direct ones promise holds through the hub too."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.errors import HubLost, HubNotFound, LocalProtocolError
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected, hosted
from tests.envs.episodes import assert_each_ran_once, assert_equal_episodes, play_side_by_side
from tests.envs.vectors import HeldWorld

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


@pytest.fixture
def hub(runtime_directory: Path) -> Path:
    """Where the daemon of this test listens."""
    return runtime_directory / "hub"


def attached(hub: Path, agent: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}", agent=agent, **options)


def test_seeded_episodes_through_a_hub_equal_the_local_environment(profile: Profile, hub: Path) -> None:
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile) as simulator,
        hosted(simulator.address, hub),
        closing(attached(hub, "cart")) as env,
    ):
        assert assert_equal_episodes(env, "CartPole-v1", episodes=8) > 100
        with pytest.raises(LocalProtocolError):
            env.unwrapped.step(np.array([np.nan], np.float32))


def test_two_threads_step_their_agents_through_a_hub_once_each_with_both_inputs(
    profile: Profile, hub: Path
) -> None:
    ran: list[dict[str, Any]] = []
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile, ledger=ran.append) as simulator,
        hosted(simulator.address, hub, "--quorum", "2"),
    ):
        play_side_by_side(lambda agent: attached(hub, agent), 200)
    assert_each_ran_once(ran, 200)


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


def test_a_seed_that_was_given_counts_though_another_process_draws_one_later(hub: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0) as simulator,
        hosted(simulator.address, hub, "--quorum", "2"),
        closing(HubClient.connect(f"unix:{hub}")) as client,
        ThreadPoolExecutor(1) as pool,
        closing(attached(hub, "agent1")) as env,
    ):
        told = pool.submit(env.reset, seed=7)
        give_up = time.monotonic() + 30
        while client.status().agents[0].state != "waiting for reset":
            assert time.monotonic() < give_up
            time.sleep(0.01)
        others = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, bridge=f"unix:{hub}", agents="agent2")
        with closing(others):
            assert others.reset()[1]["osp_seed"].tolist() == [7]
        assert told.result(30)[1]["osp_seed"] == 7


def test_without_a_daemon_the_hint_says_how_to_start_one(hub: Path) -> None:
    with pytest.raises(HubNotFound, match=str(hub)) as caught:
        attached(hub)
    assert "ospbridge connect" in caught.value.hint
    assert "simulator='HOST:PORT'" in caught.value.hint
    with pytest.raises(HubNotFound, match="hub"):
        gymnasium.make("ospbridge/Agent-v0")
