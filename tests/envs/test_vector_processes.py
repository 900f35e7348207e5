"""The vector environment over simulators that are processes of their own: they die, and they think side by side."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

import ospbridge
from ospbridge.errors import SessionClosed, SimulatorNotFound
from ospbridge.session.blocking import BlockingSession
from tests.envs.vectors import fleet, simulator_processes

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


def test_a_killed_simulator_truncates_its_own_environments_only_and_is_rebuilt_when_it_is_back() -> None:
    with simulator_processes(3, "--synthetic", "1,1,0") as (addresses, programs):
        envs = fleet(addresses, 3, query_timeout=0.5, step_timeout=2.0)
        actions = np.zeros((3, 1), np.float32)
        envs.reset(seed=1)
        envs.step(actions)
        os.kill(programs[1].pid, signal.SIGKILL)
        programs[1].wait()
        started = time.monotonic()
        _, _, terminations, truncations, info = envs.step(actions)
        assert time.monotonic() - started < 5
        assert truncations.tolist() == [False, True, False]
        assert not terminations.any()
        assert [bool(reason) for reason in info["reason"]] == [False, True, False]
        port = addresses[1].rpartition(":")[2]
        with subprocess.Popen(
            [sys.executable, "-m", "ospbridge", "sim", "--synthetic", "1,1,0", "--port", port, "--quiet"]
        ) as successor:
            _, _, _, truncations, info = envs.step(actions)
            assert not truncations.any()
            assert info["reason"].tolist() == ["", "", ""]
            envs.step(actions)
            envs.close()
            successor.kill()


def test_in_same_step_mode_the_reason_of_a_loss_is_in_the_final_info() -> None:
    with simulator_processes(2, "--synthetic", "1,1,0") as (addresses, programs):
        envs = fleet(addresses, 2, query_timeout=0.5, step_timeout=2.0, autoreset_mode="SameStep")
        actions = np.zeros((2, 1), np.float32)
        envs.reset(seed=1)
        before, *_ = envs.step(actions)
        os.kill(programs[0].pid, signal.SIGKILL)
        programs[0].wait()
        port = addresses[0].rpartition(":")[2]
        with subprocess.Popen(
            [sys.executable, "-m", "ospbridge", "sim", "--synthetic", "1,1,0", "--port", port, "--quiet"]
        ) as successor:
            _, _, _, truncations, info = envs.step(actions)
            assert truncations.tolist() == [True, False]
            assert info["_final_info"].tolist() == [True, False]
            assert info["final_info"]["reason"][0]
            np.testing.assert_array_equal(info["final_obs"][0], before[0])
            assert info["reason"].tolist() == ["", ""]
            _, _, _, truncations, _ = envs.step(actions)
            assert not truncations.any()
            envs.close()
            successor.kill()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_simulator_that_stays_away_is_an_error_after_the_limit_and_a_reset_goes_on(mode: str) -> None:
    with simulator_processes(2, "--synthetic", "1,1,0") as (addresses, programs):
        envs = fleet(
            addresses, 2, query_timeout=0.5, step_timeout=2.0, connect_timeout=0.5, autoreset_mode=mode
        )
        actions = np.zeros((2, 1), np.float32)
        envs.reset(seed=1)
        os.kill(programs[0].pid, signal.SIGKILL)
        programs[0].wait()
        mask = np.array([True, False])
        if mode != "SameStep":
            _, _, _, truncations, _ = envs.step(actions)
            assert truncations.tolist() == [True, False]
        again = partial(envs.reset, options={"reset_mask": mask})
        with pytest.raises(SimulatorNotFound, match="nothing listens"):
            again() if mode == "Disabled" else envs.step(actions)
        port = addresses[0].rpartition(":")[2]
        with subprocess.Popen(
            [sys.executable, "-m", "ospbridge", "sim", "--synthetic", "1,1,0", "--port", port, "--quiet"],
            stdout=subprocess.PIPE,
        ) as successor:
            assert successor.stdout is not None
            successor.stdout.readline()
            if mode == "NextStep":
                envs.step(actions)
            else:
                # The other world goes on where it was.
                again()
            _, _, _, truncations, info = envs.step(actions)
            assert not truncations.any()
            assert info["reason"].tolist() == ["", ""]
            envs.close()
            successor.kill()


@pytest.mark.parametrize("halves", [False, True], ids=["whole", "in-its-midst"])
def test_a_forked_child_cannot_step_and_harms_nothing(*, halves: bool) -> None:
    with simulator_processes(2, "--synthetic", "1,1,0") as (addresses, _):
        envs: Any = fleet(addresses, 2).unwrapped
        envs.reset(seed=1)
        nothing = np.zeros((2, 1), np.float32)
        step = envs.recv if halves else partial(envs.step, nothing)
        if halves:
            envs.send(nothing)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()

        def child() -> None:
            try:
                step()
            except SessionClosed as error:
                queue.put(error.message)
            envs.close()

        process = context.Process(target=child)
        process.start()
        assert "parent process" in queue.get(timeout=20)
        process.join(timeout=20)
        assert process.exitcode == 0
        assert not step()[3].any()
        envs.close()


def test_a_vector_environment_that_nobody_closed_gives_its_agents_back_at_exit() -> None:
    with simulator_processes(2, "--synthetic", "1,1,0") as (addresses, _):
        code = (
            "import gymnasium, ospbridge\n"
            f"envs = gymnasium.make_vec('ospbridge/Agent-v0', num_envs=2, simulator={addresses!r})\n"
            "envs.reset()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == ""
        for address in addresses:
            with BlockingSession.connect(address, reclaim_stale=False) as session:
                assert all(entry.available for entry in session.agents())
