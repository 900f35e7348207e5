"""What environments of every kind do alike, over sessions of their own or through a daemon."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from ospbridge.errors import LocalProtocolError, ScenarioInvalid, SessionClosed, StepUncertain, UsageError
from ospbridge.osp import reset
from ospbridge.osp.codes import ITERATIONS
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.world import Variable
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.rebuild import BEGINNINGS
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.outside import SELDOM
from tests.envs.daemons import reached
from tests.envs.kinds import EVERY_KIND, only, parallel, reason, rest, single, step, vector
from tests.raw_world import RawWorld

pytestmark = pytest.mark.loopback
EVERY_WAY = pytest.mark.parametrize(
    "made, way", [(single, "direct"), (vector, "direct"), (parallel, "direct"), (single, "hub")]
)


@pytest.fixture
def address() -> Iterator[str]:
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        yield str(simulator.address)


ANOTHER = {
    single: "gymnasium.make(env.spec)",
    vector: "gymnasium.make_vec(env.spec)",
    parallel: "parallel_env(...)",
}


@EVERY_KIND
def test_an_environment_says_that_it_cannot_be_copied_and_plays_on(
    made: Callable[..., Any], address: str
) -> None:
    env = made(address)
    env.reset(seed=1)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match="neither copied nor pickled") as caught:
            copied(env)
        assert f"make another one where it is wanted, for instance with {ANOTHER[made]}" in caught.value.hint
    step(env)
    env.close()


@pytest.mark.parametrize("made, mode", [(single, None), (vector, AutoresetMode.NEXT_STEP)])
def test_the_spec_survives_json(made: Callable[..., Any], mode: AutoresetMode | None, address: str) -> None:
    env = made(address, step_timeout=3.0)
    assert env.metadata.get("autoreset_mode") is mode
    again = EnvSpec.from_json(env.spec.to_json())
    assert again.kwargs == env.spec.kwargs
    assert again.kwargs["simulator"] == address
    assert env.spec.nondeterministic
    env.close()


@EVERY_KIND
def test_a_step_before_the_first_reset_and_use_after_close_are_told(
    made: Callable[..., Any], address: str
) -> None:
    env = made(address)
    with pytest.raises(LocalProtocolError, match=r"call reset first|or none was begun"):
        step(env)
    env.close()
    env.close()
    with pytest.raises(SessionClosed):
        env.reset()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(
    "made, what",
    [(single, "step"), (single, "reset"), (vector, "step"), (vector, "recv"), (parallel, "step")],
)
def test_a_forked_child_is_refused_and_harms_nothing(
    made: Callable[..., Any], what: str, address: str
) -> None:
    env = made(address)
    env.reset(seed=1)
    if what == "recv":
        env.send(rest(env))
    doing = {"step": partial(step, env), "reset": env.reset, "recv": getattr(env, "recv", None)}[what]
    context = multiprocessing.get_context("fork")
    told = context.Queue()

    def child() -> None:
        try:
            doing()
        except SessionClosed as error:
            told.put(error.message)
        env.close()

    process = context.Process(target=child)
    process.start()
    assert "parent process" in told.get(timeout=30)
    process.join(timeout=30)
    assert process.exitcode == 0
    doing()
    assert not only(step(env)[3])
    env.close()


@EVERY_WAY
def test_a_reset_warns_of_steps_that_the_clock_denies(
    made: Callable[..., Any], way: str, address: str, tmp_path: Path
) -> None:
    """In an episode that is reset before its end, as behind a wrapper that limits its time."""
    with reached(way, address, tmp_path / "hub") as where:
        env = made(**where)
        assert reason(env.reset(seed=1)[1]) == ""
        for _ in range(2):
            step(env)
        with BlockingSession.connect(address) as other:
            # In between the world makes two steps instead of one.
            other.set(ITERATIONS, "2")
            step(env)
            other.set(ITERATIONS, "1")
        denied = "4 steps were given, the clock shows 5"
        with pytest.warns(UserWarning, match=f"before this reset cannot be trusted: {denied}"):
            assert denied in reason(env.reset(seed=1)[1])
        assert reason(env.reset(seed=1)[1]) == ""
        env.close()


@EVERY_KIND
def test_a_simulator_that_dies_truncates_and_the_next_reset_joins_its_successor(
    made: Callable[..., Any], profile: Profile
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0, profile=profile) as simulator:
        address = simulator.address
        env = made(str(address))
        env.reset(seed=1)
        kept, *_, info = step(env)
        action = rest(env)
    observation, reward, terminated, truncated, cut = env.step(action)
    assert [only(reward), only(terminated), only(truncated)] == [0.0, False, True]
    assert "connection refused" in reason(cut)
    assert set(cut) == set(info)
    np.testing.assert_array_equal(only(observation), only(kept))
    with UdpSimulator(SyntheticWorld(2, 3, 1), host=address.host, port=address.port, profile=profile):
        env.reset(seed=2)
        assert not only(step(env)[3])
        env.close()


# --- what users should know of a simulator is a warning, once a session ----------------------------------------------


@pytest.mark.parametrize("made", [single, vector])
def test_a_simulator_that_takes_no_seed_is_told_of_with_the_first_reset_alone(
    made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "SEED", "/No/Seed")
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=NERD) as simulator:
        env = made(str(simulator.address))
        with pytest.warns(UserWarning, match="no variable /No/Seed: seeds have no effect"):
            env.reset(seed=1)
        step(env)
        env.reset(seed=2)
        env.close()


@pytest.mark.parametrize("made", [single, vector])
def test_sensors_outside_their_ranges_are_told_of_with_the_first_reset_alone(
    made: Callable[..., Any],
) -> None:
    with UdpSimulator(RawWorld(1, 2), port=0) as simulator:
        env = made(str(simulator.address))
        outside = r"'/sensor/\d' of agent 'agent' is 12\d\.\d+, outside its range"
        with pytest.warns(UserWarning, match=outside) as told:
            env.reset(seed=123)
        assert len(told) == 1
        for _ in range(2 * SELDOM):
            step(env)
        env.reset(seed=124)
        env.close()


@pytest.mark.parametrize("made", [single, vector])
def test_sensors_of_a_server_that_sends_them_raw_may_be_anywhere(made: Callable[..., Any]) -> None:
    with UdpSimulator(RawWorld(1, 2), port=0, profile=NERD) as simulator:
        env = made(str(simulator.address))
        env.reset(seed=123)
        step(env)
        env.close()


# --- networks that repeat datagrams ----------------------------------------------------------------------------------

REPEATING = pytest.mark.filterwarnings("ignore:.*this network repeats or delays datagrams:UserWarning")


def bound_to_repeat(profile: Profile, duplicate: float, **options: Any) -> UdpSimulator:
    faults = FaultPlan(duplicate=duplicate, seed=3)
    return UdpSimulator(SyntheticWorld(2, 3, 1), port=0, profile=profile, faults=faults, **options)


@REPEATING
@pytest.mark.sampled(3)
@EVERY_KIND
def test_what_comes_twice_ends_episodes_with_the_reason_and_each_observation_is_its_step_s(
    made: Callable[..., Any], profile: Profile
) -> None:
    ends = 0
    with bound_to_repeat(profile, 0.03) as simulator:
        env = made(str(simulator.address), profile=profile.name)
        for seed in range(1, 21):
            observation, _ = env.reset(seed=seed)
            for number in range(1, 8):
                wanted = expected(np.zeros(2, np.float32), number, 3, seed=seed)
                assert only(observation).tolist() == wanted.tolist()
                observation, _, _, truncated, info = step(env)
                if only(truncated):
                    assert "exactly once" in reason(info)
                    ends += 1
                    break
        env.close()
    assert ends


@REPEATING
@pytest.mark.sampled(2)
@EVERY_KIND
def test_where_everything_comes_twice_a_reset_gives_up_and_says_why(
    made: Callable[..., Any], profile: Profile
) -> None:
    ran: list[str] = []
    with bound_to_repeat(profile, 1.0, ledger=lambda entry: ran.append(entry["kind"])) as simulator:
        env = made(str(simulator.address), profile=profile.name)
        with pytest.raises(StepUncertain, match="belongs to no step") as caught:
            env.reset(seed=1)
        env.close()
    assert "repeats or delays datagrams" in caught.value.hint
    assert ran.count("reset") <= 2 * BEGINNINGS


# --- NaN, of agents without a scenario -------------------------------------------------------------------------------


class Breaking(SyntheticWorld):
    """The second sensor and the reward are NaN from the third step on; the first one settles a reset."""

    def __init__(self) -> None:
        super().__init__(2, 3, ["/episode/reward"])
        self.count = 0

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.count = 0

    def step(self) -> None:
        super().step()
        self.count += 1
        if self.count >= 3:
            self.agents[0].outputs[1] = np.nan
            self.agents[0].infos[0] = np.nan


@pytest.fixture
def breaking() -> Iterator[str]:
    with UdpSimulator(Breaking(), port=0) as simulator:
        yield str(simulator.address)


@EVERY_WAY
@pytest.mark.parametrize("asked", [{}, {"not_finite": "end"}], ids=["by itself", "asked"])
def test_not_finite_ends_the_episode_with_the_output_and_the_agent_where_nothing_else_is_asked(
    made: Callable[..., Any], way: str, asked: dict[str, str], breaking: str, tmp_path: Path
) -> None:
    with reached(way, breaking, tmp_path / "hub") as where:
        env = made(**where, **(asked if way == "direct" else {}))
        env.reset(seed=1)
        assert not only(step(env)[3])
        seen, reward, _, truncated, info = step(env)
        env.close()
    assert (only(seen)[1], only(reward), bool(only(truncated))) == (0.0, 0.0, True)
    assert "'/sensor/1' of agent 'agent' is nan" in reason(info)


@EVERY_KIND
@pytest.mark.parametrize("asked, number", [("zero", 0.0), ("pass", np.nan)])
def test_not_finite_becomes_0_or_is_passed_where_that_is_asked(
    made: Callable[..., Any], asked: str, number: float, breaking: str
) -> None:
    env = made(breaking, not_finite=asked)
    env.reset(seed=1)
    step(env)
    seen, reward, _, truncated, info = step(env)
    env.close()
    np.testing.assert_equal([only(seen)[1], only(reward)], [number, number])
    assert (bool(only(truncated)), reason(info)) == (False, "")


@EVERY_KIND
def test_not_finite_where_a_scenario_or_a_daemon_says_it_is_told_the_place(made: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="beside scenario 'cartpole'") as told:
        made("127.0.0.1:1", scenario="cartpole", not_finite="zero")
    assert 'not_finite = "zero" in [agent.observe]' in told.value.hint
    with pytest.raises(UsageError, match="attaches to a daemon") as told:
        made(bridge="unix:/nowhere", not_finite="end")
    assert "[agent.observe] of the scenario that the daemon plays" in told.value.hint
    with pytest.raises(UsageError, match="one of 'end', 'zero', 'pass', got 'stop'"):
        made("127.0.0.1:1", not_finite="stop")


# --- variables that are vectors --------------------------------------------------------------------------------------

NAMES: Final = ["/sensor/0", *(f"/Pos#{n}" for n in range(3)), "/Synthetic/Value/00000", "/Turn#1"]
SCENARIO: Final = """
name = "vectors"
[values]
"/Pos" = [0.4, 0.03, -2]
"/Turn" = "(1,0,0,0)"
[[agent]]
[agent.names]
height = "value:/Pos#1"
[agent.observe]
values = ["/Pos", "/Synthetic/Value/00000", "/Turn#1"]
[agent.episode]
reward = "height"
"""


class Placed(SyntheticWorld):
    """With a position and an orientation, which takes texts of four numbers only."""

    def __init__(self) -> None:
        super().__init__(2, 1, values=1)
        self.contents = {"/Pos": "(1,2,3)", "/Turn": "(0.7071,-0.7071,0,0)"}
        kinds = {"/Pos": "Vector3D", "/Turn": "Quaternion"}
        self.variables += [
            Variable(name, kind, partial(self.contents.__getitem__, name), partial(self._write, name))
            for name, kind in kinds.items()
        ]

    def _write(self, name: str, text: str) -> bool:
        if text.count(",") != self.contents[name].count(","):
            return False
        self.contents[name] = text
        return True


@pytest.fixture
def placed(profile: Profile) -> Iterator[str]:
    with UdpSimulator(Placed(), port=0, profile=profile) as simulator:
        yield str(simulator.address)


@pytest.mark.parametrize(
    "made, way",
    [*((made, "direct") for made in (single, vector, parallel)), (single, "hub"), (vector, "hub")],
)
def test_vectors_are_set_and_observed_whole(
    made: Callable[..., Any], way: str, placed: str, tmp_path: Path
) -> None:
    scenario = tmp_path / "vectors.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    with reached(way, placed, tmp_path / "hub", "--scenario", str(scenario)) as where:
        env = made(scenario=scenario, **where)
        seen, _ = env.reset(seed=1)
        np.testing.assert_array_equal(only(seen)[1:], np.array([0.4, 0.03, -2.0, 0.0, 0.0], np.float32))
        assert only(env.step(rest(env))[1]) == 0.03
        if made is single:
            assert env._backend.agents[env.interface.name].observation_names == NAMES
        env.close()


@pytest.mark.parametrize("made", [single, vector])
def test_a_whole_vector_in_an_expression_is_refused_before_a_step_and_the_agent_stays_free(
    made: Callable[..., Any], placed: str, tmp_path: Path
) -> None:
    file = tmp_path / "whole.toml"
    text = SCENARIO.replace('"/Pos" = [0.4, 0.03, -2]\n', "").replace("value:/Pos#1", "value:/Pos")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioInvalid) as told:
        made(placed, scenario=file)
    (mistake,) = told.value.mistakes
    assert "agent[0].names.height: 'value:/Pos' is a vector, and episode.reward takes one" in mistake
    assert "value:/Pos#0, value:/Pos#1, value:/Pos#2" in mistake
    single(placed).close()
