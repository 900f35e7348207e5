"""Tasks of users' own classes that fail: told to their environment, and nobody else's loss."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from ospbridge.errors import TaskError
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted
from tests.envs.kinds import rest, single, step, vector

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


@pytest.fixture
def fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing.py").write_text(CLASS)
    scenario = tmp_path / "fails.toml"
    scenario.write_text('name = "fails"\n[[agent]]\ntask = "failing:Fails"\n')
    return str(scenario)


WHERE = pytest.mark.parametrize("where, value", [("inputs", 0.25), ("observe", 0.5), ("judge", 0.75)])


@WHERE
def test_a_class_that_fails_in_the_daemon_ends_its_own_agents_episode_and_no_other(
    where: str, value: float, fails: str, runtime_directory: Path
) -> None:
    hub = runtime_directory / "hub"
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0) as simulator,
        hosted(simulator.address, hub, "--scenario", fails, "--quorum", "2"),
        ThreadPoolExecutor(1) as beside,
    ):
        one, two = (single(bridge=f"unix:{hub}", agent=agent) for agent in ("agent1", "agent2"))
        begun = beside.submit(two.reset, seed=1)
        one.reset(seed=1)
        begun.result(30)
        told = beside.submit(lambda: [step(two) for _ in range(3)])
        failed = f"Fails.{where} failed: RuntimeError: no table of torques"
        if where == "inputs":
            with pytest.raises(TaskError, match=failed):
                one.step(np.full(2, value, np.float32))
        else:
            *_, truncated, info = one.step(np.full(2, value, np.float32))
            assert truncated
            assert failed in info["reason"]
        assert [truncated for *_, truncated, _ in told.result(30)] == [False] * 3
        two.close()
        one.reset(seed=2)
        assert not step(one)[3]
        one.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("worlds, agents", [(1, 2), (2, 1), (2, 2)])
@WHERE
def test_a_class_that_fails_in_a_vector_is_told_and_the_next_reset_plays_on(
    worlds: int, agents: int, where: str, value: float, fails: str
) -> None:
    with ExitStack() as stack:
        simulators = [
            str(stack.enter_context(UdpSimulator(SyntheticWorld(2, 3, 1, agents=agents), port=0)).address)
            for _ in range(worlds)
        ]
        envs = stack.enter_context(
            closing(vector(simulators, num_envs=worlds * agents, agents="*", scenario=fails))
        )
        for seed in (1, 2):
            envs.reset(seed=seed)
            *_, truncations, infos = step(envs)
            assert not truncations.any()
            assert infos["_infos"].all()
            actions = rest(envs)
            actions[-1] = value
            with pytest.raises(TaskError, match=f"Fails.{where} failed: RuntimeError: no table of torques"):
                envs.step(actions)
