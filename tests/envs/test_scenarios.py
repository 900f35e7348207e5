"""Environments of scenarios: the registered ids, direct and through a daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs import SCENARIO_IDS, sharing
from ospbridge.errors import TaskError, UsageError
from ospbridge.osp.notices import Notice, WorldReset
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load
from ospbridge.task.shipped import shipped
from tests.envs.daemons import hosted
from tests.envs.kinds import only, rest, single, step, vector
from tests.envs.vectors import assert_equal_episodes

pytestmark = pytest.mark.loopback


@contextmanager
def playing(scenario: str, profile: Profile = DOCUMENT) -> Iterator[UdpSimulator]:
    with UdpSimulator(world_of(load(scenario)), port=0, profile=profile) as simulator:
        yield simulator


def test_every_shipped_scenario_has_an_id_and_every_id_a_scenario() -> None:
    said = {
        agent.env_id: (name, agent.nondeterministic)
        for name in shipped()
        for agent in load(name).agent
        if agent.env_id
    }
    assert said == SCENARIO_IDS
    assert {scenario for scenario, _ in SCENARIO_IDS.values()} == set(shipped())
    for env_id, (_, nondeterministic) in SCENARIO_IDS.items():
        assert gymnasium.spec(env_id).nondeterministic is nondeterministic


def test_cartpole_equals_the_local_environment(profile: Profile) -> None:
    with playing("cartpole", profile) as simulator:
        env = gymnasium.make("ospbridge/CartPole-v0", simulator=str(simulator.address))
        assert_equal_episodes(env, "CartPole-v1", episodes=5, seed=1)
        env.close()


def test_a_daemon_and_a_direct_environment_play_the_same_episode(runtime_directory: Path) -> None:
    hub = runtime_directory / "hub.sock"

    def played(env: gymnasium.Env[Any, Any]) -> list[tuple[Any, ...]]:
        env.action_space.seed(1)
        first, info = env.reset(seed=5)
        found: list[tuple[Any, ...]] = [(first.tolist(), sorted(info))]
        for _ in range(50):
            seen, reward, terminated, truncated, info = env.step(env.action_space.sample())
            found.append((seen.tolist(), reward, terminated, truncated, sorted(info)))
            if terminated or truncated:
                break
        env.close()
        return found

    with playing("arena_avoid") as simulator:
        direct = played(gymnasium.make("ospbridge/ArenaAvoid-v0", simulator=str(simulator.address)))
        with hosted(simulator.address, hub, "--scenario", "arena_avoid"):
            through = played(gymnasium.make("ospbridge/ArenaAvoid-v0", bridge=f"unix:{hub}"))
    assert direct == through
    assert len({tuple(step[-1]) for step in direct}) == 1


def test_the_arenas_bump_ends_the_episode() -> None:
    with playing("arena_avoid") as simulator:
        env = gymnasium.make("ospbridge/ArenaAvoid-v0", simulator=str(simulator.address))
        env.reset(seed=1)
        steps = [env.step(np.ones(2, np.float32))]
        while not steps[-1][2] and len(steps) < 499:
            steps.append(env.step(np.ones(2, np.float32)))
        _, _, terminated, truncated, info = steps[-1]
        assert terminated
        assert not truncated
        assert "/Arena/Bump" in info["events"]
        env.close()


@pytest.mark.parametrize("made", [single, vector])
def test_a_daemon_that_plays_no_or_another_scenario_of_the_same_spaces_is_refused(
    made: Any, runtime_directory: Path, tmp_path: Path
) -> None:
    """Also one at the usual place, which nobody has named."""
    hub = runtime_directory / "ospbridge" / "hub.sock"
    mine, other = tmp_path / "mine.toml", tmp_path / "other.toml"
    for file in (mine, other):
        file.write_text(f'name = "{file.stem}"\n[[agent]]\n[agent.episode]\nreward = "1.0"\n')
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        for options, played in (((), "no scenario"), (("--scenario", str(other)), "scenario 'other'")):
            with hosted(simulator.address, hub, *options):
                for where in ({}, {"bridge": f"unix:{hub}"}):
                    with pytest.raises(UsageError, match=f"plays another task .*: that of {played}"):
                        made(scenario=str(mine), **where)
                made().close()
        with hosted(simulator.address, hub, "--scenario", str(mine)):
            made(scenario=str(mine), bridge=f"unix:{hub}").close()


# --- files of the user's ------------------------------------------------------------------------------------------


def cart(tmp_path: Path, text: str, top: str = "") -> str:
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\n{top}\n[[agent]]\n[agent.names]\nx = "output:/cart/position"\n{text}')
    return str(file)


def cart_env(simulator: UdpSimulator, scenario: str, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(
        "ospbridge/Agent-v0", simulator=str(simulator.address), scenario=scenario, **options
    )


@pytest.fixture
def carts() -> Iterator[UdpSimulator]:
    with UdpSimulator(GymWorld(["CartPole-v1"]), port=0) as simulator:
        yield simulator


def test_values_are_set_and_drawn_from_the_seed_at_each_reset(carts: UdpSimulator, tmp_path: Path) -> None:
    top = (
        '[values]\n"/Sim/cart/Parameter/gravity" = 5.0\n'
        '[randomise]\n"/Sim/cart/Parameter/length" = { low = 0.4, high = 0.6 }\n'
    )
    text = '[agent.observe]\nvalues = ["/Sim/cart/Parameter/gravity", "/Sim/cart/Parameter/length"]\n'
    env = cart_env(carts, cart(tmp_path, text, top))
    assert env.observation_space.shape == (6,)
    lengths = []
    for seed in (1, 2, 1):
        seen, _ = env.reset(seed=seed)
        assert seen[4] == 5.0
        lengths.append(float(seen[5]))
    assert lengths[0] == lengths[2] != lengths[1]
    assert all(0.4 <= length <= 0.6 for length in lengths)
    env.close()


def test_action_repeat_adds_up_rewards_and_counts_actions(carts: UdpSimulator, tmp_path: Path) -> None:
    text = '[agent.episode]\nreward = "1"\nterminated = "False"\nmax_steps = 3\n'
    env = cart_env(carts, cart(tmp_path, text, "action_repeat = 4"))
    env.reset(seed=1)
    told = [env.step(env.action_space.sample())[1:4] for _ in range(3)]
    assert told == [(4.0, False, False), (4.0, False, False), (4.0, False, True)]
    env.close()


class Resetting(SyntheticWorld):
    """Somebody resets it, as its session is told, when its second step behind the neutral one is made."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.made = 0
        self.notices: list[Notice] = []

    def step(self) -> None:
        super().step()
        self.made += 1
        if self.made == 3:
            self.notices.append(WorldReset("somebody reset it"))


