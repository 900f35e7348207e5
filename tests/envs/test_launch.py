"""Environments that launch their simulators: the same episodes, one process each, and none is ever left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

from ospbridge.envs import rllib
from ospbridge.errors import SessionLost, SimulatorNotStarted, UsageError
from ospbridge.launch import simulator
from ospbridge.task.shipped import shipped_file
from tests.envs.kinds import parallel, vector
from tests.envs.vectors import assert_equal_episodes

pytestmark = [pytest.mark.loopback, pytest.mark.timeout(300)]
CARTPOLE = "ospbridge/CartPole-v0"
WITHIN = 30.0


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def simulators() -> list[psutil.Process]:
    """Those that this process, or one that it has started, has launched and that run."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "sim" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def launched(env: gymnasium.Env[Any, Any]) -> simulator.LaunchedSimulator:
    found = env.unwrapped._backend.shared.launched  # type: ignore[attr-defined]
    assert isinstance(found, simulator.LaunchedSimulator)
    return found


def make_launched() -> gymnasium.Env[Any, Any]:
    return gymnasium.make(CARTPOLE, launch=True)


def test_twenty_episodes_equal_the_local_ones() -> None:
    env = gymnasium.make(CARTPOLE, launch=True)
    assert_equal_episodes(env, "CartPole-v1", episodes=20, seed=1)
    env.close()
    assert simulators() == []


def test_a_copy_by_its_spec_starts_its_own() -> None:
    env = gymnasium.make(CARTPOLE, launch=True)
    assert env.spec is not None
    other = gymnasium.make(env.spec)
    assert launched(env).address != launched(other).address
    for each in (env, other):
        each.reset(seed=1)
        each.step(0)
        each.close()


@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_workers_in_processes_of_their_own_start_their_own(context: str) -> None:
    before = gymnasium.make(CARTPOLE, launch=True)
    before.reset(seed=1)
    # A spawned worker imports this module, and ospbridge with it, to find its function.
    envs = gymnasium.vector.AsyncVectorEnv([make_launched] * 2, context=context)
    envs.reset(seed=1)
    for _ in range(5):
        envs.step(envs.action_space.sample())
    assert len(simulators()) == 3
    envs.close()
    # The children have ended nothing of their parent's.
    before.step(0)
    before.close()
    assert simulators() == []


def test_an_environment_that_nobody_closed_leaves_nothing() -> None:
    env = gymnasium.make(CARTPOLE, launch=True)
    assert len(simulators()) == 1
    del env
    gc.collect()
    assert simulators() == []


@pytest.mark.parametrize(
    "then", ["os.kill(os.getpid(), 9)", "os._exit(3)", "1 / 0"], ids=["killed", "gone", "failed"]
)
def test_whatever_ends_the_owner_no_simulator_is_left(then: str) -> None:
    code = (
        "import os, sys, gymnasium, ospbridge; "
        f"env = gymnasium.make('{CARTPOLE}', launch=True); env.reset(); "
        f"print(env.unwrapped._backend.shared.launched.pid, flush=True); {then}"
    )
    owner = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    give_up = time.monotonic() + WITHIN
    while psutil.pid_exists(int(owner.stdout)) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not psutil.pid_exists(int(owner.stdout))


def test_a_crash_truncates_with_the_reason_and_the_next_reset_starts_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shipped_file("cartpole")
    assert file is not None
    (tmp_path / "mine.toml").write_text(file.read_text())
    # A relative scenario means the directory in which the environment is made.
    monkeypatch.chdir(tmp_path)
    env = gymnasium.make("ospbridge/Agent-v0", scenario="mine.toml", launch=True)
    monkeypatch.chdir("/")
    env.reset(seed=1)
    one = launched(env)
    for _ in range(2):
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        *_, terminated, truncated, info = env.step(0)
        assert (terminated, truncated) == (False, True)
        assert info["reason"].endswith("the launched simulator is gone: it was ended by SIGKILL")
        env.reset(seed=1)
        env.step(0)
    assert len(simulators()) == 1
    env.close()
    assert simulators() == []


def test_one_that_dies_at_once_again_and_again_is_given_up_and_one_that_lived_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = gymnasium.make(CARTPOLE, launch=True)
    env.reset(seed=1)
    one = launched(env)
    budget = env.unwrapped._backend.shared.budget  # type: ignore[attr-defined]
    budget._left = 1.0

    def crash() -> None:
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        env.step(0)
        env.reset(seed=1)

    monkeypatch.setattr(simulator, "PROVEN", 0.0)
    crash()
    crash()
    monkeypatch.setattr(simulator, "PROVEN", 1e9)
    crash()
    with pytest.raises(SessionLost, match="rebuilds are spent"):
        crash()
    env.close()


def test_a_vector_environment_starts_as_many_as_it_takes_and_each_crash_is_its_own() -> None:
    envs = gymnasium.make_vec(CARTPOLE, num_envs=3, launch=True, vectorization_mode="vector_entry_point")
    envs.reset(seed=1)
    fleet = envs._fleet  # type: ignore[attr-defined]
    action = np.zeros(3, np.int64)
    for number, group in enumerate(fleet.groups):
        os.kill(group.backend.shared.launched.pid, signal.SIGKILL)
        *_, truncations, infos = envs.step(action)
        assert np.flatnonzero(truncations).tolist() == [number]
        assert infos["reason"][number].endswith("it was ended by SIGKILL")
        # That one is reset by this step; the others go on.
        *_, terminations, truncations, _ = envs.step(action)
        assert not (terminations | truncations).any()
    assert len(simulators()) == 3
    envs.close()
    assert simulators() == []


def runners_of_rllib() -> list[Any]:
    config = {"env_id": CARTPOLE, "launch": True}
    assert set(rllib.spaces(config)) == {"observation_space", "action_space"}
    return [rllib.env_creator(config) for _ in range(2)]


@pytest.mark.parametrize(
    "made, count",
    [
        (lambda: [parallel(scenario="arena_two", launch=True)], 1),
        (lambda: [vector(num_envs=4, scenario="arena_two", launch=True)], 2),
        (runners_of_rllib, 2),
    ],
    ids=["parallel", "vector of two agents each", "runners of RLlib"],
)
def test_each_kind_launches_as_many_as_it_takes(made: Callable[[], list[Any]], count: int) -> None:
    envs = made()
    for env in envs:
        env.reset(seed=1)
    assert len(simulators()) == count
    for env in envs:
        env.close()
    assert simulators() == []


@pytest.mark.parametrize(
    "options, told",
    [
        ({"launch": True, "simulator": "127.0.0.1:45454"}, "launch was given, and 127.0.0.1:45454 too"),
        ({"launch": True, "bridge": "unix:/run/hub.sock"}, "launch was given, and unix:/run/hub.sock too"),
        ({"pin": False, "simulator": "127.0.0.1:45454"}, "pin and batch were given without launch"),
        ({"launch": "sh -c :"}, "says nowhere which port"),
    ],
)
def test_what_contradicts_itself_is_told_before_anything_is_started(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        gymnasium.make(CARTPOLE, **options)
    assert simulators() == []


def test_who_listens_and_is_no_osp_server_is_told_with_what_it_said_last() -> None:
    code = "import socket, sys, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', "
    code += "int(sys.argv[1]))); print('I am no simulator', flush=True); time.sleep(100)"
    table = {"command": [sys.executable, "-c", code, "{port}"], "ready": 1}
    with pytest.raises(SimulatorNotStarted, match=r"does not answer as an OSP server.*I am no simulator"):
        gymnasium.make(CARTPOLE, launch=table, connect_timeout=0.5)
