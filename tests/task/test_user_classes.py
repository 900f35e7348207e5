"""Tasks that are classes of the user's: what they decide, and what is said of their mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import ScenarioInvalid, TaskError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.task.base import Task
from ospbridge.task.scenario_task import ScenarioTask
from tests.task.agents import outcome, task


class Twice(ScenarioTask):
    """A task in Python: what the file says, twice."""

    def judge(self, outcome: Any) -> tuple[float, bool, bool]:
        reward, terminated, truncated = super().judge(outcome)
        return 2 * reward, terminated, truncated


def test_a_class_of_the_users_decides_what_it_overrides() -> None:
    names = '[agent.names]\nforce = "output:/Force"\n'
    tried = task(f'task = "{__name__}:Twice"\n{names}[agent.episode]\nreward = "force"\nmax_steps = 1\n')
    tried.begin(outcome(), seed=1)
    feedback = tried.evaluate(outcome(0, 0, 4), seed=1)
    assert (feedback.reward, feedback.truncated) == (8.0, True)


class Broken(ScenarioTask):
    """A task with mistakes, one at a time."""

    where = ""

    def _fail(self, where: str) -> None:
        if self.where == where:
            raise AttributeError("no such thing")

    def start_values(self, random: np.random.Generator) -> Mapping[str, str]:
        self._fail("start_values")
        return super().start_values(random)

    def inputs(self, action: Any) -> Any:
        self._fail("inputs")
        return super().inputs(action)

    def observe(self, outcome: Any) -> Any:
        self._fail("observe")
        return super().observe(outcome)

    def judge(self, outcome: Any) -> tuple[float, bool, bool]:
        self._fail("judge")
        return super().judge(outcome)

    def restart(self, outcome: Any) -> None:
        self._fail("restart")
        super().restart(outcome)


def played(tried: Task) -> None:
    """All that a bridge asks in an episode of one step."""
    tried.start_values(np.random.default_rng(1))
    tried.begin(outcome(), seed=1)
    tried.inputs(np.zeros(2, np.float32))
    tried.evaluate(outcome(), seed=1)


@pytest.mark.parametrize("where", ["start_values", "inputs", "observe", "judge", "restart"])
def test_a_mistake_in_a_class_of_the_users_is_told_as_the_tasks(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = task(f'task = "{__name__}:Broken"\n')
    played(tried)
    monkeypatch.setattr(Broken, "where", where)
    with pytest.raises(TaskError, match=rf"agent 'arm': Broken.{where} failed: .*no such thing") as caught:
        played(tried)
    assert isinstance(caught.value.__cause__, AttributeError)


class Answering(ScenarioTask):
    """A task that returns what it is told to."""

    answers: Mapping[str, Any] = {}

    def start_values(self, random: np.random.Generator) -> Any:
        return self.answers.get("start_values", {})

    def inputs(self, action: Any) -> Any:
        return self.answers.get("inputs", np.zeros(2, np.float32))

    def observe(self, outcome: Any) -> Any:
        return self.answers.get("observe", np.zeros(3, np.float32))

    def judge(self, outcome: Any) -> Any:
        return self.answers.get("judge", (0.0, False, False))


@pytest.mark.parametrize(
    "where, answer, wrong",
    [
        ("start_values", ["/a"], "not a mapping"),
        ("inputs", np.zeros(3, np.float32), r"of shape \(3,\), not \(2,\)"),
        ("inputs", np.array([0.0, np.nan], np.float32), "not all are finite"),
        ("observe", np.zeros((1, 3), np.float32), r"of shape \(1, 3\), not \(3,\)"),
        ("judge", 1.0, "TypeError"),
        ("judge", ("1", False, False), "TypeError"),
        ("judge", (float("nan"), False, False), "its reward is nan"),
    ],
)
def test_what_a_class_of_the_users_returns_and_cannot_be_used_is_a_mistake_too(
    where: str, answer: Any, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = task(f'task = "{__name__}:Answering"\n')
    played(tried)
    monkeypatch.setattr(Answering, "answers", {where: answer})
    with pytest.raises(TaskError, match=rf"Answering.{where} failed: .*{wrong}"):
        played(tried)


class Setting(ScenarioTask):
    """A task that sets what it is told to."""

    attributes: Mapping[str, Any] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        vars(self).update(self.attributes)


@pytest.mark.parametrize(
    "attribute, value, wrong",
    [
        ("observation_space", gymnasium.spaces.Box(-1, 1, (3,)), "not a BoxSpace of ospbridge.interface"),
        ("observation_space", BoxSpace(np.zeros((1, 3)), np.ones((1, 3))), r"have shapes \(1, 3\)"),  # type: ignore[arg-type]
        ("action_space", gymnasium.spaces.Discrete(2), "not a BoxSpace or DiscreteSpace"),
        ("action_space", DiscreteSpace(0), "its action_space has 0 choices"),
        ("neutral", [0.0], "not 2 finite numbers"),
        ("action_repeat", 0, "its action_repeat is 0, not a whole number, 1 or more"),
        ("settle_steps", -1, "its settle_steps is -1, not a whole number, 0 or more"),
        ("events", "/fallen", "not a list of texts"),
        ("observation_names", [1, 2, 3], "not a list of texts"),
    ],
)
def test_what_a_class_of_the_users_sets_and_cannot_be_used_is_told_before_it_plays(
    attribute: str, value: Any, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Setting, "attributes", {attribute: value})
    with pytest.raises(ScenarioInvalid, match=rf"Setting' cannot be used: making it .* failed: .*{wrong}"):
        task(f'task = "{__name__}:Setting"\n')


def test_what_a_class_of_the_users_sets_becomes_what_the_bridge_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attributes = {
        "observation_space": BoxSpace(np.zeros(3), np.ones(3)),  # type: ignore[arg-type]
        "action_space": DiscreteSpace(4),
        "neutral": [1, 0],
        "action_repeat": np.int64(2),
        "values": ["/a"],
        "observation_names": ("x", "y", "z"),
    }
    monkeypatch.setattr(Setting, "attributes", attributes)
    tried = task(f'task = "{__name__}:Setting"\n')
    assert tried.observation_space.low.dtype == np.float32
    assert tried.observation_space.high.tolist() == [1.0] * 3
    assert tried.action_space == DiscreteSpace(4)
    assert tried.neutral.dtype == np.float32
    assert (tried.action_repeat, tried.values, tried.observation_names) == (2, ("/a",), ["x", "y", "z"])


def test_what_a_class_of_the_users_returns_becomes_what_the_bridge_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "start_values": {"/Body/Mass": 1.5},
        "inputs": [0, 1],
        "observe": [1, 2, 3],
        "judge": (np.float32(0.5), np.bool_(True), 0),
    }
    monkeypatch.setattr(Answering, "answers", answers)
    tried = task(f'task = "{__name__}:Answering"\n')
    assert tried.start_values(np.random.default_rng(1)) == {"/Body/Mass": "1.5"}
    assert tried.inputs(0).dtype == np.float32
    feedback = tried.evaluate(outcome(), seed=1)
    assert feedback.observation.dtype == np.float32
    assert [type(each) for each in (feedback.reward, feedback.terminated, feedback.truncated)] == [
        float,
        bool,
        bool,
    ]


@pytest.mark.parametrize(
    "path, wrong",
    [
        (f"{__name__}:Twize", "has no 'Twize' .did you mean 'Twice'"),
        (f"{__name__}:Any", "does not derive from ScenarioTask"),
        ("unimportable:Task", "unimportable:Task' cannot be used: .*NameError"),
        ("nowhere:Task", "nowhere:Task' cannot be used: .*nowhere"),
    ],
    ids=["misspelt", "no task", "unimportable", "not there"],
)
def test_what_is_no_class_of_a_task_is_a_mistake_of_the_scenario(
    path: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unimportable.py").write_text("undefined\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ScenarioInvalid, match=wrong) as caught:
        task(f'task = "{path}"\n')
    assert caught.value.hint
