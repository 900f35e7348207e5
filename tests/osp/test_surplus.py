"""Handlers that answer INITs which nobody needs answered any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ospbridge.interface import Endpoint
from ospbridge.osp.client.connecting import ConnectMachine
from ospbridge.osp.client.surplus import TRIES, SurplusMachine
from ospbridge.osp.client.unasked import RESET_COMPLETED
from ospbridge.osp.messages import End, EndAck, InitAck
from ospbridge.osp.profile import DOCUMENT, NERD, InitForm
from ospbridge.osp.timing import Limits

if TYPE_CHECKING:
    from ospbridge.osp.profile import Profile

MAIN = Endpoint("127.0.0.1", 45454)
ANSWER = InitAck(form=InitForm.INTS).encode()
END = End().encode(end=False)
LEFT = EndAck().encode()


def handler(number: int) -> Endpoint:
    return Endpoint(MAIN.host, 50_000 + number)


def begun(owed: int, *, give_up: float = 2.0) -> SurplusMachine:
    machine = SurplusMachine(MAIN, DOCUMENT, owed)
    machine.begin(0.0, give_up)
    return machine


def sent(machine: SurplusMachine) -> list[tuple[bytes, Endpoint]]:
    out, machine.outgoing = machine.outgoing, []
    return out


def test_each_of_them_gets_its_end_and_the_last_one_ends_it() -> None:
    machine = begun(2)
    for number in range(2):
        assert not machine.finished
        machine.receive(ANSWER, handler(number), 0.1)
        assert sent(machine) == [(END, handler(number))]
        machine.receive(LEFT, handler(number), 0.1)
    assert machine.finished


def test_an_answer_that_comes_twice_is_one_handlers() -> None:
    machine = begun(2)
    machine.receive(ANSWER, handler(0), 0.1)
    machine.receive(ANSWER, handler(0), 0.1)
    assert sent(machine) == [(END, handler(0))]
    machine.receive(LEFT, handler(0), 0.2)
    assert not machine.finished, "another one is owed"


def test_where_none_is_owed_it_takes_no_time() -> None:
    assert begun(0).finished


def test_silence_ends_it_after_a_moment() -> None:
    machine = begun(3)
    assert machine.deadline == pytest.approx(DOCUMENT.patience)
    machine.handle_timer(machine.deadline)
    assert machine.finished
    assert sent(machine) == []


def test_each_answer_gives_the_next_one_as_long() -> None:
    machine = begun(3)
    machine.receive(ANSWER, handler(0), 0.2)
    machine.receive(LEFT, handler(0), 0.3)
    assert machine.deadline == pytest.approx(0.3 + DOCUMENT.patience)


def test_an_end_that_is_not_confirmed_is_said_again_a_few_times() -> None:
    machine = begun(1)
    machine.receive(ANSWER, handler(0), 0.0)
    while not machine.finished:
        machine.handle_timer(machine.deadline)
    assert sent(machine) == [(END, handler(0))] * TRIES


def test_it_ends_when_it_must_whoever_has_not_confirmed() -> None:
    machine = begun(2, give_up=0.3)
    machine.receive(ANSWER, handler(0), 0.2)
    assert machine.deadline == 0.3
    machine.handle_timer(0.3)
    assert machine.finished


def test_a_reset_that_such_a_handler_tells_of_is_acknowledged_and_end_said_again() -> None:
    machine = begun(1)
    machine.receive(ANSWER, handler(0), 0.0)
    sent(machine)
    machine.receive(bytes((DOCUMENT.reset_completed,)), handler(0), 0.1)
    assert sent(machine) == [
        (bytes((RESET_COMPLETED[DOCUMENT.reset_completed],)), handler(0)),
        (END, handler(0)),
    ]


def test_nobody_else_is_told_to_end() -> None:
    machine = begun(1)
    machine.receive(ANSWER, Endpoint("127.0.0.2", 50_000), 0.0)
    machine.receive(LEFT, handler(0), 0.0)
    machine.receive(bytes((DOCUMENT.reset_completed,)), handler(0), 0.0)
    machine.receive(b"\xff\xff", handler(0), 0.0)
    assert sent(machine) == []
    assert machine.deadline == pytest.approx(DOCUMENT.patience)


def test_one_that_has_left_is_not_greeted_again_by_a_copy_of_its_answer() -> None:
    machine = begun(2)
    machine.receive(ANSWER, handler(0), 0.0)
    machine.receive(LEFT, handler(0), 0.0)
    sent(machine)
    machine.receive(ANSWER, handler(0), 0.1)
    assert sent(machine) == []


@pytest.mark.parametrize("profile", [None, DOCUMENT])
def test_inits_that_were_sent_again_are_owed_an_answer(profile: Profile | None) -> None:
    machine = ConnectMachine(MAIN, profile, limits=Limits(connect=10.0), now=0.0)
    for _ in range(2):
        machine.handle_timer(machine.deadline)
    now = machine.deadline
    assert machine.owed == 0
    machine.receive(ANSWER, handler(0), now)
    assert machine.owed == 2
    machine.receive(ANSWER, handler(1), now)
    assert machine.owed == 1
    while machine.adopted is None:
        machine.handle_timer(machine.deadline)
    assert machine.owed == 1


@pytest.mark.parametrize("profile", [None, NERD])
def test_an_init_that_was_answered_at_once_owes_nothing(profile: Profile | None) -> None:
    machine = ConnectMachine(MAIN, profile, now=0.0)
    machine.receive(InitAck(form=InitForm.BYTES).encode(end=True), handler(0), 0.05)
    assert machine.owed == 0
