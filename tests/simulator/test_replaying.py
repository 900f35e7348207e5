"""A recorded simulator, without sockets: what it answers, in which order, and what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.observe.trace import Direction, TraceRecord, read_trace
from ospbridge.osp import messages as osp
from ospbridge.osp.codes import Code
from ospbridge.simulator.replay_script import read_scripts
from ospbridge.simulator.replaying import ReplayMachine, What
from tests.simulator.traced import INIT_ACK, Replayed, Traced, bytes_of, completed, replayed, vote

RECORDINGS = sorted((Path(__file__).parents[1] / "osp" / "traces").glob("*.jsonl"))
RAN = bytes_of(osp.ResetSimulationAck(), osp.ResetSimulationCompleted())


# --- the same client ------------------------------------------------------------------------------------------------


def test_the_recorded_client_is_answered_as_it_was() -> None:
    trace = (
        Traced()
        .sent(osp.RegisterForAgent(1))
        .received(osp.RegisterForAgentAck(1, 1))
        .reset(7)
        .step(0.5, 1.0)
        .step(0.25, 2.0)
    )
    replay = replayed(trace)
    assert replay.ask(osp.RegisterForAgent(1)) == bytes_of(osp.RegisterForAgentAck(1, 1))
    assert replay.ask(osp.ResetSimulation(7)) == RAN
    assert replay.ask(vote(0.5)) == bytes_of(osp.NextSimulationStepAck(1), completed(1.0))
    assert replay.ask(osp.StepCompletedAck(1)) == []
    assert replay.ask(vote(0.25)) == bytes_of(osp.NextSimulationStepAck(1), completed(2.0))
    assert replay.of(What.DIFFERS) == []
    assert (replay.machine.steps, replay.machine.resets) == (2, 1)
    assert replay.of(What.OVER) == [
        "the recording ends after 2 of its steps and 1 of its resets; from here on the world stands still"
    ]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_client_that_sends_what_was_recorded_is_answered_with_all_that_was(path: Path) -> None:
    """Each conversation of a real server, played again datagram by datagram."""
    records = list(read_trace(path))
    scripts = read_scripts(records)
    machine = ReplayMachine(scripts, tell=lambda _: None)
    lines: dict[tuple[str, int], list[TraceRecord]] = {}
    for record in records:
        lines.setdefault((record.client, record.port), []).append(record)
    for number, (line, of_line) in enumerate(lines.items()):
        answers = sorted(r.data for r in of_line if r.direction is Direction.SERVER_TO_CLIENT)
        sent = [r.data for r in of_line if r.direction is Direction.CLIENT_TO_SERVER]
        if bytes((Code.INIT_COMMUNICATION_ACK,)) not in (data[:1] for data in answers):
            continue  # the main port
        if not any(data[:1] not in (b"\x07", b"\x0a") for data in sent):
            continue  # it knocked twice, and left at once
        replay = Replayed(machine, [])
        got = replay.join(f"client {number}")
        for data in sent:
            got += replay.ask(data)
        assert sorted(got) == answers, line


def test_votes_of_one_step_come_in_any_order_and_completions_one_by_one_where_the_recorded_ones_did() -> None:
    replay = replayed(Traced().step(0.5, 1.0, 1, 2))
    assert replay.ask(vote(0.5, 2)) == bytes_of(osp.NextSimulationStepAck(2))
    assert replay.ask(vote(0.5, 1)) == bytes_of(osp.NextSimulationStepAck(1), completed(1.0, 1))
    assert replay.ask(osp.StepCompletedAck(1)) == bytes_of(completed(1.0, 2))
    assert replay.ask(osp.StepCompletedAck(2)) == []
    assert replay.of(What.DIFFERS) == []


def test_a_request_that_was_lost_is_lost_again() -> None:
    trace = Traced().sent(vote(0.5)).step(0.5, 1.0)
    replay = replayed(trace)
    assert replay.ask(vote(0.5)) == []
    assert replay.ask(vote(0.5)) == bytes_of(osp.NextSimulationStepAck(1), completed(1.0))


# --- questions ------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_as_at_the_same_place_of_the_recording() -> None:
    trace = Traced()
    for step in range(3):
        trace.sent(osp.GetValue(2)).received(osp.ValueContent(2, f"{step}")).step(0.5, step)
    replay = replayed(trace)
    for step in range(3):
        assert replay.ask(osp.GetValue(2)) == bytes_of(osp.ValueContent(2, f"{step}"))
        assert replay.ask(osp.GetValue(2)) == bytes_of(osp.ValueContent(2, f"{step}"))
        replay.ask(vote(0.5))
    assert replay.ask(osp.GetValue(2)) == bytes_of(osp.ValueContent(2, "2"))
    assert replay.of(What.DIFFERS) == []


@pytest.mark.parametrize(
    "question, answer",
    [
        (osp.GetValueIds(".*"), osp.ValueIds(0)),
        (osp.GetValue(7), osp.ValueContent(-1, "")),
        (osp.SetValue(7, "1"), osp.SetValueAck(7, 2)),
        (osp.RegisterForAgent(7), osp.RegisterForAgentAck(7, 0)),
    ],
)
def test_what_was_never_asked_is_answered_as_by_a_simulator_that_has_no_such_thing(
    question: osp.GetValue, answer: osp.ValueContent
) -> None:
    replay = replayed(Traced().step(0.5, 1.0))
    assert replay.ask(question) == bytes_of(answer)
    (text,) = replay.of(What.DIFFERS)
    assert text.startswith(f"step 1: the recording has no {question.CODE.name}")


def test_garbage_is_counted_and_told_and_not_answered() -> None:
    replay = replayed(Traced().step(0.5, 1.0))
    assert replay.ask(b"\x09\xff") == replay.ask(b"") == []
    assert replay.machine.problems["unknown command"] == 2


def test_whoever_leaves_is_let_go_whether_that_was_recorded_or_not() -> None:
    for trace in (Traced().step(0.5, 1.0), Traced().sent(osp.End()).received(osp.EndAck())):
        replay = replayed(trace)
        assert replay.ask(osp.End()) == bytes_of(osp.EndAck())
        assert replay.closed == [replay.handler]
        assert replay.of(What.DIFFERS) == []


# --- another client -------------------------------------------------------------------------------------------------


def test_other_inputs_are_told_with_what_was_expected_and_what_came() -> None:
    replay = replayed(Traced().step(0.5, 1.0).step(0.5, 2.0))
    replay.ask(vote(0.5))
    assert replay.ask(vote(0.75)) == bytes_of(osp.NextSimulationStepAck(1), completed(2.0))
    assert replay.of(What.DIFFERS) == [
        "step 2: expected NEXT_SIMULATION_STEP agent 1 inputs [0.5], got NEXT_SIMULATION_STEP agent 1 inputs [0.75]"
    ]
    assert replay.told[-2].time == pytest.approx(0.06)


def test_an_early_reset_goes_on_with_the_next_recorded_one() -> None:
    trace = Traced().reset(1).step(0.5, 1.0).step(0.5, 2.0).reset(1).step(0.5, 3.0)
    replay = replayed(trace)
    replay.ask(osp.ResetSimulation(1))
    replay.ask(vote(0.5))
    assert replay.ask(osp.ResetSimulation(1)) == RAN
    assert replay.ask(vote(0.5))[1:] == bytes_of(completed(3.0))
    assert replay.of(What.DIFFERS) == ["step 2: RESET_SIMULATION seed 1 comes 1 step before the recorded one"]


def test_a_step_beyond_the_recorded_episode_is_acknowledged_and_never_runs() -> None:
    trace = Traced().reset(1).step(0.5, 1.0).reset(1).step(0.5, 2.0)
    replay = replayed(trace)
    replay.ask(osp.ResetSimulation(1))
    replay.ask(vote(0.5))
    assert replay.ask(vote(0.5)) == bytes_of(osp.NextSimulationStepAck(1))
    assert replay.of(What.DIFFERS) == [
        "reset 2: NEXT_SIMULATION_STEP agent 1 inputs [0.5] never runs: the recorded client reset the world here"
    ]
    assert replay.ask(osp.ResetSimulation(1)) == RAN
    assert replay.ask(vote(0.5))[1:] == bytes_of(completed(2.0))


def test_at_the_end_of_the_recording_the_world_stands_still() -> None:
    replay = replayed(Traced().reset(1).step(0.5, 1.0))
    replay.ask(osp.ResetSimulation(1))
    replay.ask(vote(0.5))
    assert replay.ask(vote(0.5)) == bytes_of(osp.NextSimulationStepAck(1))
    assert replay.ask(osp.ResetSimulation(1)) == bytes_of(osp.ResetSimulationAck())
    assert [text.rpartition(": ")[2] for text in replay.of(What.DIFFERS)] == ["the recording is over"] * 2


def test_a_loop_begins_again_with_the_first_reset() -> None:
    replay = replayed(Traced().reset(1).step(0.5, 1.0).step(0.5, 2.0), loop=True)
    for _ in range(3):
        assert replay.ask(osp.ResetSimulation(1)) == RAN
        assert replay.ask(vote(0.5))[1:] == bytes_of(completed(1.0))
        assert replay.ask(vote(0.5))[1:] == bytes_of(completed(2.0))
    assert replay.of(What.DIFFERS) == []
    assert replay.of(What.OVER)[0].endswith("; a reset begins it again")


def test_a_strict_replay_answers_nothing_after_a_difference() -> None:
    replay = replayed(Traced().step(0.5, 1.0).step(0.5, 2.0), strict=True)
    assert replay.ask(vote(0.75)) == []
    assert replay.ask(vote(0.5)) == []
    assert replay.join("another") == []
    assert replay.machine.differences == 1


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed, delay", [(1.0, 0.01), (2.0, 0.005)])
def test_delays_are_the_recorded_ones_by_the_speed(speed: float, delay: float) -> None:
    replay = replayed(Traced().step(0.5, 1.0), speed=speed, join=False)
    assert replay.join() == []
    assert replay.machine.next_deadline() == pytest.approx(delay)
    assert replay.wait(delay) == bytes_of(INIT_ACK)
    assert replay.ask(vote(0.5)) == []
    assert replay.wait(delay) == bytes_of(osp.NextSimulationStepAck(1))
    assert replay.wait(delay / 2) == []
    assert replay.wait(delay / 2) == bytes_of(completed(1.0))


# --- several clients ------------------------------------------------------------------------------------------------


def test_each_client_is_given_the_next_conversation_and_the_first_again_after_the_last() -> None:
    traces = [Traced("A").step(0.5, 1.0), Traced("B", port=40002).step(0.5, 2.0)]
    replay = replayed(*traces, join=False)
    for number, output in enumerate([1.0, 2.0, 1.0]):
        assert replay.join(f"client {number}")
        assert replay.ask(vote(0.5))[1:] == bytes_of(completed(output))
    assert [told.conversation for told in replay.told if told.what is What.JOINED] == [1, 2, 1]


def test_at_the_limit_of_handlers_who_was_silent_for_longest_gives_way() -> None:
    replay = replayed(Traced().step(0.5, 1.0), max_handlers=2)
    assert replay.join("client 1")
    replay.now = 59.0
    assert replay.ask(vote(0.5), handler=1)
    assert replay.join("client 2") == []
    replay.now = 61.0
    assert replay.join("client 2")
    assert replay.closed == [2]
    assert replay.of(What.LEFT) == [
        "its client, silent for longest, gives way to another after 0 of its steps and 0 of its resets"
    ]
    assert replay.join("client 3") == []


# --- untrusted ------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT, Direction.NOTE]),
            st.one_of(
                st.binary(max_size=12),
                st.builds(
                    lambda code, rest: bytes((code,)) + rest,
                    st.sampled_from([int(code) for code in Code]),
                    st.sampled_from([b"", b"\1\0\0\0", b"\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"]),
                ),
            ),
        ),
        max_size=30,
    ),
    st.lists(st.binary(max_size=8), max_size=10),
    st.booleans(),
    st.sampled_from([None, 1.0]),
)
def test_no_trace_and_no_client_makes_it_raise(
    lines: list[tuple[Direction, bytes]], asked: list[bytes], loop: bool, speed: float | None
) -> None:
    trace = Traced()
    for direction, data in lines:
        trace._all(direction, (data,), 0)
    replay = replayed(trace, join=False, loop=loop, speed=speed)
    replay.join()
    for data in [*(data for direction, data in lines if direction is Direction.CLIENT_TO_SERVER), *asked]:
        replay.ask(data)
        replay.wait(0.02)
    replay.wait(4000.0)