@pytest.mark.parametrize("made", [single, vector])
def test_an_action_is_not_repeated_in_a_world_that_somebody_else_has_reset(made: Any, tmp_path: Path) -> None:
    scenario = tmp_path / "repeated.toml"
    scenario.write_text(
        'name = "repeated"\naction_repeat = 5\n[[agent]]\n[agent.episode]\nreward = "1"\nterminated = "False"\n'
    )
    world = Resetting()
    with UdpSimulator(world, port=0) as simulator:
        env = made(str(simulator.address), scenario=str(scenario))
        (shared,) = sharing._shared.values()
        world.notices = shared.session.machine.notices
        env.reset(seed=1)
        _, reward, _, truncated, info = env.step(np.zeros(env.action_space.shape, np.float32))
        assert (only(reward), only(truncated), world.made) == (2.0, True, 3)
        assert "somebody reset it" in only(info["reason"])
        env.close()


def test_a_reset_observation_of_zeros_takes_no_step(carts: UdpSimulator, tmp_path: Path) -> None:
    text = '[agent.observe]\nhistory = 2\n[agent.episode]\nreset_observation = "zeros"\n'
    env = cart_env(carts, cart(tmp_path, text))
    seen, _ = env.reset(seed=1)
    assert seen.tolist() == [0.0] * 8
    seen, *_ = env.step(np.zeros(1, np.float32))
    assert seen[:4].tolist() == [0.0] * 4
    assert seen[4:].any()
    env.close()


# --- classes of the user's that fail -------------------------------------------------------------------------------


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
