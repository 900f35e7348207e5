"""Lists of servers that read the document otherwise than those that can still be run."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client import asking, bursts, roster
from ospbridge.osp.client.bursts import FROM_ONE
from ospbridge.osp.client.leaving import leave
from ospbridge.osp.client.listing import list_once
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    End,
    EndAck,
    Message,
    ValueIds,
    ValueInfo,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from tests.osp.lister import Lister

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ospbridge.osp.client.machine import Exchange

AT_MOST: Final = 1000
LATENCY: Final = 1e-4
FROM_0_OR_1: Final = pytest.mark.parametrize("first", [0, 1])


def run(machine: ClientMachine, exchange: Exchange[Any], answers: Callable[[bytes], list[Message]]) -> Any:
    machine.begin(exchange, machine.now)
    for _ in range(AT_MOST):
        if machine.finished:
            return machine.result()
        outgoing = [bytes(data) for data in machine.outgoing]
        machine.outgoing.clear()
        replies = [reply for data in outgoing for reply in answers(data)]
        for reply in replies:
            machine.receive(reply.encode(end=True), machine.now + LATENCY)
        if not replies and not machine.outgoing and machine.deadline is not None:
            machine.handle_timer(machine.deadline)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("agents", [1, 40])
def test_pieces_that_wait_for_an_acknowledgement_each_are_acknowledged_each(agents: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(agents, one_by_one=True)
    for _ in range(2):
        found = run(machine, roster.overview(machine), server.answers)
        assert [entry.name for entry in found] == [f"agent{i}" for i in range(agents)]
    interface = run(machine, roster.agent_info(machine, 1), server.answers)
    assert [len(values) for values in (interface.inputs, interface.outputs, interface.infos)] == [4, 3, 2]
    assert server.asked == 3, (
        "each list was asked for once: what was sent again counted as an acknowledgement"
    )
    assert machine.now < 3 * 2 * DOCUMENT.patience


@pytest.mark.parametrize("agents", [1, 40])
def test_pieces_may_count_from_1(agents: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(agents, first=1)
    found = run(machine, roster.overview(machine), server.answers)
    assert [entry.name for entry in found] == [f"agent{i}" for i in range(agents)]
    assert server.asked == FROM_ONE
    assert machine.retries == FROM_ONE - 1, "none was spent on what waits for nothing"
    began = machine.now
    interface = run(machine, roster.agent_info(machine, 1), server.answers)
    assert [value.name for value in interface.infos] == ["/value7", "/value8"]
    assert server.asked == FROM_ONE + 1, "it is known by then"
    assert machine.now - began < DOCUMENT.patience


@pytest.mark.parametrize("flag, free", [(0, False), (1, True), (2, True), (255, True)])
def test_any_flag_but_0_says_that_an_agent_is_available(flag: int, free: bool) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(2)

    def answers(data: bytes) -> list[Message]:
        return [
            replace(reply, available=flag) if isinstance(reply, AgentOverviewNext) else reply
            for reply in server.answers(data)
        ]

    assert [entry.available for entry in run(machine, roster.overview(machine), answers)] == [free, free]


@FROM_0_OR_1
def test_values_of_an_interface_may_count_anew_with_each_kind(first: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(2, by_kind=True, first=first)
    for _ in range(2):
        interface = run(machine, roster.agent_info(machine, 1), server.answers)
        found = [
            [value.name for value in values]
            for values in (interface.inputs, interface.outputs, interface.infos)
        ]
        assert found == [
            ["/value0", "/value1", "/value2", "/value3"],
            ["/value4", "/value5", "/value6"],
            ["/value7", "/value8"],
        ]
    assert server.asked == 2
    assert not machine.guarded
    assert machine.now < DOCUMENT.patience


@FROM_0_OR_1
@pytest.mark.parametrize("lost", range(9))
def test_where_one_of_them_is_lost_they_are_asked_for_again(lost: int, first: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(2, by_kind=True, first=first)

    def answers(data: bytes) -> list[Message]:
        replies = server.answers(data)
        if server.asked == 1 and len(replies) > lost:
            del replies[1 + lost]
        return replies

    interface = run(machine, roster.agent_info(machine, 1), answers)
    assert [value.name for value in (*interface.inputs, *interface.outputs, *interface.infos)] == [
        f"/value{i}" for i in range(9)
    ]
    assert server.asked == 2


@pytest.mark.parametrize("inputs, outputs", [(4, 5), (1, 1), (1, 4), (2, 1)])
def test_a_piece_that_comes_twice_is_not_taken_for_one_of_another_kind(inputs: int, outputs: int) -> None:
    """Nor is any of them where the network doubles everything."""
    names = [f"/value{i}" for i in range(inputs + outputs)]
    pieces: list[Message] = [AgentInfoNext(i, -1.0, 1.0, name) for i, name in enumerate(names)]
    replies = [AgentInfo(1, inputs, outputs, 0, "agent"), *pieces]
    disturbed = [
        [*replies[:at], repeated, *replies[at:]] for at in range(1, len(replies) + 1) for repeated in pieces
    ]
    for came in [*disturbed, [message for each in replies for message in (each, each)]]:
        machine = ClientMachine(DOCUMENT)
        found = run(
            machine,
            roster.agent_info(machine, 1),
            lambda data, came=came: came if data[0] == Code.GET_AGENT_INFO else [],  # type: ignore[misc]
        )
        assert [value.name for value in found.inputs] == names[:inputs]
        assert [value.name for value in found.outputs] == names[inputs:]


@pytest.mark.parametrize(
    "kinds",
    [
        (["x"], ["x"], []),
        (["x", "y"], ["x", "z"], ["x"]),
        (["x"], ["x"], ["x"]),
        (["x", "y"], ["x", "y"], []),
    ],
)
def test_kinds_that_count_anew_may_have_the_very_same_values(kinds: tuple[list[str], ...]) -> None:
    machine = ClientMachine(DOCUMENT)
    asked = 0

    def answers(data: bytes) -> list[Message]:
        nonlocal asked
        if data[0] != Code.GET_AGENT_INFO:
            return []
        asked += 1
        pieces = [AgentInfoNext(at, -1.0, 1.0, name) for kind in kinds for at, name in enumerate(kind)]
        inputs, outputs, infos = map(len, kinds)
        return [AgentInfo(1, inputs, outputs, infos, "agent"), *pieces]

    interface = run(machine, roster.agent_info(machine, 1), answers)
    found = tuple(
        [value.name for value in values] for values in (interface.inputs, interface.outputs, interface.infos)
    )
    assert found == kinds
    assert asked == 2


@pytest.mark.parametrize("keeps", [False, True], ids=["dropping", "keeping"])
@pytest.mark.parametrize("one_by_one", [False, True], ids=["behind the list", "behind each"])
@pytest.mark.parametrize("values", [1, 40])
def test_a_server_that_awaits_the_acknowledgement_of_values_is_obliged(
    values: int, one_by_one: bool, keeps: bool
) -> None:
    """Whatever it does with what is asked meanwhile."""
    machine = ClientMachine(DOCUMENT)
    server = Lister(values, strict=Code.VALUE_INFO_ACK, one_by_one=one_by_one)
    answers = keeping(server) if keeps else server.answers
    for _ in range(3):
        _, found, complete = run(machine, list_once(machine, ".*"), answers)
        assert complete
        assert [entry.name for entry in found] == [f"/value{i}" for i in range(values)]
        assert run(machine, asking.get_value(machine, 1), answers) == "0.5"
    assert machine.now < 8 * DOCUMENT.patience


def keeping(server: Lister) -> Callable[[bytes], list[Message]]:
    """The server keeps what it receives while it waits for an acknowledgement."""
    kept: list[bytes] = []
    acks = (Code.AGENT_OVERVIEW_ACK, Code.AGENT_INFO_ACK, Code.VALUE_INFO_ACK)

    def answers(data: bytes) -> list[Message]:
        found = []
        if server.awaits and data[0] not in acks:
            kept.append(data)
        elif server.awaits or data[0] not in acks:
            found += server.answers(data)
        while kept and not server.awaits:
            found += server.answers(kept.pop(0))
        return found

    return answers


@pytest.mark.parametrize("agents", [2, 40])
def test_the_first_piece_of_a_list_is_acknowledged_before_it_is_asked_for_again(agents: int) -> None:
    """What is asked again would wait to be let on when a step is voted for, and hold that up for good."""
    machine, server = ClientMachine(DOCUMENT), Lister(agents, one_by_one=True)
    answers = keeping(server)
    assert len(run(machine, roster.overview(machine), answers)) == agents
    assert machine.now < 2 * DOCUMENT.patience
    began = machine.now
    machine.controlled[1] = run(machine, roster.agent_info(machine, 1), answers)
    assert len(run(machine, roster.overview(machine), answers)) == agents
    assert run(machine, asking.get_value(machine, 1), answers) == "0.5"
    assert server.asked == 3
    assert machine.now - began < DOCUMENT.patience, "it is known by then"


def test_nobody_is_sent_that_acknowledgement_who_answers_what_is_asked_next() -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(3)
    sent: list[bytes] = []

    def answers(data: bytes) -> list[Message]:
        sent.append(data)
        if data[0] == Code.GET_VALUE_IDS:
            return [ValueIds(1), ValueInfo(0, 1, "Double", "/value0")]
        return server.answers(data)

    for _ in range(3):
        run(machine, list_once(machine, ".*"), answers)
        run(machine, asking.get_value(machine, 1), answers)
    assert Code.VALUE_INFO_ACK not in {data[0] for data in sent}


@pytest.mark.parametrize("every", [0.05, 0.1, 0.24])
def test_a_server_that_sends_a_piece_again_and_again_is_not_listened_to_for_ever(every: float) -> None:
    """Each piece is acknowledged, and comes again until then."""
    machine, server = ClientMachine(DOCUMENT), Lister(3, one_by_one=True)
    latest: list[Message] = []
    machine.begin(roster.overview(machine), machine.now)
    for _ in range(AT_MOST):
        if machine.finished:
            break
        outgoing = [bytes(data) for data in machine.outgoing]
        machine.outgoing.clear()
        fresh = [reply for data in outgoing for reply in server.answers(data)]
        if fresh:
            latest = fresh[-1:]
        at = machine.now + LATENCY
        for reply in fresh or latest:
            at = at if fresh else machine.now + every
            if machine.deadline is not None and at > machine.deadline:
                machine.handle_timer(machine.deadline)
            else:
                machine.receive(reply.encode(), at)
    assert [entry.name for entry in machine.result()] == ["agent0", "agent1", "agent2"]
    assert machine.now < 2.0


def test_a_server_that_numbers_agents_anew_in_each_overview_is_refused() -> None:
    machine, overviews = ClientMachine(DOCUMENT), itertools.count()

    def answers(data: bytes) -> list[Message]:
        if data[0] != Code.GET_AGENT_OVERVIEW:
            return []
        first = 10 * next(overviews)
        return [
            AgentOverview(2),
            *(AgentOverviewNext(i, first + i, "Agent", 1, f"agent{i}") for i in range(2)),
        ]

    assert len(run(machine, roster.overview(machine), answers)) == 2
    with pytest.raises(RemoteProtocolError, match="'agent1' another id in each overview"):
        run(machine, roster.overview(machine), answers)
    assert machine.now < 3.0


@pytest.mark.parametrize("counts", [(-1, 2, 1), (1, -2, 1), (1, 1, -1)])
def test_an_agent_with_fewer_than_no_values_is_an_error_of_the_server(counts: tuple[int, int, int]) -> None:
    machine = ClientMachine(DOCUMENT)
    machine.begin(roster.agent_info(machine, 1), 0.0)
    machine.receive(AgentInfo(1, *counts, "agent").encode(), 0.0)
    with pytest.raises(RemoteProtocolError, match="a count of -1 pieces"):
        machine.result()


def test_texts_of_a_list_that_have_no_end_are_an_error_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A datagram may be full of one name, and a million of them may be announced."""
    monkeypatch.setattr(bursts, "MOST_CHARACTERS", 1_000)
    machine = ClientMachine(DOCUMENT)
    machine.begin(roster.overview(machine), 0.0)
    machine.receive(AgentOverview(1_000_000).encode(), 0.0)
    sent = 0
    while not machine.finished and sent < AT_MOST:
        machine.receive(AgentOverviewNext(sent, sent + 1, "Agent", 1, "n" * 95).encode(), 0.0)
        sent += 1
    assert sent == 11
    with pytest.raises(RemoteProtocolError, match="11 of 1000000 pieces have more than 1000 characters"):
        machine.result()


