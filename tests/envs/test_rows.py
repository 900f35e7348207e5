"""Rows of many agents are to their users what the agents' own actions and feedback are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.envs.hub_rows import LONG, HubRows
from ospbridge.envs.infos import InfoColumns, in_columns
from ospbridge.envs.rows import ActionRows, FeedbackRows
from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.messages import AgentFeedback, Feedbacks, Refusal, Step
from ospbridge.interface import AgentInterface, BoxSpace, DiscreteSpace, InterfaceValue, Space
from tests.envs.vectors import assert_same

NAMES = ["a", "bb", "c1"]


def box(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -1, np.float32), np.full(size, 1, np.float32))


def rows_of(
    names: list[str] = NAMES,
    *,
    infos: tuple[str, ...] = ("x", "y"),
    observed: int = 4,
    action: Space | None = None,
    odd: dict[str, Any] | None = None,
) -> HubRows:
    """``odd``: what the last agent has in place of the others."""

    def interface(name: str, told: tuple[str, ...]) -> AgentInterface:
        return AgentInterface(0, name, (), (), tuple(InterfaceValue(info, 0, 1) for info in told))

    last, odd = names[-1], odd or {}
    spaces = dict.fromkeys(names, action or box(2))
    return HubRows(
        {name: interface(name, odd.get("infos", infos) if name == last else infos) for name in names},
        {name: box(odd.get("observed", observed) if name == last else observed) for name in names},
        spaces | {last: odd.get("action", spaces[last])},
    )


def sent(frame: bytearray | None) -> bytes:
    assert frame is not None
    return bytes(frame)


def message(moves: list[tuple[str, bytes]]) -> bytes:
    frame = bytearray()
    encode(Step(moves), frame)
    return bytes(frame)


def test_rows_of_numbers_are_sent_as_the_message_of_all() -> None:
    rows = rows_of()
    for seed in range(3):
        actions = np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32)
        moves = [(name, action.tobytes()) for name, action in zip(NAMES, actions, strict=True)]
        assert sent(rows.step(NAMES, ActionRows(NAMES, actions))) == message(moves)
        # Not of one piece, as a column of a larger array is not.
        apart = np.repeat(actions, 2, axis=1)[:, ::2]
        assert sent(rows.step(NAMES, ActionRows(NAMES, apart))) == message(moves)


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_choices_are_sent_as_the_message_of_all(kind: Any) -> None:
    rows = rows_of(action=DiscreteSpace(4))
    moves = [(name, np.float32(at).tobytes()) for at, name in enumerate(NAMES, 1)]
    assert sent(rows.step(NAMES, ActionRows(NAMES, np.array([1, 2, 3], kind)))) == message(moves)


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros((3, 2)),
        np.zeros((3, 3), np.float32),
        np.zeros((2, 2), np.float32),
        np.full((3, 2), np.nan, np.float32),
        np.full((3, 2), np.inf, np.float32),
        np.zeros((3, 2), np.int64),
        [[0.0, 0.0]] * 3,
    ],
    ids=repr,
)
def test_what_is_no_row_for_each_is_left_to_the_messages(actions: Any) -> None:
    assert rows_of().step(NAMES, ActionRows(NAMES, actions)) is None


@pytest.mark.parametrize(
    "choices",
    [np.array([0, 1, 4]), np.array([0, -1, 1]), np.array([0.0, 1.0, 2.0]), np.array([[0], [1], [2]])],
    ids=repr,
)
def test_what_is_no_choice_is_left_to_the_messages(choices: Any) -> None:
    assert rows_of(action=DiscreteSpace(4)).step(NAMES, ActionRows(NAMES, choices)) is None


def test_where_not_all_play_it_is_left_to_the_messages() -> None:
    actions = np.zeros((3, 2), np.float32)
    assert rows_of().step(NAMES[:2], ActionRows(NAMES, actions)) is None
    assert rows_of().step(NAMES, dict(zip(NAMES, actions, strict=True))) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"action": box(3)},
        {"action": DiscreteSpace(2)},
        {"observed": 5},
        {"infos": ("x",)},
        {"infos": ("x", "z")},
    ],
    ids=str,
)
def test_agents_that_differ_have_no_rows(odd: dict[str, Any]) -> None:
    rows = rows_of(odd=odd)
    assert rows.step(NAMES, ActionRows(NAMES, np.zeros((3, 2), np.float32))) is None
    rows.learn(answer(3))
    assert type(rows.read(body(answer(3)))) is Feedbacks


def test_very_many_numbers_are_left_to_the_messages() -> None:
    few, many = LONG // 3 - 2, LONG // 3 + 1
    for observed, known in ((few, True), (many, False)):
        rows = rows_of(observed=observed)
        rows.learn(answer(3, observed=observed))
        assert isinstance(rows.read(body(answer(3, observed=observed))), FeedbackRows) is known


def answer(numbers: int, *, observed: int = 4, **differs: Any) -> Feedbacks:
    random = np.random.default_rng(numbers)
    agents = []
    for name in NAMES:
        observation = bytearray(random.normal(size=observed).astype(np.float32).tobytes())
        infos = random.normal(size=2).astype(np.float32).tobytes()
        told: dict[str, Any] = {
            "terminated": False,
            "truncated": False,
            "reason": "",
            "seed": 7,
            "events": (),
            "values": {},
        }
        told |= {"restored": False} | differs
        agents.append(AgentFeedback(name, observation, infos, random.normal(), **told))
    return Feedbacks(agents)


def body(reply: Feedbacks | Refusal) -> memoryview:
    frame = bytearray()
    encode(reply, frame)
    return memoryview(frame)[HEAD.size :]


def test_answers_that_are_alike_are_rows_of_what_they_tell() -> None:
    rows = rows_of()
    assert type(rows.read(body(answer(1)))) is Feedbacks
    rows.learn(answer(1))
    told = answer(2)
    found = rows.read(body(told))
    assert isinstance(found, FeedbackRows)
    assert list(found) == NAMES
    assert len(found) == len(NAMES)
    for at, agent in enumerate(told.agents):
        feedback = found[agent.agent]
        observation = np.frombuffer(agent.observation, np.float32)
        infos = np.frombuffer(agent.infos, np.float32)
        np.testing.assert_array_equal(feedback.observation, observation)
        np.testing.assert_array_equal(found.observations[at], observation)
        assert feedback.reward == found.rewards[at] == agent.reward
        assert (feedback.terminated, feedback.truncated, feedback.reason) == (False, False, "")
        assert feedback.info == {
            "osp_seed": 7,
            "infos": {"x": infos[0], "y": infos[1]},
            "events": (),
            "values": {},
            "restored": False,
            "reason": "",
        }
        # They are the user's own.
        feedback.observation[:] = 0.0


@pytest.mark.parametrize(
    "other",
    [
        answer(3, terminated=True),
        answer(3, truncated=True, reason="too slow"),
        answer(3, events=("fallen",)),
        answer(3, values={"/time": "1"}),
        answer(3, restored=True),
        answer(3, seed=8),
        answer(3, observed=5),
        Refusal("HubError", "no"),
    ],
    ids=str,
)
def test_what_has_more_to_tell_is_read_as_its_message(other: Feedbacks | Refusal) -> None:
    rows = rows_of()
    rows.learn(answer(1))
    assert rows.read(body(other)) == other


def test_another_episode_is_learned_anew() -> None:
    rows = rows_of()
    for seed in (3, 4, 3):
        rows.learn(answer(1, seed=seed))
        found = rows.read(body(answer(2, seed=seed)))
        assert isinstance(found, FeedbackRows)
        assert found.seed == seed


def test_answers_of_some_agents_only_are_not_learned() -> None:
    rows = rows_of()
    some = Feedbacks(answer(1).agents[:2])
    rows.learn(some)
    assert rows.read(body(some)) == some
    assert type(rows.read(body(answer(1)))) is Feedbacks


def test_columns_of_rows_equal_those_of_their_infos() -> None:
    rows, columns = rows_of(), InfoColumns()
    for seed in (7, 7, 9, 7):
        rows.learn(answer(1, seed=seed))
        found = rows.read(body(answer(2, seed=seed)))
        assert isinstance(found, FeedbackRows)
        told = columns.of(found)
        expected = in_columns([feedback.info for feedback in found.values()])
        assert expected is not None
        assert list(told) == list(expected)
        assert_same(told, expected)
        # They are the user's own.
        told["osp_seed"][:] = 0
        told["_infos"][:] = False
        told["infos"]["x"][:] = 0.0
        told["infos"]["_x"][:] = False


def test_columns_of_agents_without_infos() -> None:
    rows = FeedbackRows(
        NAMES,
        observations=np.zeros((3, 1), np.float32),
        rewards=np.zeros(3),
        infos=np.zeros((3, 0), np.float32),
        info_names=[],
        seed=1,
    )
    expected = in_columns([feedback.info for feedback in rows.values()])
    assert expected is not None
    assert_same(InfoColumns().of(rows), expected)
