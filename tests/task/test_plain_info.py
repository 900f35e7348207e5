"""Infos that are told as numbers, not by name: what a daemon asks its tasks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ospbridge.interface import PlainInfo
from ospbridge.task.plain import PlainTask
from tests.task.agents import INFOS, arm, outcome, task

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import Feedback, StepOutcome
    from ospbridge.task.base import Task

REWARD = '[agent.names]\nleft = "output:/Left/Angle [-1,1]"\n[agent.episode]\nreward = "left"\n'
TASKS: dict[str, Callable[[tuple[str, ...]], Task]] = {
    "no scenario": lambda infos: PlainTask(arm(infos=infos), bounded=True),
    "a scenario": lambda infos: task(REWARD, infos=infos),
    "a scenario that observes": lambda infos: task('[agent.observe]\noutputs = ["/Force"]\n', infos=infos),
}


@pytest.fixture(params=[(), INFOS], ids=["no infos", "infos"])
def infos(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture(params=list(TASKS))
def made(request: pytest.FixtureRequest, infos: tuple[str, ...]) -> Task:
    found: Task = TASKS[request.param](infos)
    found.name_no_infos()
    return found


@pytest.fixture
def brought(infos: tuple[str, ...]) -> StepOutcome:
    return outcome(0.5, infos=[0.0] * len(infos))


def test_steps_with_nothing_else_to_tell_share_their_info(made: Task, brought: StepOutcome) -> None:
    one, other = (made.evaluate(brought, seed=7).info for _ in range(2))
    assert one is other
    assert type(one) is PlainInfo
    assert one == {
        "osp_seed": 7,
        "infos": {},
        "events": (),
        "values": {},
        "restored": False,
        "reason": "",
    }


def test_another_episode_has_an_info_of_its_own(made: Task, brought: StepOutcome) -> None:
    before = made.evaluate(brought, seed=7).info
    after = made.evaluate(brought, seed=8).info
    assert (before["osp_seed"], after["osp_seed"]) == (7, 8)


def test_the_first_observation_and_a_cut_name_their_infos(
    made: Task, brought: StepOutcome, infos: tuple[str, ...]
) -> None:
    for feedback in (made.begin(brought, seed=7), made.cut(brought.outputs, "lost", seed=7)):
        assert list(feedback.info["infos"]) == list(infos)
        assert type(feedback.info) is dict


def test_a_step_with_more_to_tell_has_an_info_of_its_own(made: Task, infos: tuple[str, ...]) -> None:
    numbers = [0.0] * len(infos)
    eventful = outcome(0.5, infos=numbers, events=["fallen"])
    valued = outcome(0.5, infos=numbers, Gravitation="9.81")
    restored = outcome(0.5, infos=numbers)
    restored.restored = True
    for told, name in ((eventful, "events"), (valued, "values"), (restored, "restored")):
        info = made.evaluate(told, seed=7).info
        assert type(info) is dict
        assert info[name]
        assert list(info["infos"]) == list(infos)


def test_a_sensor_that_ends_an_episode_leaves_what_others_share_as_it_is() -> None:
    made = task('[agent.observe]\nout_of_range = "end"\n')
    made.name_no_infos()
    ended = made.evaluate(outcome(1.5), seed=7)
    assert ended.truncated
    assert ended.info["reason"] == ended.reason != ""
    assert made.evaluate(outcome(0.5), seed=7).info["reason"] == ""


def test_a_class_with_its_own_way_of_a_feedback_goes_on_as_before(infos: tuple[str, ...]) -> None:
    class Marked(PlainTask):
        def evaluate(self, outcome: StepOutcome, *, seed: int) -> Feedback:
            feedback = super().evaluate(outcome, seed=seed)
            feedback.info["mark"] = len(feedback.info)
            return feedback

    made = Marked(arm(infos=infos), bounded=True)
    made.name_no_infos()
    one, other = (made.evaluate(outcome(0.5, infos=[0.0] * len(infos)), seed=7).info for _ in range(2))
    assert one is not other
    assert list(one["infos"]) == list(infos)


def test_infos_are_named_where_nobody_asked_for_less(infos: tuple[str, ...]) -> None:
    made = PlainTask(arm(infos=infos), bounded=True)
    one, other = (made.evaluate(outcome(0.5, infos=[0.0] * len(infos)), seed=7).info for _ in range(2))
    assert one is not other
    assert list(one["infos"]) == list(infos)
