"""Steps that recur are known by their bytes, and answered as if their messages had been made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.messages import AgentFeedback, AnnotatedStep, Feedbacks, HubReply, HubRequest, Note, Step
from ospbridge.hub.recurring import RecurringFeedback, RecurringStep
from ospbridge.interface import Feedback

ACTION = np.array([1.5, -2.0], np.float32).tobytes()


def framed(message: HubRequest | HubReply) -> bytes:
    frame = bytearray()
    encode(message, frame)
    return bytes(frame)


def body(message: HubRequest) -> memoryview:
    return memoryview(framed(message))[HEAD.size :]


@pytest.mark.parametrize("agent", ["a", "robot", "é" * 20, "x" * 40, "y" * 300])
@pytest.mark.parametrize("action", [b"", ACTION, bytes(range(256)) * 20])
def test_a_step_is_known_again_whatever_its_action(agent: str, action: bytes) -> None:
    recurring = RecurringStep(agent, len(action))
    assert recurring.action(body(Step([(agent, action)]))) == action


@pytest.mark.parametrize(
    "other",
    [
        Step([("b", ACTION)]),
        Step([("ab", ACTION)]),
        Step([("a", ACTION + b"more")]),
        Step([("a", ACTION[:4])]),
        Step([("a", ACTION), ("b", ACTION)]),
        Step([]),
        AnnotatedStep([("a", ACTION, Note(ACTION, 0.5))]),
    ],
    ids=repr,
)
def test_anything_else_is_not(other: HubRequest) -> None:
    assert RecurringStep("a", len(ACTION)).action(body(other)) is None


def test_what_follows_an_action_is_not_taken_for_it() -> None:
    # A message may have more elements than this version knows: ["step", [[agent, action]], b"..."].
    longer = bytearray(body(Step([("a", ACTION[:4])])))
    longer[0] += 1
    longer += b"\xc4\x02" + bytes(2)
    assert len(longer) == len(body(Step([("a", ACTION)])))
    assert RecurringStep("a", len(ACTION)).action(memoryview(bytes(longer))) is None


def feedback_of(observation: Any, reward: float, **differs: Any) -> Feedback:
    info = {"osp_seed": 5, "infos": {}, "events": (), "values": {}, "restored": False, "reason": ""}
    flags = {name: differs.pop(name) for name in ("terminated", "truncated", "reason") if name in differs}
    return Feedback(np.asarray(observation, np.float32), reward, info={**info, **differs}, **flags)


def told(agent: str, feedback: Feedback, infos: Any) -> bytes:
    """As the daemon writes it where nothing recurs."""
    return framed(
        Feedbacks(
            [
                AgentFeedback(
                    agent,
                    bytearray(feedback.observation),
                    np.asarray(infos, np.float32).tobytes(),
                    feedback.reward,
                    feedback.terminated,
                    feedback.truncated,
                    feedback.reason,
                    feedback.info["osp_seed"],
                    feedback.info["events"],
                    feedback.info["values"],
                    feedback.info["restored"],
                )
            ]
        )
    )


@pytest.mark.parametrize("agent", ["a", "robot" * 20])
@pytest.mark.parametrize("size, infos", [(0, 0), (1, 0), (3, 2), (100, 1), (20_000, 70)])
def test_answers_are_those_of_the_messages(agent: str, size: int, infos: int) -> None:
    random = np.random.default_rng(size)
    recurring = RecurringFeedback(agent, size, infos, 5)
    for reward in (0.0, -1.25, float("inf"), random.normal()):
        feedback = feedback_of(random.normal(size=size), reward)
        more = random.normal(size=infos).astype(np.float32)
        frame = recurring.frame(feedback, more)
        assert frame is not None
        assert bytes(frame) == told(agent, feedback, more)


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
def test_what_has_more_to_tell_is_left_to_the_messages(differs: dict[str, Any]) -> None:
    nothing = np.zeros(0, np.float32)
    recurring = RecurringFeedback("a", 2, 0, 5)
    assert recurring.frame(feedback_of([1, 2], 0.5), nothing) is not None
    assert recurring.frame(feedback_of([1, 2], 0.5, **differs), nothing) is None


def test_an_observation_of_another_size_is_left_to_the_messages() -> None:
    assert RecurringFeedback("a", 2, 0, 5).frame(feedback_of([1], 0.5), np.zeros(0, np.float32)) is None