@pytest.mark.parametrize("of_values", [False, True], ids=["agents", "values"])
@pytest.mark.parametrize("missing", [1, 20, 39])
def test_a_list_of_which_a_piece_was_lost_is_acknowledged_piece_by_piece_once_more(
    missing: int, *, of_values: bool
) -> None:
    """A doubled acknowledgement lets the server on, whose next piece is lost: it comes with the second list only."""
    machine = ClientMachine(DOCUMENT)
    server = Lister(40, strict=Code.VALUE_INFO_ACK if of_values else None, one_by_one=True)
    keep = keeping(server)
    lost = 0

    def answers(data: bytes) -> list[Message]:
        nonlocal lost
        found = keep(data)
        for reply in list(found):
            if not lost and isinstance(reply, AgentOverviewNext | ValueInfo) and reply.index == missing:
                lost += 1
                found.remove(reply)
                found += keep(data)
        return found

    exchange: Exchange[Any] = list_once(machine, ".*") if of_values else roster.overview(machine)
    found = run(machine, exchange, answers)
    assert lost
    assert len(found[1] if of_values else found) == 40
    assert server.asked == 2
    assert machine.now < 8 * DOCUMENT.patience


@pytest.mark.parametrize("of_values", [False, True], ids=["agents", "values"])
def test_pieces_without_their_head_are_acknowledged_each(*, of_values: bool) -> None:
    """The question that is asked again is kept until they have all been sent."""
    machine = ClientMachine(DOCUMENT)
    server = Lister(40, strict=Code.VALUE_INFO_ACK if of_values else None, one_by_one=True)
    keep = keeping(server)
    loses = False

    def answers(data: bytes) -> list[Message]:
        nonlocal loses
        found = keep(data)
        if loses and found and isinstance(found[0], AgentOverview | ValueIds):
            loses = False
            return found[1:]
        return found

    for lost in (False, True):
        loses = lost
        exchange: Exchange[Any] = list_once(machine, ".*") if of_values else roster.overview(machine)
        found = run(machine, exchange, answers)
        assert len(found[1] if of_values else found) == 40
    assert not loses
    assert server.asked == 3
    assert machine.now < 8 * DOCUMENT.patience


