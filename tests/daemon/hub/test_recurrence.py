"""Steps that recur at one connection: read all at once, and answered into the answer before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.daemon.hub.recurrence import Recurrence
from ospbridge.errors import LocalProtocolError
from ospbridge.hub.decoding import decode_reply
from ospbridge.hub.framing import HEAD
from ospbridge.hub.replies import Numbers
from tests.daemon.stage import ONE, FakeSession, conductor_of, inputs, told

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.hub.recurrence import Move

pytestmark = pytest.mark.trio


@pytest.fixture
def conductor() -> Conductor:
    return conductor_of(FakeSession("a", "b", "c"))


def moves_of(attachments: list[Attachment], *values: float) -> list[Move]:
    return [(attachment, inputs(value)) for attachment, value in zip(attachments, values, strict=True)]


async def playing(conductor: Conductor, *names: str) -> list[Attachment]:
    attachments = conductor.attach(names, ONE)
    await conductor.reset(attachments, 1, 0)
    return attachments


def learned(moves: list[Move]) -> Recurrence:
    recurrence = Recurrence()
    recurrence.learn(moves)
    return recurrence


def more(recurrence: Recurrence, moves: list[Move]) -> tuple[list[Move], Any]:
    """What one step more with these actions is read as."""
    return recurrence.moves(b"".join(action for _, action in moves))


def one_by_one(recurrence: Recurrence, moves: list[Move]) -> list[Move]:
    """The moves of one step more whose actions are not read all at once."""
    found, read = more(recurrence, moves)
    assert read is None
    return found


def numbers_of(given: Any) -> list[list[float]]:
    return [np.frombuffer(each, "<f4").tolist() for each in given]


async def test_one_step_more_of_several_is_read_with_their_inputs(conductor: Conductor) -> None:
    attachments = await playing(conductor, "a", "b", "c")
    recurrence = learned(moves_of(attachments, 0, 0, 0))
    moves = moves_of(attachments, 0.25, 0.5, -1)
    known = more(recurrence, moves)
    assert known[0] == moves
    assert numbers_of(known[1]) == [[0.25], [0.5], [-1]]
    assert conductor.barrier.act(*known) == attachments
    assert numbers_of(conductor.lockstep.actions.values()) == [[0.25], [0.5], [-1]]


async def test_a_number_beyond_what_one_task_takes_as_it_is_is_for_the_tasks(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachments = await playing(conductor, "a", "b")
    task = attachments[1].held.task
    monkeypatch.setattr(task, "as_given", (-0.5, 0.5))
    monkeypatch.setattr(task, "inputs", lambda action: np.clip(action, -0.5, 0.5))
    recurrence = learned(moves_of(attachments, 0, 0))
    for values, given in [((0.5, -0.5), [[0.5], [-0.5]]), ((0.75, 0.75), [[0.75], [0.5]])]:
        assert numbers_of(more(recurrence, moves_of(attachments, *values))[1]) == given


@pytest.mark.parametrize("number", [np.nan, np.inf])
async def test_what_is_no_action_is_read_one_by_one(conductor: Conductor, number: float) -> None:
    attachments = await playing(conductor, "a", "b")
    moves = one_by_one(learned(moves_of(attachments, 0, 0)), moves_of(attachments, 0.25, number))
    with pytest.raises(LocalProtocolError, match="number 0 of an action of agent 'b'"):
        conductor.barrier.act(moves)


@pytest.mark.parametrize("names", ["a", "abc"])
async def test_the_answer_tells_what_the_step_brought(names: str, conductor: Conductor) -> None:
    attachments = await playing(conductor, *names)
    values = [0.25, 0.5, -1.0][: len(names)]
    moves = moves_of(attachments, *values)
    recurrence = learned(moves)
    await conductor.step(moves)
    for seed in (1, 77):
        reply = recurrence.reply()
        assert reply is not None
        answer = decode_reply(bytes(reply[HEAD.size :]))
        assert isinstance(answer, Numbers)
        assert np.frombuffer(answer.observations, "<f4").tolist() == values
        assert answer.seed == seed
        # With a new episode the seed is another one.
        await conductor.reset(attachments, 77, 0)
        await conductor.step(moves)


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
