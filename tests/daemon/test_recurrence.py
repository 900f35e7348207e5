"""Steps that recur at one connection: known by their bytes, read all at once, and answered into the answer before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.daemon.attachment import State
from ospbridge.daemon.recurrence import LONG, Recurrence
from ospbridge.errors import LocalProtocolError, TaskError
from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.messages import Feedbacks, Step, decode_reply
from tests.daemon.stage import ONE, FakeSession, inputs
from tests.daemon.test_conductor import conductor_of, told

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.recurrence import Move

pytestmark = pytest.mark.trio


@pytest.fixture
def conductor() -> Conductor:
    return conductor_of(FakeSession("a", "b", "c"))


def message(moves: list[Move]) -> memoryview:
    frame = bytearray()
    encode(Step([(attachment.name, action) for attachment, action in moves]), frame)
    return memoryview(frame)[HEAD.size :]


def moves_of(attachments: list[Attachment], *values: float) -> list[Move]:
    return [(attachment, inputs(value)) for attachment, value in zip(attachments, values, strict=True)]


async def playing(conductor: Conductor, *names: str) -> list[Attachment]:
    attachments = conductor.attach(names, ONE)
    await conductor.reset(attachments, 1, 0)
    return attachments


def learned(moves: list[Move]) -> Recurrence:
    recurrence = Recurrence()
    recurrence.learn(moves)
    assert recurrence.moves(message(moves)) is None
    recurrence.learn(moves)
    return recurrence


def one_by_one(recurrence: Recurrence, moves: list[Move]) -> list[Move]:
    """The moves of a request that is known, but whose actions are not read all at once."""
    known = recurrence.moves(message(moves))
    assert known is not None
    found, read = known
    assert read is None
    return found


async def test_the_third_step_of_one_agent_is_known(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a")
    recurrence = learned(moves_of(attachments, 0.5))
    assert recurrence.moves(message(moves_of(attachments, 0.25))) == (moves_of(attachments, 0.25), None)


async def test_the_third_step_of_the_same_agents_is_known_with_their_inputs(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b", "c")
    recurrence = learned(moves_of(attachments, 0, 0, 0))
    moves = moves_of(attachments, 0.25, 0.5, -1)
    known = recurrence.moves(message(moves))
    assert known is not None
    assert known[0] == moves
    assert known[1] is not None
    assert [given.tolist() for given in known[1]] == [[0.25], [0.5], [-1]]
    assert conductor.barrier.act(*known) == attachments
    assert {name: given.tolist() for name, given in conductor.lockstep.actions.items()} == {
        "a": [0.25],
        "b": [0.5],
        "c": [-1],
    }


async def test_actions_that_tasks_take_as_they_are_are_not_read_one_by_one(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> Any:
        raise AssertionError

    attachments = await playing(conductor, "a", "b")
    for attachment in attachments:
        monkeypatch.setattr(attachment.held.task, "inputs", fail)
    recurrence = learned(moves_of(attachments, 0, 0))
    known = recurrence.moves(message(moves_of(attachments, 0.25, 7.5)))
    assert known is not None
    assert known[1] is not None
    assert [given.tolist() for given in known[1]] == [[0.25], [7.5]]


async def test_a_number_beyond_what_one_task_takes_as_it_is_is_for_the_tasks(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachments = await playing(conductor, "a", "b")
    task = attachments[1].held.task
    monkeypatch.setattr(task, "as_given", (-0.5, 0.5))
    monkeypatch.setattr(task, "inputs", lambda action: np.clip(action, -0.5, 0.5))
    recurrence = learned(moves_of(attachments, 0, 0))
    for values, given in [((0.5, -0.5), [[0.5], [-0.5]]), ((0.75, 0.75), [[0.75], [0.5]])]:
        known = recurrence.moves(message(moves_of(attachments, *values)))
        assert known is not None
        assert known[1] is not None
        assert [inputs.tolist() for inputs in known[1]] == given


@pytest.mark.parametrize("number", [np.nan, np.inf])
async def test_what_is_no_action_is_read_one_by_one(conductor: Conductor, number: float) -> None:
    attachments = await playing(conductor, "a", "b")
    moves = one_by_one(learned(moves_of(attachments, 0, 0)), moves_of(attachments, 0.25, number))
    with pytest.raises(LocalProtocolError, match="number 0 of an action of agent 'b'"):
        conductor.barrier.act(moves)


async def test_where_one_plays_no_more_they_are_read_one_by_one(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b")
    recurrence = learned(moves_of(attachments, 0, 0))
    attachments[1].state = State.DONE
    moves = moves_of(attachments, 0.25, 0.5)
    assert one_by_one(recurrence, moves) == moves


async def test_where_a_task_cannot_read_one_they_are_read_one_by_one(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> Any:
        raise TaskError("its expression fails")

    attachments = await playing(conductor, "a", "b")
    monkeypatch.setattr(attachments[1].held.task, "as_given", None)
    recurrence = learned(moves_of(attachments, 0, 0))
    monkeypatch.setattr(attachments[1].held.task, "inputs", fail)
    moves = moves_of(attachments, 0.25, 0.5)
    assert one_by_one(recurrence, moves) == moves


async def test_an_agent_that_is_named_twice_is_read_one_by_one(conductor: Conductor) -> None:
    attachments = 2 * await playing(conductor, "a")
    moves = one_by_one(learned(moves_of(attachments, 0, 0)), moves_of(attachments, 0.25, 0.5))
    with pytest.raises(LocalProtocolError, match="named twice"):
        conductor.barrier.act(moves)


async def test_actions_of_a_wrong_size_are_read_one_by_one(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b")
    moves = [(attachment, bytes(8)) for attachment in attachments]
    assert one_by_one(learned(moves), moves) == moves


async def test_very_long_actions_are_not_looked_for(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b")
    moves = [(attachment, bytes(LONG)) for attachment in attachments]
    assert learned(moves).moves(message(moves)) is None


async def test_other_agents_or_another_request_begin_anew(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b", "c")
    moves = moves_of(attachments, 0.25, 0.5, 1)
    recurrence = learned(moves)
    recurrence.learn(moves[:2])
    assert recurrence.moves(message(moves)) is None
    assert recurrence.moves(message(moves[:2])) is None
    recurrence = learned(moves)
    recurrence.forget()
    assert recurrence.moves(message(moves)) is None
    assert recurrence.reply() is None


@pytest.mark.parametrize("names", ["a", "abc"])
async def test_the_answer_tells_what_the_step_brought(names: str, conductor: Conductor) -> None:
    attachments = await playing(conductor, *names)
    values = [0.25, 0.5, -1.0][: len(names)]
    moves = moves_of(attachments, *values)
    recurrence = learned(moves)
    await conductor.step(moves)
    reply = recurrence.reply()
    assert reply is not None
    answer = decode_reply(bytes(reply[HEAD.size :]))
    assert isinstance(answer, Feedbacks)
    assert [agent.agent for agent in answer.agents] == list(names)
    assert [np.frombuffer(agent.observation, "<f4").item() for agent in answer.agents] == values
    # With a new episode the seed is another one.
    await conductor.reset(attachments, 77, 0)
    await conductor.step(moves)
    again = recurrence.reply()
    assert again is not None
    answer = decode_reply(bytes(again[HEAD.size :]))
    assert isinstance(answer, Feedbacks)
    assert {agent.seed for agent in answer.agents} == {77}


async def test_where_there_is_more_to_tell_there_is_no_answer(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b")
    moves = moves_of(attachments, 0.25, 0.5)
    recurrence = learned(moves)
    await conductor.step(moves)
    told(attachments[1]).truncated = True
    assert recurrence.reply() is None
    told(attachments[1]).truncated = False
    assert recurrence.reply() is not None
    attachments[1].feedback = None
    assert recurrence.reply() is None
    attachments[0].feedback = None
    assert recurrence.reply() is None