@pytest.mark.parametrize("of_values", [False, True], ids=["agents", "values"])
def test_who_leaves_in_the_midst_of_a_list_is_heard(*, of_values: bool) -> None:
    """A server that keeps what it receives meanwhile frees no agent before its list was acknowledged."""
    machine = ClientMachine(DOCUMENT)
    server = Lister(40, strict=Code.VALUE_INFO_ACK if of_values else None, one_by_one=True)
    keep = keeping(server)
    kept: list[Message] = []
    piece: list[Message] = []

    def answers(data: bytes) -> list[Message]:
        """A piece that was not acknowledged comes once more when anything is heard."""
        request = decode_request(data)
        if isinstance(request, DeregisterFromAgent):
            kept.append(DeregisterFromAgentAck(request.agent_id, 1))
        elif isinstance(request, End):
            kept.append(EndAck())
        found = keep(data)
        if server.awaits:
            piece[:] = found[-1:] or piece
            return piece[:]
        found += kept
        kept.clear()
        return found

    exchange: Exchange[Any] = list_once(machine, ".*") if of_values else roster.overview(machine)
    machine.begin(exchange, machine.now)
    for data in machine.outgoing:
        answers(bytes(data))
    machine.outgoing.clear()
    machine.interrupt(KeyboardInterrupt())
    assert server.awaits
    began = machine.now
    assert run(machine, leave(machine, (1,)), answers)
    assert machine.now - began < Limits().close
