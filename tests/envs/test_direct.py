"""The single environment, direct and through a daemon: what gymnasium and researchers expect of it."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.envs.conventions import each_seed, osp_seed
from ospbridge.errors import (
    AgentNotFound,
    AgentsInUse,
    HubLost,
    LocalProtocolError,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.interface import LARGEST_SEED
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.rebuild import CAPACITY
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected, hosted, reached
from tests.envs.kinds import single
from tests.envs.vectors import HeldWorld, assert_equal_episodes

pytestmark = pytest.mark.loopback


@pytest.fixture
def two_agents() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3, 1, agents=2), port=0) as simulator:
        yield simulator


def made(simulator: UdpSimulator, agent: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("ospbridge/Agent-v0", simulator=str(simulator.address), agent=agent, **options)


def free_agents(simulator: UdpSimulator) -> list[str]:
    with BlockingSession.connect(simulator.address, reclaim_stale=False) as session:
        return [entry.name for entry in session.agents() if entry.available]


# --- trajectories ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local_id", ["CartPole-v1", "Pendulum-v1"])
def test_seeded_episodes_equal_the_local_environment(profile: Profile, local_id: str) -> None:
    with UdpSimulator(GymWorld([local_id]), port=0, profile=profile) as simulator:
        env = made(simulator)
        assert assert_equal_episodes(env, local_id, episodes=8 if local_id == "CartPole-v1" else 1) > 100
        env.close()


# --- gymnasium -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "imports", ["import ospbridge, gymnasium", "import gymnasium, ospbridge", "import gymnasium"], ids=str
)
def test_ids_are_there_whichever_is_imported_first(imports: str) -> None:
    name = "ospbridge/Agent-v0" if "ospbridge" in imports else "ospbridge:ospbridge/Agent-v0"
    code = (
        f"{imports}\ntry:\n    gymnasium.make({name!r}, simulator='127.0.0.1:1')\n"
        "except Exception as error:\n    print(type(error).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "SimulatorNotFound", done.stderr


def test_importing_ospbridge_imports_neither_gymnasium_nor_numpy() -> None:
    code = "import sys, ospbridge; print({'gymnasium', 'numpy', 'trio'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"


def test_spaces_are_bounded_only_where_the_profile_keeps_its_ranges(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(2, 300), port=0, profile=profile) as simulator:
        env = made(simulator)
        observations, actions = env.observation_space, env.action_space
        assert isinstance(observations, gymnasium.spaces.Box)
        assert isinstance(actions, gymnasium.spaces.Box)
        assert observations.is_bounded() is profile.outputs_normalised
        np.testing.assert_array_equal(actions.low, [-1, -1])
        assert observations.dtype == actions.dtype == np.float32
        env.reset(seed=9)
        action = np.array([0.5, -0.5], np.float32)
        np.testing.assert_array_equal(env.step(action)[0], expected(action, 2, 300, seed=9))
        env.close()


def test_the_keys_of_info_never_change_and_observations_are_the_callers(two_agents: UdpSimulator) -> None:
    env = made(two_agents, "agent1")
    first, info = env.reset(seed=4)
    keys = set(info)
    assert info["osp_seed"] == 4
    kept = first.copy()
    for _ in range(3):
        observation, *_, info = env.step(np.zeros(2, np.float32))
        assert set(info) == keys
        observation += 1
    np.testing.assert_array_equal(first, kept)
    env.close()


# --- seeds -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**80))
def test_every_seed_maps_to_a_fixed_nonzero_31_bit_seed(seed: int) -> None:
    assert 1 <= osp_seed(seed) <= LARGEST_SEED
    assert osp_seed(seed) == osp_seed(seed)
    if 1 <= seed <= LARGEST_SEED:
        assert osp_seed(seed) == seed


def test_without_a_seed_one_is_drawn_from_the_environments_generator(two_agents: UdpSimulator) -> None:
    env = made(two_agents, "agent1")
    drawn = []
    for _ in range(2):
        env.reset(seed=3)
        drawn.append([env.reset()[1]["osp_seed"] for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3
    env.close()


def test_one_seed_is_counted_on_from_and_several_are_one_for_each() -> None:
    assert list(each_seed(None, 2)) == [None, None]
    assert list(each_seed(7, 3)) == [7, 8, 9]
    assert list(each_seed(np.int64(7), 2)) == [7, 8]  # type: ignore[arg-type]  # as programs draw them
    assert list(each_seed([5, None], 2)) == [5, None]
    with pytest.raises(UsageError, match="3 seeds for 2 environments"):
        each_seed([1, 2, 3], 2)


# --- sharing ---------------------------------------------------------------------------------------------------------


def test_a_twin_shares_the_session_and_the_one_reset_last_owns_the_agent(two_agents: UdpSimulator) -> None:
    first, second = made(two_agents, "agent1"), made(two_agents, "agent1")
    first.reset(seed=1)
    second.reset(seed=2)
    with pytest.raises(LocalProtocolError, match=r"was reset later.*an agent each"):
        first.step(np.zeros(2, np.float32))
    second.step(np.zeros(2, np.float32))
    second.close()
    first.reset(seed=3)
    first.step(np.zeros(2, np.float32))
    first.close()
    assert free_agents(two_agents) == ["agent1", "agent2"]


class Interrupted:
    """A socket on which Ctrl-C is pressed in every wait."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real

    def recv(self, *_: int) -> Any:
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_ctrl_c_in_a_step_may_come_more_often_than_a_session_may_be_rebuilt(
    two_agents: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    env: Any = made(two_agents, "agent1")
    for _ in range(CAPACITY + 2):
        env.reset(seed=1)
        env.step(np.zeros(2, np.float32))
        channel = env.unwrapped._backend.shared.session.channel
        with monkeypatch.context() as patch:
            patch.setattr(channel, "sock", Interrupted(channel.sock))
            with pytest.raises(KeyboardInterrupt):
                env.step(np.zeros(2, np.float32))
    env.reset(seed=1)
    assert not env.step(np.zeros(2, np.float32))[3]
    env.close()


def test_a_second_agent_of_the_same_simulator_in_one_thread_is_refused_with_the_way_out(
    two_agents: UdpSimulator,
) -> None:
    env = made(two_agents, "agent1")
    with pytest.raises(AgentsInUse) as caught:
        made(two_agents, "agent2")
    assert "make_vec" in caught.value.hint
    assert "parallel" in caught.value.hint
    env.close()


# --- bad input -------------------------------------------------------------------------------------------------------


def test_mistakes_are_told_with_the_next_step(two_agents: UdpSimulator) -> None:
    with pytest.raises(AgentNotFound, match="no agent was named"):
        made(two_agents)
    with pytest.raises(AgentNotFound, match="more than one") as several:
        made(two_agents, "agent*")
    assert "agent='agent1'" in several.value.hint
    with pytest.raises(AgentNotFound):
        made(two_agents, "robot*")
    assert free_agents(two_agents) == ["agent1", "agent2"]
    with pytest.raises(SimulatorNotFound):
        gymnasium.make("ospbridge/Agent-v0", simulator="127.0.0.1:1")


def test_actions_that_cannot_be_sent_are_refused_and_the_episode_goes_on(two_agents: UdpSimulator) -> None:
    env = made(two_agents, "agent1", disable_env_checker=True)
    env.reset(seed=1)
    wrong: list[Any] = [
        *(np.zeros(3, np.float32), np.zeros((1, 2), np.float32), np.array([0, np.nan], np.float32)),
        *([[0.0], [0.0, 1.0]], ["a", "b"], [10**400, 0], [None, object()]),
    ]
    for action in wrong:
        with pytest.raises(LocalProtocolError, match="agent1"):
            env.step(action)
    env.step(np.zeros(2, np.float32))
    env.close()


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_forgotten_environment_gives_its_agent_back(two_agents: UdpSimulator) -> None:
    env = made(two_agents, "agent1")
    env.reset(seed=1)
    del env
    gc.collect()
    assert free_agents(two_agents) == ["agent1", "agent2"]


# --- several at one simulator --------------------------------------------------------------------------------------


@pytest.fixture
def hub(runtime_directory: Path) -> Path:
    """Where the daemon of this test listens."""
    return runtime_directory / "hub"


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
            env = single(bridge=f"unix:{hub}", agent="agent1")
            env.reset(seed=1)
            world.hold()
            step = pool.submit(env.step, np.zeros(1, np.float32))
            assert world.begun.wait(30)
            daemon.kill()
            with pytest.raises(HubLost):
                step.result(30)
            world.go.set()
        with hosted(simulator.address, hub), closing(single(bridge=f"unix:{hub}", agent="agent2")) as other:
            other.reset(seed=1)
            other.step(np.zeros(1, np.float32))
        with BlockingSession.connect(simulator.address, reclaim_stale=False) as session:
            assert all(entry.available for entry in session.agents())
