"""Messages that are written in the place of the one before are what their objects would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ospbridge.hub.framing import HEAD, decode_reply, decode_request
from ospbridge.hub.recurring import AgainFrame, NumbersFrame
from ospbridge.hub.replies import Numbers
from ospbridge.hub.requests import Again
from ospbridge.interface import Feedback, PlainInfo
from tests.hub.examples import framed


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 16_383, 16_384, 20_000])
def test_one_step_more_is_written_as_its_message_is(count: int) -> None:
    again = AgainFrame(count)
    for seed in range(2):
        actions = np.random.default_rng(seed).normal(size=count).astype(np.float32)
        again.numbers[:] = actions
        assert bytes(again.frame) == framed(Again(actions.tobytes()))
        assert again.frame.startswith(again.head)
        assert decode_request(again.frame[HEAD.size :]) == Again(actions.tobytes())


INFO = {"osp_seed": 5, "infos": {}, "events": (), "values": {}, "restored": False, "reason": ""}
ENDS = ("terminated", "truncated", "reason")


def feedback_of(observation: Any, reward: float, **differs: Any) -> Feedback:
    ends = {name: differs.pop(name) for name in ENDS if name in differs}
    return Feedback(np.asarray(observation, np.float32), reward, info=INFO | differs, **ends)


@dataclass
class Mover:
    """Whom an answer tells of."""

    feedback: Feedback | None
    infos: Any


def movers(feedbacks: Sequence[Feedback], infos: Sequence[Any]) -> list[Mover]:
    return [Mover(*each) for each in zip(feedbacks, infos, strict=True)]


def numbers(observations: Any, infos: Any, rewards: Any, *, seed: int = 5) -> Numbers:
    observed, told = (np.concatenate(each).astype(np.float32) for each in (observations, infos))
    rewarded = np.asarray(rewards, np.float64).tobytes()
    return Numbers(seed, bytearray(observed.tobytes()), told.tobytes(), rewarded)


SIZES = [[size] for size in ((0, 0), (1, 0), (0, 1), (3, 2), (63, 64), (64, 63), (100, 1), (20_000, 70))]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("count", [1, 2, 31, 32, 40])
@pytest.mark.parametrize("sizes", [*SIZES, [(2, 0), (0, 1), (1, 3)]])
@pytest.mark.parametrize("seed", [5, -(2**31), 2**31 - 1])
def test_answers_are_those_of_the_messages(count: int, sizes: list[tuple[int, int]], seed: int) -> None:
    random = np.random.default_rng(count)
    recurring = NumbersFrame(sizes * count, seed)
    for reward in (0.0, -1.25, float("inf"), random.normal()):
        observations, infos = (
            [random.normal(size=each[at]).astype(np.float32) for each in sizes * count] for at in (0, 1)
        )
        rewards = [reward + at for at in range(len(observations))]
        feedbacks = [feedback_of(*each, osp_seed=seed) for each in zip(observations, rewards, strict=True)]
        frame = recurring.frame(movers(feedbacks, infos))
        assert frame is not None
        message = numbers(observations, infos, rewards, seed=seed)
        assert bytes(frame) == framed(message)
        assert decode_reply(frame[HEAD.size :]) == message


@pytest.mark.parametrize(
    "differs",
    [
        {"terminated": True},
        {"truncated": True},
        {"reason": "lost"},
        {"events": ("fallen",)},
        {"values": {"/time": "1"}},
        {"restored": True},
        {"osp_seed": 6},
    ],
    ids=str,
)
@pytest.mark.parametrize("which", [0, 1])
def test_what_has_more_to_tell_is_left_to_the_messages(which: int, differs: dict[str, Any]) -> None:
    nothing = [np.zeros(0, np.float32)] * 2
    recurring = NumbersFrame([(2, 0), (2, 0)], 5)
    feedbacks = [feedback_of([1, 2], 0.5), feedback_of([1, 2], 0.5)]
    assert recurring.frame(movers(feedbacks, nothing)) is not None
    feedbacks[which] = feedback_of([1, 2], 0.5, **differs)
    assert recurring.frame(movers(feedbacks, nothing)) is None


@pytest.mark.parametrize("count", [1, 2])
def test_an_info_that_agents_share_is_that_of_its_own_seed_alone(count: int) -> None:
    infos = [np.arange(2, dtype=np.float32)] * count
    recurring = NumbersFrame([(2, 2)] * count, 5)
    shared, others = (PlainInfo(INFO | {"osp_seed": seed}) for seed in (5, 6))
    for reward in (0.5, 1.5):
        feedback = Feedback(np.array([1, reward], np.float32), reward, info=shared)
        frame = recurring.frame(movers([feedback] * count, infos))
        assert frame is not None
        assert bytes(frame) == framed(numbers([feedback.observation] * count, infos, [reward] * count))
    feedback = Feedback(np.zeros(2, np.float32), info=others)
    assert recurring.frame(movers([feedback] * count, infos)) is None
