"""Tasks of users' own classes that fail: told to their environment, and nobody else's loss."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import TaskError
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted

pytestmark = pytest.mark.loopback

CLASS = """
from ospbridge.task.scenario_task import ScenarioTask


class Fails(ScenarioTask):
    where = ""

    def inputs(self, action):
        self.where = {0.25: "inputs", 0.5: "observe", 0.75: "judge"}.get(float(action[0]), "")
        self.fail("inputs")
        return super().inputs(action)

    def observe(self, outcome):
        self.fail("observe")
        return super().observe(outcome)

    def judge(self, outcome):
        self.fail("judge")
        return super().judge(outcome)

    def fail(self, here):
        if self.where == here:
            self.where = ""
            raise RuntimeError("no table of torques")
"""


@pytest.mark.parametrize("where, value", [("inputs", 0.25), ("observe", 0.5), ("judge", 0.75)])
def test_a_class_that_fails_in_the_daemon_ends_its_own_agents_episode_and_no_other(
    where: str, value: float, tmp_path: Path, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    (tmp_path / "failing.py").write_text(CLASS)
    scenario = tmp_path / "fails.toml"
    scenario.write_text('name = "fails"\n[[agent]]\ntask = "failing:Fails"\n')
    monkeypatch.syspath_prepend(tmp_path)
    hub = runtime_directory / "hub"
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0) as simulator,
        hosted(simulator.address, hub, "--scenario", str(scenario), "--quorum", "2"),
    ):
        one, two = (made(hub, agent) for agent in ("agent1", "agent2"))
        beside = threading.Thread(target=two.reset, kwargs={"seed": 1})
        beside.start()
        one.reset(seed=1)
        beside.join()
        told: list[Any] = []
        beside = threading.Thread(target=steps, args=(two, 3, told))
        beside.start()
        failed = f"Fails.{where} failed: RuntimeError: no table of torques"
        if where == "inputs":
            with pytest.raises(TaskError, match=failed):
                one.step(np.full(2, value, np.float32))
        else:
            *_, truncated, info = one.step(np.full(2, value, np.float32))
            assert truncated
            assert failed in info["reason"]
        beside.join()
        assert [truncated for *_, truncated, _ in told] == [False] * 3
        two.close()
        one.reset(seed=2)
        *_, truncated, _ = one.step(np.zeros(2, np.float32))
        assert not truncated
        one.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("where, value", [("inputs", 0.25), ("observe", 0.5), ("judge", 0.75)])
def test_a_class_that_fails_in_a_vector_is_told_and_the_next_reset_plays_on(
    counts: tuple[int, int], where: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_here.py").write_text(CLASS)
    scenario = tmp_path / "fails.toml"
    scenario.write_text('name = "fails"\n[[agent]]\ntask = "failing_here:Fails"\n')
    monkeypatch.syspath_prepend(tmp_path)
    worlds, agents = counts
    count = worlds * agents
    with ExitStack() as stack:
        simulators = [
            str(stack.enter_context(UdpSimulator(SyntheticWorld(2, 3, 1, agents=agents), port=0)).address)
            for _ in range(worlds)
        ]
        envs = gymnasium.make_vec(
            "ospbridge/Agent-v0", num_envs=count, simulator=simulators, scenario=str(scenario)
        )
        stack.callback(envs.close)
        for seed in (1, 2):
            envs.reset(seed=seed)
            actions = np.zeros((count, 2), np.float32)
            _, _, _, truncations, infos = envs.step(actions)
            assert not truncations.any()
            assert infos["_infos"].all()
            actions[-1] = value
            with pytest.raises(TaskError, match=f"Fails.{where} failed: RuntimeError: no table of torques"):
                envs.step(actions)


def made(hub: Path, agent: str) -> Any:
    return gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}", agent=agent).unwrapped


def steps(env: Any, count: int, told: list[Any]) -> None:
    told.extend(env.step(np.zeros(2, np.float32)) for _ in range(count))
