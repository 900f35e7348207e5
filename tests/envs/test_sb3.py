"""The vector environment of Stable-Baselines3: what its learners are told, direct and through hubs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from ospbridge.envs.vector import OspVectorEnv
from ospbridge.errors import LocalProtocolError, SimulatorNotFound, UsageError
from ospbridge.interface import Feedback, StepOutcome
from ospbridge.osp.profile import Profile
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.scenario_task import ScenarioTask
from tests.envs.vectors import cart_poles, fleet

pytest.importorskip("stable_baselines3", reason="needs the extra: pip install 'ospbridge[sb3]'")
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from ospbridge.envs.sb3 import OspVecEnv

pytestmark = pytest.mark.loopback
ENV_ID = "ospbridge/CartPole-v0"


def test_each_environment_is_the_local_one_of_its_seed_and_its_end_is_told(profile: Profile) -> None:
    local = gymnasium.make("CartPole-v1")
    with cart_poles(2, profile=profile) as addresses:
        env: Any = OspVecEnv.make(ENV_ID, num_envs=2, simulator=addresses)
        env.seed(7)
        observations = env.reset()
        wanted, _ = local.reset(seed=8)
        np.testing.assert_array_equal(observations[1], wanted)
        assert [info["osp_seed"] for info in env.reset_infos] == [7, 8]
        over, infos = False, list[dict[str, Any]]()
        while not over:
            observations, rewards, ended, infos = env.step(np.ones(2, np.int64))
            wanted, reward, over, *_ = local.step(1)
            assert rewards.dtype == np.float32
            assert (rewards[1], ended[1]) == (reward, over)
            assert ("terminal_observation" in infos[1]) is over
        np.testing.assert_array_equal(infos[1]["terminal_observation"], wanted)
        assert infos[1]["TimeLimit.truncated"] is False
        assert infos[1]["reason"] == ""
        first, _ = local.reset(seed=int(infos[1]["osp_seed"]))
        np.testing.assert_array_equal(observations[1], first)
        env.close()
    local.close()


def test_the_last_of_max_steps_is_truncated_and_a_monitor_counts_the_episode() -> None:
    with UdpSimulator(ArenaWorld(2), port=0) as simulator:
        env: Any = VecMonitor(
            OspVecEnv.make("ospbridge/ArenaTwo-v0", num_envs=2, simulator=str(simulator.address))
        )
        env.reset()
        for _ in range(399):
            _, _, ended, _ = env.step(np.zeros((2, 2), np.float32))
            assert not ended.any()
        _, _, ended, infos = env.step(np.zeros((2, 2), np.float32))
        assert ended.all()
        for info in infos:
            assert info["TimeLimit.truncated"] is True
            assert info["episode"]["l"] == 400
        env.close()


def test_a_lost_simulator_truncates_its_environment_and_its_successor_is_joined_in_the_same_step() -> None:
    with cart_poles(1) as addresses:
        with UdpSimulator(GymWorld(["CartPole-v1"]), port=0) as simulator:
            address = simulator.address
            env: Any = OspVecEnv.make(
                ENV_ID, num_envs=2, simulator=[*addresses, str(address)], connect_timeout=0.5
            )
            env.reset()
            kept, *_ = env.step(np.zeros(2, np.int64))
        with UdpSimulator(GymWorld(["CartPole-v1"]), host=address.host, port=address.port):
            observations, _, ended, infos = env.step(np.zeros(2, np.int64))
            assert ended.tolist() == [False, True]
            assert infos[1]["TimeLimit.truncated"] is True
            assert "gone" in infos[1]["reason"]
            np.testing.assert_array_equal(infos[1]["terminal_observation"], kept[1])
            assert not np.array_equal(observations[1], kept[1])
        with pytest.raises(SimulatorNotFound):
            env.step(np.zeros(2, np.int64))
        env.close()


def test_other_wrappers_go_around_it() -> None:
    with cart_poles(2) as addresses:
        env: Any = VecNormalize(VecMonitor(OspVecEnv.make(ENV_ID, num_envs=2, simulator=addresses)))
        env.reset()
        observations, *_ = env.step(np.zeros(2, np.int64))
        assert np.isfinite(observations).all()
        assert env.get_attr("num_envs") == [2, 2]
        assert env.env_is_wrapped(VecMonitor) == [False, False]
        with pytest.raises(UsageError, match="cannot be set"):
            env.set_attr("copy", value=False)
        env.close()


def test_what_does_not_fit_stable_baselines3_is_refused() -> None:
    with cart_poles(1) as addresses:
        envs = fleet(addresses, 1, autoreset_mode=AutoresetMode.NEXT_STEP)
        with pytest.raises(UsageError, match="does not fit Stable-Baselines3"):
            OspVecEnv(envs)
        envs.close()
        envs = fleet(addresses, 1, autoreset_mode=AutoresetMode.SAME_STEP)
        others = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1")], autoreset_mode=AutoresetMode.SAME_STEP
        )
        for given in (gymnasium.wrappers.vector.ClipReward(envs, 0, 0.5), others):
            with pytest.raises(UsageError, match="as it was made") as caught:
                OspVecEnv(given)
            assert "go around OspVecEnv" in caught.value.hint
        envs.close()
        others.close()


class Balanced(ScenarioTask):
    """Tells whether the pole stood for three steps."""

    def restart(self, outcome: StepOutcome) -> None:
        super().restart(outcome)
        self.stood = 0

    def evaluate(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        feedback = super().evaluate(outcome, seed=seed)
        self.stood += 1
        feedback.info["is_success"] = self.stood > 3
        return feedback


def test_the_last_info_of_an_episode_is_told_with_what_a_task_class_adds(tmp_path: Path) -> None:
    scenario = tmp_path / "balanced.toml"
    scenario.write_text(
        f'name = "balanced"\n[[agent]]\nmatch = {{ name = "cart" }}\ntask = "{Balanced.__module__}:Balanced"\n'
        '[agent.names]\ntheta = "output:/pole/angle"\n[agent.episode]\nterminated = "abs(theta) > 0.2"\n'
    )
    with cart_poles(2) as addresses:
        env: Any = VecMonitor(
            OspVecEnv.make(num_envs=2, simulator=addresses, scenario=str(scenario)),
            info_keywords=("is_success",),
        )
        env.seed(7)
        env.reset()
        ended, infos = np.zeros(2, np.bool_), list[dict[str, Any]]()
        while not ended.any():
            assert all("is_success" not in info for info in infos)
            _, _, ended, infos = env.step(np.ones((2, 1), np.float32))
        over = int(ended.argmax())
        assert infos[over]["is_success"]
        assert infos[over]["episode"]["is_success"]
        assert infos[over]["infos"].keys() == {
            "/episode/reward",
            "/episode/terminated",
            "/episode/truncated",
        }
        assert infos[over]["infos"]["/episode/reward"] == 1.0
        assert (infos[over]["events"], infos[over]["values"], infos[over]["restored"]) == ((), {}, False)
        assert infos[over]["osp_seed"] not in {7, 8}
        env.close()


def test_environments_that_make_vec_env_gives_one_agent_are_told_so() -> None:
    with cart_poles(1) as (address,):
        options = {"simulator": address, "render_mode": None}
        env = make_vec_env(ENV_ID, n_envs=1, env_kwargs=options, seed=1)
        env.reset()
        env.step(np.zeros(1, np.int64))
        env.close()
        env = make_vec_env(ENV_ID, n_envs=2, env_kwargs=options)
        env.reset()
        with pytest.raises(LocalProtocolError, match="another environment of this process"):
            env.step(np.zeros(2, np.int64))
        env.close()


def test_it_is_made_with_the_arguments_of_the_vector_environment_but_for_the_mode_it_has_to_have() -> None:
    wanted = dict(inspect.signature(OspVectorEnv).parameters)
    del wanted["autoreset_mode"]
    taken = dict(inspect.signature(OspVecEnv.make).parameters)
    del taken["env_id"]
    assert {name: (each.annotation, each.default) for name, each in taken.items()} == {
        name: (each.annotation, each.default) for name, each in wanted.items()
    }
