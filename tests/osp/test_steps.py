"""A step, datagram by datagram: what begins none, what is believed, and what ends the episode."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
import pytest

from ospbridge.errors import (
    BarrierStuck,
    OutputsIncomplete,
    RemoteProtocolError,
    SessionEvicted,
    SessionLost,
    StepUncertain,
)
from ospbridge.osp.client import ACKNOWLEDGES_LAST, DOUBLED, Learned
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    EndAck,
    ResetCommunicationAck,
    ResetSimulationAck,
    ResetSimulationCompleted,
    SetValueAck,
    StepCompleted,
    ValueContent,
)
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.step import LAST_WORD
from tests.osp.stage import QUESTIONS, Stage, ack, brought

REQUEST: Final = Code.NEXT_SIMULATION_STEP
ACKNOWLEDGES: Final = Code.NEXT_SIMULATION_STEP_COMPLETED_ACK


def stepped(stage: Stage | None = None, *, output: float = 0.25) -> Stage:
    """A step was completed; nothing was wrong with it."""
    stage = stage or Stage()
    stage.begin_step(0.5).give(ack(), brought(output))
    stage.machine.result()
    stage.clock = (stage.clock or 0.0) + 0.01
    return stage


# --- steps that are not even begun ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("doubt", "a dog ate it", "cannot be trusted: a dog ate it"),
        ("request_outstanding", True, "an earlier step was interrupted or given up"),
        ("reset_outstanding", True, "a reset of this session is still outstanding"),
    ],
)
def test_no_request_is_sent_while_something_is_left_of_before(name: str, value: object, told: str) -> None:
    stage = Stage()
    setattr(stage.machine.episode, name, value)
    stage.begin_step(0.5)
    with pytest.raises(StepUncertain, match=told) as caught:
        stage.machine.result()
    assert not stage.sent
    assert caught.value.interrupted == (name != "doubt")


def test_no_reset_is_asked_for_while_a_request_is_outstanding() -> None:
    stage = Stage()
    stage.machine.abandon_step()
    stage.begin_reset()
    with pytest.raises(StepUncertain, match="it would fire later"):
        stage.machine.result()
    assert not stage.sent


# --- completions before the acknowledgement ------------------------------------------------------------------------


def test_a_completion_before_the_acknowledgement_is_held_until_a_silence_and_the_clock() -> None:
    stage = Stage().begin_step(0.5).give(brought(0.25))
    assert stage.codes == [REQUEST, ACKNOWLEDGES]
    stage.clock = 0.02
    stage.give(ack()).wait(0.24)
    assert not stage.machine.finished
    stage.wait(1)
    assert stage.machine.result().completions[1].outputs.tolist() == [0.25]
    assert stage.timeline[2:] == [(250, Code.GET_VALUE)]
    assert len(stage.machine.learned.completed_first) == 1


@pytest.mark.parametrize("clock", [0.01, 0.03])
def test_it_is_not_believed_where_the_clock_shows_another_number_of_steps(clock: float) -> None:
    stage = Stage().begin_step(0.5).give(brought(0.25), ack())
    stage.clock = clock
    stage.wait(1)
    with pytest.raises(StepUncertain, match="completions came, and the clock shows"):
        stage.machine.result()
    assert stage.anomalies.count(DOUBLED) == 1
    # A clock that shows too few is read again.
    assert len(stage.took(Code.GET_VALUE)) == (2 if clock == 0.01 else 1)


def test_a_server_that_acknowledges_last_is_known_by_three_such_steps_also_to_the_next_session() -> None:
    assert ACKNOWLEDGES_LAST == 3
    stage = Stage()
    for number in range(3):
        began = stage.machine.now
        stage.clock = stage.machine.clock.count / 100 + 0.01
        stage.begin_step(0.5).give(brought(number / 8), ack()).wait(1)
        stage.machine.result()
        assert stage.machine.now == pytest.approx(began + 0.25)
    for later in (stage, Stage(learned=stage.machine.learned)):
        later.begin_step(0.5).give(brought(0.75), ack())
        assert later.machine.result().completions[1].outputs.tolist() == [0.75]


def test_steps_count_only_in_a_row_before_a_server_is_known_to_acknowledge_last() -> None:
    """Acknowledgements that come late now and then say nothing of the server."""
    stage = Stage()
    for _ in range(3):
        stage.clock = stage.machine.clock.count / 100 + 0.01
        stage.begin_step(0.5).give(brought(stage.clock), ack()).wait(1)
        stage.machine.result()
        assert not stage.machine.learned.acknowledges_last
        stepped(stage)
    stage = Stage(learned=Learned(completed_first=deque((1, 2, 3))))
    stage.begin_step(0.5).give(SetValueAck(77, 1), ack(), brought(0.75))
    assert stage.machine.learned.acknowledges_last, "what is known stays known"


# --- completions that come twice -----------------------------------------------------------------------------------


def test_a_completion_that_comes_twice_before_the_next_request_is_dropped_and_acknowledged() -> None:
    stage = stepped()
    stage.sent.clear()
    stage.give(brought(0.25))
    assert [message.CODE for _, message in stage.sent] == [ACKNOWLEDGES]
    assert not stage.machine.episode.doubt
    stepped(stage, output=0.5)


def test_it_is_dropped_behind_the_next_request_too_until_that_is_acknowledged() -> None:
    stage = stepped()
    stage.begin_step(0.5).give(brought(0.25))
    assert stage.codes == [REQUEST, ACKNOWLEDGES]
    stage.give(ack(), brought(0.5))
    assert stage.machine.result().completions[1].outputs.tolist() == [0.5]


@pytest.mark.parametrize("output", [0.25, 0.5])
def test_a_second_completion_of_an_agent_in_a_step_ends_the_episode(output: float) -> None:
    stage = Stage(DOCUMENT, 2).begin_step(0.5, 0.5).give(ack(1), ack(2), brought(0.25), brought(output))
    with pytest.raises(StepUncertain, match="two completions of agent 'agent1' came within a step"):
        stage.machine.result()
    assert "two completions" in stage.machine.episode.doubt
    assert stage.anomalies.count(DOUBLED) == 1


def test_another_completion_than_the_latest_between_two_steps_is_told_by_the_next_and_acknowledged() -> None:
    stage = stepped(stepped())
    stage.sent.clear()
    stage.give(brought(0.75))
    assert [message.CODE for _, message in stage.sent] == [ACKNOWLEDGES]
    stage.begin_step(0.5)
    with pytest.raises(StepUncertain, match="completion of agent 1 came that belongs to no step"):
        stage.machine.result()


def test_what_an_earlier_sessions_step_brings_before_the_first_one_is_not_said_to_be_the_networks_doing() -> (
    None
):
    for reply in (brought(0.75), ack()):
        stage = Stage()
        stage.machine.clock.count = 0
        stage.give(reply)
        assert "belongs to no step" in stage.machine.episode.doubt
        assert DOUBLED not in stage.anomalies
        again = stepped(Stage())
        again.give(reply)
        assert again.anomalies.count(DOUBLED) == 1


# --- what nobody awaits --------------------------------------------------------------------------------------------

HARMLESS = [
    ValueContent(77, "1"),
    SetValueAck(77, 1),
    ResetSimulationAck(),
    ack(8),
]
ENDS = {
    "acknowledgement": (ack(), StepUncertain, "was acknowledged that belongs to no step"),
    "completion": (brought(0.5, agent_id=8), StepUncertain, "agent 8 came that belongs to no step"),
    "restart": (ResetCommunicationAck(), SessionEvicted, "restarted by a client"),
    "goodbye": (EndAck(), SessionLost, "ended this session"),
    "reset": (ResetSimulationCompleted(), StepUncertain, "the world was reset .*, in the middle of it"),
}


@pytest.mark.parametrize("where", ["before", "in"])
def test_late_and_repeated_answers_are_dropped(where: str) -> None:
    stage = Stage()
    if where == "before":
        stage.give(*HARMLESS)
    stage.begin_step(0.5)
    if where == "in":
        stage.give(*HARMLESS)
    stage.give(ack(), brought(0.25))
    assert stage.machine.result()
    assert not stage.machine.episode.doubt
    assert not [message for _, message in stage.sent if message.CODE in QUESTIONS]


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("where", ["before", "in"])
def test_what_nobody_awaits_ends_the_episode_or_the_session(what: str, where: str) -> None:
    reply, error, told = ENDS[what]
    stage = stepped(Stage(DOCUMENT, 1))
    if where == "before":
        stage.give(reply)
        if what == "reset":
            # It is told as a notice: nothing is wrong with steps from there on.
            assert any(isinstance(notice, WorldReset) for notice in stage.machine.notices)
            assert stage.machine.clock.base is None
            return
        with pytest.raises(error, match=told):
            stage.begin_step(0.5).machine.result()
        return
    stage.begin_step(0.5).give(ack(), reply)
    with pytest.raises(error, match=told):
        stage.machine.result()


# --- while others play, and while little is known of the clock -----------------------------------------------------


@pytest.mark.parametrize("clock, believed", [(0.02, True), (0.01, False), (0.03, False)])
def test_while_others_play_the_clock_must_show_exactly_one_step(clock: float, *, believed: bool) -> None:
    stage = Stage()
    stage.machine.foreign = frozenset({"agent9"})
    stage.begin_step(0.5)
    stage.clock = clock
    stage.give(ack(), brought(0.25)).wait(1)
    if believed:
        assert stage.machine.result().completions
        assert len(stage.took(Code.GET_VALUE)) == 1
        return
    with pytest.raises(StepUncertain, match="completions came, and the clock shows"):
        stage.machine.result()


def test_a_completion_before_its_acknowledgement_is_not_believed_while_others_play() -> None:
    """Their requests may have run the step, and ours counts for the next. Not so where the server acknowledges last."""
    stage = Stage(learned=Learned(completed_first=deque((1, 2, 3))))
    stage.machine.foreign = frozenset({"agent9"})
    stage.begin_step(0.5)
    stage.clock = 0.02
    stage.give(brought(0.25), ack()).wait(1)
    assert stage.machine.result().completions
    stage = Stage()
    stage.machine.foreign = frozenset({"agent9"})
    stage.begin_step(0.5)
    stage.clock = 0.02
    stage.give(brought(0.25), ack()).wait(1)
    with pytest.raises(StepUncertain, match="another client's may have run the step"):
        stage.machine.result()


def test_a_step_that_cannot_be_verified_is_not_believed() -> None:
    stage = Stage()
    stage.machine.foreign = frozenset({"agent9"})
    stage.clock = None
    stage.begin_step(0.5).give(ack(), brought(0.25)).wait(9)
    with pytest.raises(StepUncertain, match="it was completed, and cannot be verified"):
        stage.machine.result()


# --- its end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs, infos", [(0, 0), (1, 0), (3, 0), (2, 1)])
def test_a_completion_of_another_size_than_announced_never_reaches_the_user(outputs: int, infos: int) -> None:
    stage = Stage(outputs=2)
    reply = StepCompleted(1, np.zeros(outputs, np.float32), np.zeros(infos, np.float32))
    stage.begin_step(0.5).give(ack(), reply)
    with pytest.raises(
        OutputsIncomplete, match=rf"with {outputs} outputs? and {infos} infos?, it announced 2 and 0"
    ):
        stage.machine.result()
    assert stage.machine.episode.doubt


@pytest.mark.parametrize("others", [False, True])
def test_a_step_whose_completion_nobody_can_read_is_not_said_to_be_a_pause(*, others: bool) -> None:
    """A server that sends observed values in the datagram of the completion reads the document so."""
    stage = Stage()
    if others:
        stage.foreign, stage.machine.foreign = True, frozenset({"agent9"})
    stage.begin_step(0.5).give(ack())
    with pytest.raises(RemoteProtocolError):
        stage.give(brought(0.5, observed=1).encode() + ValueContent(1, "0.5").encode())
    stage.wait(9)
    with pytest.raises(BarrierStuck, match="other clients" if others else "is not of OSP 1.1") as stuck:
        stage.machine.result()
    assert ("its author" in stuck.value.hint) is not others


def test_a_stuck_barrier_names_agents_that_the_simulator_took_away() -> None:
    stage = Stage(DOCUMENT, 3)
    stage.begin_step(0.5, 0.5, 0.5).give(ack(1), ack(2), ack(3))
    stage.gone = {1, 3}
    stage.wait(9)
    with pytest.raises(BarrierStuck, match="does not offer agents 'agent1', 'agent3' any more") as stuck:
        stage.machine.result()
    assert "ospbridge agents" in stuck.value.hint


def test_a_simulator_that_does_not_say_who_is_missing_fell_silent() -> None:
    stage = Stage()
    stage.silent = True
    stage.begin_step(0.5).give(ack()).wait(9)
    assert stage.machine.now == pytest.approx(3.0 + LAST_WORD)
    with pytest.raises(SessionLost, match="fell silent in the middle of a step"):
        stage.machine.result()
    assert stage.machine.episode.doubt == "a step of this session never completed"


def test_pushed_values_come_with_the_step_and_are_acknowledged_behind_the_last_one() -> None:
    stage = Stage(DOCUMENT)
    stage.machine.values.observed = {8: "/x", 9: "/y"}
    stage.begin_step(0.5).give(ack(), brought(0.5, observed=2), ValueContent(8, "1"))
    assert stage.codes == [REQUEST]
    stage.give(ValueContent(9, "2"))
    assert stage.codes == [REQUEST, ACKNOWLEDGES]
    assert stage.machine.result().values == {8: "1", 9: "2"}


def test_a_pushed_value_that_is_missing_is_given_up_at_the_first_silence() -> None:
    stage = Stage(DOCUMENT)
    stage.machine.values.observed = {8: "/x", 9: "/y"}
    stage.begin_step(0.5).give(ack(), brought(0.5, observed=2), ValueContent(8, "1"))
    stage.clock = 0.02
    stage.wait(0.24)
    assert stage.codes == [REQUEST]
    stage.wait(1)
    assert stage.codes == [REQUEST, ACKNOWLEDGES]
    assert stage.machine.result().values == {8: "1"}
    assert stage.machine.result().restored == frozenset()
