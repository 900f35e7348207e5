"""Steps that recur are known by their bytes, and answered as if their messages had been made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.messages import AgentFeedback, AnnotatedStep, Feedbacks, HubReply, HubRequest, Note, Step
from ospbridge.hub.recurring import RecurringFeedbacks, RecurringStep
from ospbridge.interface import Feedback

ACTION = np.array([1.5, -2.0], np.float32).tobytes()


def framed(message: HubRequest | HubReply) -> bytes:
    frame = bytearray()
    encode(message, frame)
    return bytes(frame)


def body(message: HubRequest) -> memoryview:
    return memoryview(framed(message))[HEAD.size :]


AGENTS = [
    ["a"],
    ["robot"],
    ["é" * 20],
    ["x" * 40],
    ["y" * 300],
    ["a", "bb", "c" * 40],
    [f"agent{at}" for at in range(20)],
]


def actions_of(agents: list[str], size: int) -> list[bytes]:
    """One of so many bytes for each agent."""
    random = np.random.default_rng(size)
    return [random.bytes(size) for _ in agents]


@pytest.mark.parametrize("agents", AGENTS, ids=len)
@pytest.mark.parametrize("size", [0, 8, 5120])
def test_a_step_is_known_again_whatever_its_actions(agents: list[str], size: int) -> None:
    recurring = RecurringStep([(agent, size) for agent in agents])
    actions = actions_of(agents, size)
    found = recurring.actions(body(Step(list(zip(agents, actions, strict=True)))))
    assert found is not None
    assert [found[bounds] for bounds in recurring.bounds] == actions


@pytest.mark.parametrize("agents", AGENTS, ids=len)
@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_step_is_written_as_its_message_is(agents: list[str], size: int) -> None:
    recurring = RecurringStep([(agent, 4 * size) for agent in agents])
    for seed in range(2):
        rows = np.random.default_rng(seed).normal(size=(len(agents), size)).astype(np.float32)
        moves = [(agent, row.tobytes()) for agent, row in zip(agents, rows, strict=True)]
        assert bytes(recurring.frame(rows)) == framed(Step(moves))


def test_choices_are_written_as_numbers() -> None:
    recurring = RecurringStep([("a", 4), ("b", 4)])
    moves = [("a", np.float32(3).tobytes()), ("b", np.float32(0).tobytes())]
    assert bytes(recurring.frame(np.array([3, 0]))) == framed(Step(moves))


@pytest.mark.parametrize(
    "other",
    [
        Step([("b", ACTION)]),
        Step([("ab", ACTION)]),
        Step([("a", ACTION + b"more")]),
        Step([("a", ACTION[:4])]),
        Step([("a", ACTION), ("b", ACTION)]),
        Step([("a", ACTION), ("b", ACTION), ("d", ACTION)]),
        Step([("a", ACTION), ("c", ACTION), ("b", ACTION)]),
        Step([("a", ACTION), ("b", ACTION[:4]), ("c", ACTION + ACTION[:4])]),
        Step([]),
        AnnotatedStep([("a", ACTION, Note(ACTION, 0.5))]),
    ],
    ids=repr,
)
def test_anything_else_is_not(other: HubRequest) -> None:
    for agents in ("a", "abc"):
        assert RecurringStep([(agent, len(ACTION)) for agent in agents]).actions(body(other)) is None


def test_what_follows_an_action_is_not_taken_for_it() -> None:
    # A message may have more elements than this version knows: ["step", [[agent, action]], b"..."].
    longer = bytearray(body(Step([("a", ACTION[:4])])))
    longer[0] += 1
    longer += b"\xc4\x02" + bytes(2)
    assert len(longer) == len(body(Step([("a", ACTION)])))
    assert RecurringStep([("a", len(ACTION))]).actions(memoryview(bytes(longer))) is None


def feedback_of(observation: Any, reward: float, **differs: Any) -> Feedback:
    info = {"osp_seed": 5, "infos": {}, "events": (), "values": {}, "restored": False, "reason": ""}
    flags = {name: differs.pop(name) for name in ("terminated", "truncated", "reason") if name in differs}
    return Feedback(np.asarray(observation, np.float32), reward, info={**info, **differs}, **flags)


def told(agents: list[str], feedbacks: list[Feedback], infos: Any) -> bytes:
    """As the daemon writes it where nothing recurs."""
    return framed(
        Feedbacks(
            [
                AgentFeedback(
                    agent,
                    bytearray(feedback.observation),
                    np.asarray(mine, np.float32).tobytes(),
                    feedback.reward,
                    feedback.terminated,
                    feedback.truncated,
                    feedback.reason,
                    feedback.info["osp_seed"],
                    feedback.info["events"],
                    feedback.info["values"],
                    feedback.info["restored"],
                )
                for agent, feedback, mine in zip(agents, feedbacks, infos, strict=True)
            ]
        )
    )


@dataclass
class Mover:
    """Whom an answer tells of."""

    feedback: Feedback | None
    infos: Any


def movers(feedbacks: Sequence[Feedback | None], infos: Any) -> list[Mover]:
    return [Mover(*each) for each in zip(feedbacks, infos, strict=True)]


SIZES = [(0, 0), (1, 0), (0, 1), (3, 2), (100, 1), (20_000, 70)]


@pytest.mark.parametrize("agents", AGENTS, ids=len)
@pytest.mark.parametrize("size, infos", SIZES)
def test_answers_are_those_of_the_messages(agents: list[str], size: int, infos: int) -> None:
    random = np.random.default_rng(size)
    recurring = RecurringFeedbacks([(agent, size, infos) for agent in agents], 5)
    for reward in (0.0, -1.25, float("inf"), random.normal()):
        feedbacks = [feedback_of(random.normal(size=size), reward + at) for at, _ in enumerate(agents)]
        more = random.normal(size=(len(agents), infos)).astype(np.float32)
        frame = recurring.frame(movers(feedbacks, more))
        assert frame is not None
        assert bytes(frame) == told(agents, feedbacks, more)


@pytest.mark.parametrize("agents", AGENTS, ids=len)
@pytest.mark.parametrize("size, infos", SIZES)
def test_numbers_of_answers_are_read_as_they_were_written(agents: list[str], size: int, infos: int) -> None:
    random = np.random.default_rng(size)
    count = len(agents)
    recurring = RecurringFeedbacks([(agent, size, infos) for agent in agents], 5)
    observations = random.normal(size=(count, size)).astype(np.float32)
    more = random.normal(size=(count, infos)).astype(np.float32)
    rewards = random.normal(size=count)
    feedbacks = [feedback_of(*each) for each in zip(observations, rewards.tolist(), strict=True)]
    found = recurring.numbers(memoryview(told(agents, feedbacks, more))[HEAD.size :])
    assert found is not None
    np.testing.assert_array_equal(found[0], observations.reshape(-1))
    np.testing.assert_array_equal(found[1], more.reshape(-1))
    np.testing.assert_array_equal(found[2], rewards)


def test_agents_may_have_different_sizes() -> None:
    recurring = RecurringFeedbacks([("a", 2, 0), ("b", 0, 1), ("c", 1, 3)], 5)
    feedbacks = [feedback_of([1, 2], 0.5), feedback_of([], 1.5), feedback_of([3], 2.5)]
    infos = [np.zeros(0, np.float32), np.ones(1, np.float32), np.arange(3, dtype=np.float32)]
    message = told(["a", "b", "c"], feedbacks, infos)
    assert bytes(recurring.frame(movers(feedbacks, infos)) or b"") == message
    found = recurring.numbers(memoryview(message)[HEAD.size :])
    assert found is not None
    assert [numbers.tolist() for numbers in found] == [[1, 2, 3], [1, 0, 1, 2], [0.5, 1.5, 2.5]]


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
    nothing = np.zeros(0, np.float32)
    recurring = RecurringFeedbacks([("a", 2, 0), ("b", 2, 0)], 5)
    feedbacks = [feedback_of([1, 2], 0.5), feedback_of([1, 2], 0.5)]
    assert recurring.frame(movers(feedbacks, [nothing, nothing])) is not None
    feedbacks[which] = feedback_of([1, 2], 0.5, **differs)
    assert recurring.frame(movers(feedbacks, [nothing, nothing])) is None
    message = told(["a", "b"], feedbacks, [nothing, nothing])
    assert recurring.numbers(memoryview(message)[HEAD.size :]) is None


def test_an_observation_of_another_size_is_left_to_the_messages() -> None:
    nothing = np.zeros(0, np.float32)
    recurring = RecurringFeedbacks([("a", 2, 0)], 5)
    assert recurring.frame(movers([feedback_of([1], 0.5)], [nothing])) is None
    assert recurring.numbers(memoryview(told(["a"], [feedback_of([1], 0.5)], [nothing]))[HEAD.size :]) is None


def test_whoever_has_no_feedback_is_left_to_the_messages() -> None:
    nothing = np.zeros(0, np.float32)
    recurring = RecurringFeedbacks([("a", 2, 0), ("b", 2, 0)], 5)
    assert recurring.frame(movers([feedback_of([1, 2], 0.5), None], [nothing, nothing])) is None
