"""Agents without a scenario: how their episodes are scored, and what is told of sensors outside their ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import PlainInfo
from ospbridge.task.base import Task, unlike
from ospbridge.task.outside import SELDOM, Outside, Remark
from ospbridge.task.plain import PlainTask
from ospbridge.task.scenario import NotFinite
from tests.task.agents import INFOS, arm, outcome, task


@pytest.mark.parametrize("scores", [(2.5, 1.0, 0.0), (-1.0, 0.0, 1.0), (0.0, 0.0, 0.0)])
def test_the_simulators_scores_count_wherever_they_stand_among_its_infos(scores: tuple[float, ...]) -> None:
    said = dict(zip(INFOS, scores, strict=True))
    for order in permutations(INFOS):
        brought = outcome(infos=[said[name] for name in order])
        feedback = PlainTask(arm(infos=order), bounded=True).evaluate(brought, seed=1)
        assert (feedback.reward, feedback.terminated, feedback.truncated) == scores


@pytest.mark.parametrize(
    "name, number, scores",
    [
        ("/episode/reward", 0.25, (0.25, False, False)),
        ("/episode/terminated", 0.5, (0.0, False, False)),
        ("/episode/terminated", 0.75, (0.0, True, False)),
        ("/episode/truncated", 0.5, (0.0, False, False)),
        ("/episode/truncated", 0.75, (0.0, False, True)),
        ("/Body/X", 1.0, (0.0, False, False)),
    ],
)
def test_what_the_simulator_does_not_score_is_no_reward_and_no_end(
    name: str, number: float, scores: tuple[float, bool, bool]
) -> None:
    feedback = PlainTask(arm(infos=(name,)), bounded=True).evaluate(outcome(infos=[number]), seed=1)
    assert (feedback.reward, feedback.terminated, feedback.truncated) == scores


def test_its_actions_are_the_inputs_and_what_is_no_action_is_refused() -> None:
    tried = PlainTask(arm(), bounded=True)
    assert tried.inputs([9.0, 0.5]).tolist() == [9.0, 0.5]
    assert tried.start_values(np.random.default_rng(1)) == {}
    assert not tried.cut_action(1)
    for wrong in ([1.0], "up", [[1.0, 2.0]], ["a", "b"]):
        with pytest.raises(LocalProtocolError, match=r"an action of agent 'arm'"):
            tried.inputs(wrong)


@pytest.mark.parametrize("infos", [(), INFOS])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("policy", list(NotFinite))
def test_an_output_that_is_not_finite_is_what_a_scenario_makes_of_it(
    policy: NotFinite, number: float, infos: tuple[str, ...]
) -> None:
    zeros = [0.0] * len(infos)
    tried = PlainTask(arm(infos=infos), bounded=True, not_finite=policy)
    ruled = task(f'[agent.observe]\nnot_finite = "{policy}"\n', infos=infos)
    for each in (tried, ruled):
        np.testing.assert_equal(
            each.begin(outcome(0.0, 0.0, number, infos=zeros), seed=1).observation[2],
            number if policy is NotFinite.PASS else 0.0,
        )
    first, second = (each.evaluate(outcome(0.5, number, infos=zeros), seed=1) for each in (tried, ruled))
    np.testing.assert_equal(first.observation, second.observation)
    assert (first.reward, first.terminated, first.truncated) == (0.0, False, policy is NotFinite.END)
    assert (first.terminated, first.truncated) == (second.terminated, second.truncated)
    assert first.reason == first.info["reason"] == second.reason.replace("observe.", "")
    assert ("'/Right/Angle' of agent 'arm' is" in first.reason) is (policy is NotFinite.END)
    # It is of this step, not of the next.
    assert not tried.evaluate(outcome(0.5, infos=zeros), seed=1).over


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("policy", list(NotFinite))
def test_a_reward_that_is_not_finite_ends_the_episode_becomes_0_or_is_passed(
    policy: NotFinite, number: float
) -> None:
    tried = PlainTask(arm(infos=INFOS), bounded=True, not_finite=policy)
    feedback = tried.evaluate(outcome(0.5, infos=[number, 0.0, 0.0]), seed=1)
    np.testing.assert_equal(feedback.reward, number if policy is NotFinite.PASS else 0.0)
    assert feedback.truncated is (policy is NotFinite.END)
    told = f"the reward of agent 'arm' is {number} (not_finite = 'end')" if feedback.truncated else ""
    assert feedback.reason == feedback.info["reason"] == told


def test_an_episode_that_the_simulator_terminates_is_terminated_whatever_it_brings() -> None:
    tried = PlainTask(arm(infos=INFOS), bounded=True)
    feedback = tried.evaluate(outcome(float("nan"), infos=[float("nan"), 1.0, 0.0]), seed=1)
    assert (feedback.terminated, feedback.truncated, feedback.reason) == (True, False, "")
    assert (feedback.observation[0], feedback.reward) == (0.0, 0.0)


def test_agents_whose_tasks_repeat_an_action_unlike_often_are_named() -> None:
    one, other = PlainTask(arm(), bounded=True), task(top="action_repeat = 3\n")
    other.agent = replace(arm(), name="leg")
    assert unlike([one, other]) == {"arm": 1, "leg": 3}
    assert unlike([one, one]) == {}


# --- infos that are told as numbers, not by name: what a daemon asks its tasks for -----------------------------------

REWARD = '[agent.names]\nleft = "output:/Left/Angle [-1,1]"\n[agent.episode]\nreward = "left"\n'
TASKS: dict[str, Callable[[tuple[str, ...]], Task]] = {
    "no scenario": lambda infos: PlainTask(arm(infos=infos), bounded=True),
    "a scenario": lambda infos: task(REWARD, infos=infos),
    "a scenario that observes": lambda infos: task('[agent.observe]\noutputs = ["/Force"]\n', infos=infos),
}
ZEROS = [0.0] * len(INFOS)


@pytest.fixture(params=list(TASKS))
def made(request: pytest.FixtureRequest) -> Task:
    found: Task = TASKS[request.param](INFOS)
    found.share_plain_info()
    return found


def test_steps_with_nothing_else_to_tell_share_the_info_of_their_episode(made: Task) -> None:
    one, other, later = (made.evaluate(outcome(0.5, infos=ZEROS), seed=seed).info for seed in (7, 7, 8))
    assert one is other
    assert type(one) is PlainInfo
    assert one == {"osp_seed": 7, "infos": {}, "events": (), "values": {}, "restored": False, "reason": ""}
    assert later["osp_seed"] == 8


def test_the_first_observation_a_cut_and_a_step_with_more_to_tell_name_their_infos(made: Task) -> None:
    brought = outcome(0.5, infos=ZEROS)
    eventful = outcome(0.5, infos=ZEROS, events=["fallen"])
    valued = outcome(0.5, infos=ZEROS, Gravitation="9.81")
    restored = outcome(0.5, infos=ZEROS)
    restored.restored = True
    for feedback, key, told in (
        (made.begin(brought, seed=7), "events", False),
        (made.cut(brought.outputs, "lost", seed=7), "reason", True),
        (made.evaluate(eventful, seed=7), "events", True),
        (made.evaluate(valued, seed=7), "values", True),
        (made.evaluate(restored, seed=7), "restored", True),
    ):
        assert type(feedback.info) is dict
        assert list(feedback.info["infos"]) == list(INFOS)
        assert bool(feedback.info[key]) is told


def test_a_sensor_that_ends_an_episode_leaves_what_others_share_as_it_is() -> None:
    made = task('[agent.observe]\nout_of_range = "end"\n')
    made.share_plain_info()
    ended = made.evaluate(outcome(1.5), seed=7)
    assert ended.truncated
    assert ended.info["reason"] == ended.reason != ""
    assert made.evaluate(outcome(0.5), seed=7).info["reason"] == ""


# --- sensors outside their ranges are told of once, whatever becomes of them ---------------------------------------


LEFT, RIGHT = "'/Left/Angle [-1,1]'", "'/Right/Angle'"


def ear() -> tuple[list[str], Remark]:
    """What is remarked, and what takes it."""
    told: list[str] = []

    def remark(text: str, *, about: str = "") -> None:
        assert about
        told.append(text)

    return told, remark


def heard(tried: Task) -> list[str]:
    """What it remarks from now on."""
    told, tried.remark = ear()
    return told


@pytest.mark.parametrize("tried", [PlainTask(arm(), bounded=True), task()], ids=["plain", "scenario"])
def test_a_first_observation_that_is_not_in_its_space_is_told_once(tried: Task) -> None:
    told = heard(tried)
    assert tried.begin(outcome(1.5, 0.5), seed=1).observation[0] == 1.5
    tried.begin(outcome(0.0, 2.5), seed=2)
    (text,) = told
    assert text.startswith(
        f"{LEFT} of agent 'arm' is 1.5, outside its range from -1 to 1: observations leave"
    )


@pytest.mark.parametrize(
    "tried",
    [PlainTask(arm(), bounded=True), task(), task('[agent.observe]\noutputs = ["*Angle*"]')],
    ids=["silent", "plain", "chosen"],
)
def test_later_ones_are_looked_at_now_and_then(tried: Task) -> None:
    told = heard(tried)
    tried.begin(outcome(0.5), seed=1)
    for _ in range(SELDOM - 1):
        tried.evaluate(outcome(1.5), seed=1)
    assert told == []
    tried.evaluate(outcome(1.5), seed=1)
    assert len(told) == 1


def test_what_is_clipped_is_told_of_when_it_happens_and_once() -> None:
    tried = task('[agent.observe]\nout_of_range = "clip"')
    told = heard(tried)
    tried.begin(outcome(0.5), seed=1)
    assert tried.evaluate(outcome(0.5, -7.0), seed=1).observation.tolist() == [0.5, -1.0, 0.0]
    tried.evaluate(outcome(3.0, -7.0), seed=1)
    (text,) = told
    assert text == (
        f"{RIGHT} of agent 'arm' is -7, outside its range from -1 to 1: clipped (observe.out_of_range = 'clip')"
    )


@pytest.mark.parametrize("bounded", [True, False])
def test_nothing_is_told_of_what_has_no_range_or_is_in_it(bounded: bool) -> None:
    for tried in (PlainTask(arm(), bounded=bounded), task(bounded=bounded)):
        told = heard(tried)
        angle = 1.0 if bounded else 90.0
        tried.begin(outcome(angle, -angle, 1e9), seed=1)
        for _ in range(2 * SELDOM):
            tried.evaluate(outcome(angle, -angle, 1e9), seed=1)
        assert told == []


def test_what_float32_rounds_at_the_end_of_a_range_is_in_it() -> None:
    low, high = np.array([-0.1, 0.0], np.float32), np.array([0.1, np.inf], np.float32)
    ranges = Outside("arm", ["a", "b"], low, high, "so")
    told, remark = ear()
    beyond = np.float32(0.2)
    ranges.look(np.array([np.nextafter(high[0], beyond), 0.0], np.float32), remark)
    ranges.look(np.array([np.nextafter(low[0], -beyond), 0.0], np.float32), remark)
    assert told == []
    assert ranges.possible
    ranges.look(np.array([0.1001, 1.0], np.float32), remark)
    assert told == ["'a' of agent 'arm' is 0.1001, outside its range from -0.1 to 0.1: so"]
    assert not ranges.possible
