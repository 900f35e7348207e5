"""Environments through ``ospbridge connect``: what the direct ones promise holds through the hub too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ospbridge
from ospbridge.errors import HubNotFound, LocalProtocolError
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected
from tests.envs.episodes import assert_equal_episodes

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
STEPS = 1000


@pytest.fixture
def hub(runtime_directory: Path) -> Path:
    """Where the daemon of this test listens."""
    return runtime_directory / "hub"


def attached(hub: Path, agent: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}", agent=agent, **options)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("stall", [0.0, 0.1])
def test_twenty_seeded_episodes_equal_the_local_environment(
    profile: Profile, stall: float, hub: Path
) -> None:
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile, stall=stall) as simulator,
        connected(simulator.address, hub),
    ):
        env = attached(hub, "cart")
        assert assert_equal_episodes(env, "CartPole-v1", episodes=20) > 200
        env.close()


@BOTH
def test_the_checker_of_gymnasium_is_content(profile: Profile, hub: Path) -> None:
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile) as simulator,
        connected(simulator.address, hub),
    ):
        env = attached(hub)
        with warnings.catch_warnings():
            # The velocities are announced as unbounded; the checker only frowns at that.
            warnings.filterwarnings("ignore", message=".*infinity.*")
            check_env(env.unwrapped)
        env.close()


@BOTH
def test_direct_and_hub_environments_return_the_same(profile: Profile, hub: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 300, 2), port=0, profile=profile) as simulator,
        connected(simulator.address, hub),
    ):
        env = attached(hub)
        observation, info = env.reset(seed=9)
        assert info["osp_seed"] == 9
        action = np.array([0.5, -0.5], np.float32)
        keys = set(info)
        observation, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(observation, expected(action, 2, 300, seed=9))
        assert (reward, terminated, truncated, set(info)) == (0.0, False, False, keys)
        assert list(info["infos"]) == ["/info/0", "/info/1"]
        with pytest.raises(LocalProtocolError):
            env.unwrapped.step(np.array([0.0, np.nan], np.float32))
        env.close()


@pytest.mark.parametrize("patience", [1e12, np.float32(30.0)], ids=repr)
def test_any_positive_number_is_a_limit(patience: float, hub: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator,
        connected(simulator.address, hub),
        closing(attached(hub, connect_timeout=patience, wait=patience)) as env,
    ):
        env.reset(seed=1)
        assert not env.step(np.zeros(1, np.float32))[3]


PLAYER = """
import sys
import gymnasium, numpy as np, ospbridge
bridge, agent, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
env = gymnasium.make("ospbridge/Agent-v0", bridge=bridge, agent=agent)
env.reset(seed=1)
for number in range(steps):
    value = np.float32(number / 1024 if agent == "agent1" else -number / 1024)
    observation, reward, terminated, truncated, info = env.step(np.full(1, value, np.float32))
    assert not truncated, info["reason"]
print("played", flush=True)
sys.stdin.readline()
env.close()
"""


@BOTH
def test_two_processes_step_their_agents_once_each_with_both_inputs(
    profile: Profile, hub: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    world = SyntheticWorld(1, 1, agents=2)
    with (
        Ledger(path) as ledger,
        UdpSimulator(world, port=0, profile=profile, ledger=ledger) as simulator,
        connected(simulator.address, hub, "--quorum", "2"),
    ):
        players = [
            subprocess.Popen(
                [sys.executable, "-c", PLAYER, f"unix:{hub}", agent, str(STEPS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for agent in ("agent1", "agent2")
        ]
        try:
            for player in players:
                assert player.stdout is not None
                assert player.stdout.readline().strip() == "played"
        finally:
            for player in players:
                player.kill()
                player.communicate()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["kind"] for record in records][: STEPS + 2] == ["reset"] + ["step"] * (STEPS + 1)
    for number, record in enumerate(records[2 : STEPS + 2]):
        assert record["agents"]["agent1"]["inputs"] == [number / 1024]
        assert record["agents"]["agent2"]["inputs"] == [-number / 1024]
        assert [len(agent["votes"]) for agent in record["agents"].values()] == [1, 1]


@pytest.mark.slow
@BOTH
def test_a_daemon_killed_in_mid_step_leaves_nothing_taken_for_the_next(profile: Profile, hub: Path) -> None:
    world = SyntheticWorld(1, 1, agents=2, think=0.5)
    with UdpSimulator(world, port=0, profile=profile) as simulator:
        started = time.monotonic()
        with connected(simulator.address, hub) as daemon:
            first_start = time.monotonic() - started
            code = (
                "import sys, gymnasium, numpy as np, ospbridge\n"
                "env = gymnasium.make('ospbridge/Agent-v0', bridge=sys.argv[1], agent='agent1')\n"
                "env.reset(seed=1)\nprint('reset', flush=True)\n"
                "for _ in range(100): env.step(np.zeros(1, np.float32))\n"
            )
            player = subprocess.Popen(
                [sys.executable, "-c", code, f"unix:{hub}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert player.stdout is not None
            assert player.stdout.readline() == "reset\n"
            time.sleep(0.7)
            os.kill(daemon.pid, signal.SIGKILL)
            _, said = player.communicate(timeout=30)
            assert "HubLost" in said
        started = time.monotonic()
        with connected(simulator.address, hub):
            # Whoever waited for the simulator to give up on the dead one would take far longer than any start.
            assert time.monotonic() - started < 10 * first_start
            env = attached(hub, "agent2")
            env.reset(seed=1)
            env.step(np.zeros(1, np.float32))
            env.close()
        with BlockingSession.connect(simulator.address, reclaim_stale=False) as session:
            assert all(entry.available for entry in session.agents())
            session.register("agent1")
            session.reset(1)
            session.step({"agent1": [0.0]})


@pytest.mark.parametrize("several", [False, True])
def test_a_seed_that_was_given_counts_though_another_process_draws_one_later(
    hub: Path, several: bool
) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0) as simulator,
        connected(simulator.address, hub, "--quorum", "2"),
        closing(HubClient.connect(f"unix:{hub}")) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        env = attached(hub, "agent1")
        told = pool.submit(env.reset, seed=7)
        give_up = time.monotonic() + 20
        while client.status().agents[0].state != "waiting for reset":
            assert time.monotonic() < give_up
            time.sleep(0.01)
        if several:
            others = gymnasium.make_vec(
                "ospbridge/Agent-v0", num_envs=1, bridge=f"unix:{hub}", agents="agent2"
            )
            assert others.reset()[1]["osp_seed"].tolist() == [7]
            others.close()
        else:
            other = attached(hub, "agent2")
            assert other.reset()[1]["osp_seed"] == 7
            other.close()
        assert told.result(20)[1]["osp_seed"] == 7
        env.close()


def test_without_a_daemon_the_hint_says_how_to_start_one(hub: Path) -> None:
    with pytest.raises(HubNotFound, match=str(hub)) as caught:
        attached(hub)
    assert "ospbridge connect" in caught.value.hint
    assert "simulator='HOST:PORT'" in caught.value.hint
    with pytest.raises(HubNotFound, match="hub"):
        gymnasium.make("ospbridge/Agent-v0")
