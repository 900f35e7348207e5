"""Environments through ``ospbridge connect``: what the direct ones promise holds through the hub too."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
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
from ospbridge.session.hub_client import HubClient
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


PLAYER = """
import sys
import gymnasium, numpy as np, ospbridge
env = gymnasium.make("ospbridge/Agent-v0", bridge=sys.argv[1], agent="agent2")
env.reset(seed=1)
for number in range(20):
    env.step(np.full(1, (number + 1) / 1024, np.float32))
print("thinks", flush=True)
sys.stdin.readline()
print("acts", flush=True)
env.step(np.full(1, 21 / 1024, np.float32))
"""


@pytest.mark.parametrize("moment", ["while it thinks", "in the barrier", "in the step"])
def test_the_others_go_on_when_one_of_three_is_killed(moment: str, hub: Path) -> None:
    ran: list[dict[str, Any]] = []
    world = HeldWorld(1, 1, agents=3)
    given: dict[str, list[float]] = {"agent1": [], "agent3": []}
    acts, over = threading.Event(), threading.Event()

    def play(agent: str) -> None:
        with closing(attached(hub, agent)) as env:
            env.reset(seed=1)
            while not over.is_set():
                if len(given[agent]) == 20:
                    assert acts.wait(30)
                given[agent].append(-(len(given[agent]) + 1) / 1024)
                assert not env.step(np.full(1, given[agent][-1], np.float32))[3]

    with (
        UdpSimulator(world, port=0, ledger=ran.append) as simulator,
        hosted(simulator.address, hub, "--quorum", "3"),
        ThreadPoolExecutor(2) as pool,
        subprocess.Popen(
            [sys.executable, "-c", PLAYER, f"unix:{hub}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        played = [pool.submit(play, agent) for agent in given]
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "thinks\n"
        if moment == "in the step":
            world.hold()
        if moment != "while it thinks":
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "acts\n"
        if moment == "in the barrier":
            time.sleep(0.2)
        else:
            acts.set()
        if moment == "in the step":
            assert world.begun.wait(30)
        process.kill()
        process.wait()
        acts.set()
        world.go.set()
        give_up = time.monotonic() + 30
        while min(map(len, given.values())) < 40:
            assert time.monotonic() < give_up, played
            time.sleep(0.01)
        over.set()
        for each in played:
            each.result(30)
        with closing(attached(hub, "agent2")) as heir:
            heir.reset(seed=2)
    # After each reset comes one neutral step.
    resets = [at for at, entry in enumerate(ran) if entry["kind"] == "reset"]
    steps = [entry["agents"] for entry in ran[resets[0] + 2 : resets[1]]]
    assert all(len(agent["votes"]) == 1 for step in steps for agent in step.values())
    for agent, inputs in given.items():
        # One who stops rests until the other one stops too.
        told = [step[agent]["inputs"] for step in steps]
        assert told == [[value] for value in inputs] + [[0.0]] * (len(steps) - len(inputs))
    dead = [step["agent2"]["inputs"][0] for step in steps]
    # The step that it was killed in has run with its inputs, or with none.
    acted = 20 if moment == "while it thinks" or not dead[20] else 21
    assert dead == [(number + 1) / 1024 for number in range(acted)] + [0.0] * (len(steps) - acted)


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
