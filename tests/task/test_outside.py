"""Sensors outside their ranges are told of, once, whatever becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.task.outside import SELDOM, Outside
from ospbridge.task.plain import PlainTask
from tests.task.agents import arm, outcome, task

if TYPE_CHECKING:
    from ospbridge.task.base import Task
    from ospbridge.task.outside import Remark

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
