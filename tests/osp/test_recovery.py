"""The decision table: complete, and each row as the design states it."""

from __future__ import annotations

import itertools

import pytest

from ospbridge.osp.client.clock import Moved
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
