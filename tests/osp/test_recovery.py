"""The decision table: complete, and each row as the design states it."""

from __future__ import annotations

import itertools

import pytest

from ospbridge.osp.client.clock import Moved, StepClock
from ospbridge.osp.codes import COMMAND_CLASS, Code, CommandClass
from ospbridge.osp.messages import REQUESTS
from ospbridge.osp.step.recovery import RESET_TABLE, STEP_TABLE, Acknowledged, Action, Evidence, decide

EVERYTHING = [
    Evidence(acknowledged, moved, *rest)
    for acknowledged, moved in itertools.product(Acknowledged, Moved)
    for rest in itertools.product((False, True), repeat=7)
]


@pytest.mark.parametrize("table", [STEP_TABLE, RESET_TABLE], ids=["step", "reset"])
def test_every_evidence_has_a_row_and_every_row_is_reached(table: tuple[object, ...]) -> None:
    reached = {id(decide(table, evidence)) for evidence in EVERYTHING}  # type: ignore[arg-type]
    assert reached == {id(row) for row in table}


def test_an_acknowledged_vote_is_never_sent_again() -> None:
    for evidence in EVERYTHING:
        if evidence.acknowledged is Acknowledged.ALL:
            assert decide(STEP_TABLE, evidence).action is not Action.RESEND


def test_a_vote_is_never_sent_again_while_others_hold_agents() -> None:
    for evidence in EVERYTHING:
        if not evidence.sole:
            assert decide(STEP_TABLE, evidence).action is not Action.RESEND
            assert decide(RESET_TABLE, evidence).action is not Action.REPEAT


def test_a_vote_is_sent_again_once_only_and_never_by_a_session_that_saw_a_late_datagram() -> None:
    for evidence in EVERYTHING:
        if decide(STEP_TABLE, evidence).action is Action.RESEND:
            assert evidence.punctual
            assert not evidence.resent
            assert evidence.moved is Moved.NO
            assert evidence.acknowledged is Acknowledged.ALL_BUT_ONE


@pytest.mark.parametrize(
    "evidence, action",
    [
        (Evidence(Acknowledged.ALL, Moved.NO, True, True), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.NO, False, False), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.ONCE, True, True), Action.RESTORE),
        (Evidence(Acknowledged.ALL, Moved.ONCE, True, True, hasty=True), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.NO, True, True, disowned=True), Action.BELIEVE),
        (Evidence(Acknowledged.ALL, Moved.NO, False, True, disowned=True), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.ONCE, True, True, disowned=True), Action.RESTORE),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.ONCE, False, True), Action.RESTORE),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.NO, True, True), Action.RESEND),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.NO, True, False), Action.POLL),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.NO, False, True), Action.POLL),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.NO, True, True, resent=True), Action.GIVE_UP),
        (Evidence(Acknowledged.FEWER, Moved.NO, True, True), Action.GIVE_UP),
        (Evidence(Acknowledged.ALL, Moved.OTHERWISE, True, True), Action.GIVE_UP),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.ONCE, True, True, doubled=True), Action.GIVE_UP),
        (Evidence(Acknowledged.ALL_BUT_ONE, Moved.UNKNOWN, True, True), Action.POLL),
    ],
)
def test_the_rows_of_the_step_table(evidence: Evidence, action: Action) -> None:
    assert decide(STEP_TABLE, evidence).action is action


@pytest.mark.parametrize(
    "evidence, action",
    [
        (Evidence(Acknowledged.ALL, Moved.UNKNOWN, True, True, hasty=True), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.ONCE, True, True, hasty=True), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.ONCE, True, True), Action.RESTORE),
        (Evidence(Acknowledged.ALL, Moved.UNKNOWN, True, True), Action.REPEAT),
        (Evidence(Acknowledged.ALL, Moved.NO, True, True), Action.REPEAT),
        (Evidence(Acknowledged.ALL, Moved.NO, True, True, trusted=True), Action.WAIT),
        (Evidence(Acknowledged.ALL, Moved.UNKNOWN, True, True, trusted=True), Action.REPEAT),
        (Evidence(Acknowledged.FEWER, Moved.NO, True, True, trusted=True), Action.REPEAT),
        (Evidence(Acknowledged.FEWER, Moved.NO, True, True, hasty=True), Action.REPEAT),
        (Evidence(Acknowledged.FEWER, Moved.NO, False, True), Action.POLL),
        (Evidence(Acknowledged.ALL, Moved.NO, False, True), Action.WAIT),
    ],
)
def test_the_rows_of_the_reset_table(evidence: Evidence, action: Action) -> None:
    assert decide(RESET_TABLE, evidence).action is action


def test_every_request_but_acknowledgements_has_a_class() -> None:
    acknowledgements = {
        Code.AGENT_OVERVIEW_ACK,
        Code.AGENT_INFO_ACK,
        Code.VALUE_INFO_ACK,
        Code.NEXT_SIMULATION_STEP_COMPLETED_ACK,
        Code.RESET_SIMULATION_COMPLETED,
        Code.RESET_SIMULATION_COMPLETED_ACK,
    }
    assert set(COMMAND_CLASS) == {Code(code) for code in REQUESTS} - acknowledgements
    assert COMMAND_CLASS[Code.NEXT_SIMULATION_STEP] is CommandClass.BARRIER


def test_the_clock_compares_by_difference_because_a_first_step_zeroes_it() -> None:
    clock = StepClock()
    clock.start(3.0)
    assert clock.judge(3.0) is Moved.NO
    assert clock.judge(0.01) is Moved.ONCE
    clock.believe(0.01)
    assert (clock.base, clock.count, clock.size) == (0.01, 0, None)


def test_the_clock_counts_steps_once_it_knows_their_size() -> None:
    clock = StepClock()
    clock.start(0.0)
    clock.believe(0.01)
    assert clock.judge(0.01) is Moved.NO
    assert clock.judge(0.02) is Moved.ONCE
    assert clock.judge(0.03) is Moved.OTHERWISE
    clock.believe(None)
    assert clock.steps_shown(0.0700000000000001) == 7


def test_a_clock_without_a_base_cannot_judge() -> None:
    assert StepClock().judge(1.0) is Moved.UNKNOWN
