"""Joining: forms of INIT, their answers, and the handlers of those that nobody needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest

from ospbridge.errors import (
    ConfigurationError,
    SimulatorNotFound,
    SimulatorSilent,
    VersionRefused,
)
from ospbridge.interface import Endpoint
from ospbridge.osp.client import RESET_COMPLETED
from ospbridge.osp.codes import Code
from ospbridge.osp.connect import COLLECT, ConnectMachine, SurplusMachine
from ospbridge.osp.messages import (
    End,
    EndAck,
    Init,
    InitAck,
)
from ospbridge.osp.profile import (
    DOCUMENT,
    NERD,
    InitForm,
    Profile,
    profile_named,
)
from ospbridge.osp.queries import UNREADABLE
from ospbridge.osp.timing import SILENCE, Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import MAIN, Datagram, Pair
from tests.osp.stage import BOTH, joined


@BOTH
def test_probing_finds_the_profile_and_leaves_no_second_handler(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = joined(pair)
    pair.settle()
    assert client.conversation.machine.profile is profile
    assert pair.server.handlers == 1


@BOTH
def test_a_handler_for_a_repeated_init_is_ended(profile: Profile) -> None:
    first = True

    def lose_first_answer(datagram: Datagram) -> tuple[float, ...]:
        nonlocal first
        if not datagram.to_server and datagram.data[0] == Code.INIT_COMMUNICATION_ACK and first:
            first = False
            return (0.3,)
        return (0.0,)

    pair = Pair(SyntheticWorld(1, 1), profile, fault=lose_first_answer)
    joined(pair, profile=profile)
    pair.settle()
    assert pair.server.handlers == 1


def until_adopted(machine: ConnectMachine) -> None:
    while not machine.finished:
        machine.handle_timer(machine.deadline)


@pytest.mark.parametrize(
    "came, told, readable",
    [
        (b"\xff\xff", "code 255", False),
        (b"\x06\1\0\0\0\1\0\0\0\0", "1 byte left", False),
        (b"\x0b", "ResetCommunicationAck", True),
    ],
)
def test_a_silent_address_is_told_with_what_was_sent_and_seen(
    came: bytes, told: str, *, readable: bool
) -> None:
    machine = ConnectMachine(MAIN, None, limits=Limits(connect=3.0), now=0.0)
    machine.receive(came, Endpoint(MAIN.host, 9), 0.1)
    with pytest.raises(SimulatorSilent, match=rf"within 3\.0 s: sent \d+ INITs .*{told}") as caught:
        until_adopted(machine)
    assert machine.deadline == 3.0
    assert (UNREADABLE in caught.value.hint) is not readable
    assert "45454" in caught.value.hint


def pauses(machine: ConnectMachine) -> list[tuple[float, float]]:
    """When INIT, which nobody answers, is paused, and until when; what is done meanwhile takes no time."""
    told = []
    with suppress(SimulatorSilent):
        while True:
            now = machine.deadline
            machine.handle_timer(now)
            if machine.paused_until is not None:
                told.append((now, machine.paused_until))
                machine.paused_until = None
    return told


@pytest.mark.parametrize("profile", [None, NERD])
def test_silence_gives_the_driver_its_turn_at_once_and_then_now_and_then(profile: Profile | None) -> None:
    limits = Limits(connect=8.0)
    machine = ConnectMachine(MAIN, profile, limits=limits, now=0.0, pauses=True)
    turns = pauses(machine)
    assert len(turns) == 3
    assert turns[0][0] == pytest.approx(0.26, abs=0.02)
    assert all(2.0 < later - sooner < 4.0 for (sooner, _), (later, _) in pairwise(turns))
    assert all(until == pytest.approx((now + 8.0) / 2) for now, until in turns)
    assert pauses(ConnectMachine(MAIN, profile, limits=limits, now=0.0)) == []


@pytest.mark.parametrize("profile", [None, DOCUMENT])
def test_a_server_that_awaits_the_end_byte_is_known_by_its_own(profile: Profile | None) -> None:
    machine = ConnectMachine(MAIN, profile, now=0.0)
    asked = [data for data, _ in machine.outgoing]
    assert Init(form=InitForm.INTS).encode() in asked
    machine.outgoing.clear()
    machine.handle_timer(machine.deadline)
    assert Init(form=InitForm.INTS).encode(end=True) in [data for data, _ in machine.outgoing]
    machine.receive(InitAck(form=InitForm.INTS).encode(end=True), Endpoint(MAIN.host, 50000), 0.3)
    machine.handle_timer(machine.deadline)
    assert machine.answered == (Endpoint(MAIN.host, 50000), replace(DOCUMENT, end_marker=True))


@BOTH
def test_a_reset_that_is_told_while_it_connects_is_acknowledged(profile: Profile) -> None:
    machine = ConnectMachine(MAIN, None, now=0.0)
    machine.outgoing.clear()
    machine.receive(bytes((profile.reset_completed,)), Endpoint(MAIN.host, 50000), 0.05)
    assert machine.outgoing == [
        (bytes((RESET_COMPLETED[profile.reset_completed],)), Endpoint(MAIN.host, 50000))
    ]


@pytest.mark.parametrize(
    "profile, answer, told, hint",
    [
        (NERD, InitAck(1, 2, InitForm.BYTES).encode(), r"answered with OSP 1\.2, expected 1\.1", ""),
        (DOCUMENT, b"\x06\0\0\0\x01\0\0\0\x01", "answered with OSP", "big-endian"),
    ],
)
def test_an_answer_of_another_version_is_refused(
    profile: Profile, answer: bytes, told: str, hint: str
) -> None:
    machine = ConnectMachine(MAIN, profile, now=0.0)
    with pytest.raises(VersionRefused, match=told) as caught:
        machine.receive(answer, Endpoint(MAIN.host, 50000), 0.05)
    assert hint in caught.value.hint


@BOTH
def test_whoever_gives_up_says_goodbye_to_the_handler_that_has_answered(profile: Profile) -> None:
    machine = ConnectMachine(MAIN, None, now=0.0)
    machine.receive(InitAck(form=profile.init_form).encode(), Endpoint(MAIN.host, 50000), 0.05)
    assert machine.answered == (Endpoint(MAIN.host, 50000), profile)
    assert not machine.finished
    machine.turn_back()
    assert machine.outgoing == [(End().encode(end=profile.end_marker), Endpoint(MAIN.host, 50000))]


@pytest.mark.parametrize("refused_first", [True, False])
def test_a_server_that_misreads_one_form_of_init_and_knows_the_other_is_joined(refused_first: bool) -> None:
    machine = ConnectMachine(MAIN, None, now=0.0)
    refusal = InitAck(1, 0, InitForm.BYTES).encode(), Endpoint(MAIN.host, 50000)
    answer = InitAck(form=InitForm.INTS).encode(), Endpoint(MAIN.host, 50001)
    for data, source in (refusal, answer) if refused_first else (answer, refusal):
        machine.receive(data, source, 0.05)
    machine.handle_timer(machine.deadline)
    assert (machine.finished, machine.answered) == (True, (Endpoint(MAIN.host, 50001), DOCUMENT))
    assert machine.surplus == [Endpoint(MAIN.host, 50000)]
    assert machine.outgoing[-1] == (End().encode(), Endpoint(MAIN.host, 50000))


def test_one_socket_that_answers_both_forms_of_init_is_not_sent_away() -> None:
    machine = ConnectMachine(MAIN, None, now=0.0)
    machine.outgoing.clear()
    handler = Endpoint(MAIN.host, 50000)
    machine.receive(InitAck(1, 0, InitForm.BYTES).encode(), handler, 0.05)
    machine.receive(InitAck(form=InitForm.INTS).encode(), handler, 0.06)
    machine.handle_timer(machine.deadline)
    assert (machine.finished, machine.answered) == (True, (handler, DOCUMENT))
    assert machine.outgoing == []


def test_an_answer_from_another_host_is_not_adopted_but_told_of() -> None:
    machine = ConnectMachine(MAIN, NERD, limits=Limits(connect=3.0), now=0.0)
    machine.handle_timer(0.0)
    for _ in range(20):
        machine.receive(InitAck(form=InitForm.BYTES).encode(), Endpoint("10.9.9.9", 50000), 0.05)
    with pytest.raises(SimulatorSilent) as caught:
        until_adopted(machine)
    assert "from 10.9.9.9:50000: if that is the simulator, write its address" in caught.value.message
    machine.turn_back()
    assert machine.outgoing == []


def test_a_refusal_counts_when_the_other_form_of_init_has_no_answer_either() -> None:
    machine = ConnectMachine(MAIN, None, now=0.0)
    for _ in range(2):
        machine.receive(InitAck(1, 2, InitForm.BYTES).encode(), Endpoint(MAIN.host, 50000), 0.05)
    with pytest.raises(VersionRefused):
        until_adopted(machine)
    assert machine.owed == 0


HANDLER = Endpoint(MAIN.host, 50_000)


def test_a_closed_main_port_is_no_simulator() -> None:
    machine = ConnectMachine(MAIN, NERD, now=0.0)
    with pytest.raises(SimulatorNotFound, match=r"nothing listens at .*45454"):
        machine.handle_refused()
    with pytest.raises(SimulatorNotFound, match="cannot be reached: no route"):
        machine.handle_unreachable("no route")


@pytest.mark.parametrize("first", InitForm)
def test_a_server_that_answers_both_forms_is_one_of_the_document_whichever_answer_comes_first(
    first: InitForm,
) -> None:
    machine = ConnectMachine(MAIN, None, now=0.0)
    machine.outgoing.clear()
    other = Endpoint(MAIN.host, 50_001)
    for form in sorted(InitForm, key=lambda form: form is not first):
        machine.receive(InitAck(form=form).encode(), HANDLER if form is InitForm.INTS else other, 0.05)
    assert machine.answered == (HANDLER, DOCUMENT)
    machine.handle_timer(COLLECT)
    assert (machine.answered, machine.finished, machine.surplus) == ((HANDLER, DOCUMENT), True, [other])
    assert machine.greeting == InitAck(form=InitForm.INTS).encode()
    assert [to for _, to in machine.outgoing] == [other]


ANSWER = InitAck(form=InitForm.INTS).encode()
END = End().encode()
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


def test_an_end_that_is_not_confirmed_is_said_again_a_few_times() -> None:
    machine = begun(1)
    machine.receive(ANSWER, handler(0), 0.0)
    while not machine.finished:
        machine.handle_timer(machine.deadline)
    assert sent(machine) == [(END, handler(0))] * (1 + ceil(2.0 / SILENCE))


def test_all_of_them_are_given_up_when_the_time_for_leaving_is_over() -> None:
    machine = begun(2)
    machine.receive(ANSWER, handler(0), 1.9)
    assert machine.deadline == 2.0
    machine.handle_timer(2.0)
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
    assert machine.deadline == pytest.approx(SILENCE)


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
    while not machine.finished:
        machine.handle_timer(machine.deadline)
    assert machine.owed == 1


def test_an_unknown_profile_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigurationError, match="unknown profile 'orcs'") as caught:
        profile_named("orcs")
    assert profile_named("auto") is None
    assert caught.value.hint == "use one of auto, document, nerd"
    assert caught.value.exit_code == 78
