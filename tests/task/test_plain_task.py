"""An agent without a scenario: its episodes are scored as the simulator says."""

from __future__ import annotations

from itertools import permutations

import pytest

from ospbridge.task.plain import PlainTask
from tests.task.agents import INFOS, arm, outcome


@pytest.mark.parametrize("order", list(permutations(INFOS)), ids=" ".join)
@pytest.mark.parametrize("scores", [(2.5, 1.0, 0.0), (-1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.75, 1.0, 1.0)])
def test_the_simulators_scores_count_wherever_they_stand_among_its_infos(
    order: tuple[str, ...], scores: tuple[float, ...]
) -> None:
    said = dict(zip(INFOS, scores, strict=True))
    feedback = PlainTask(arm(infos=order), bounded=True).evaluate(
        outcome(infos=[said[name] for name in order]), seed=1
    )
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
