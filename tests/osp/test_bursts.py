"""Lists of servers that read the document otherwise than those that can still be run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client import bursts, roster
from ospbridge.osp.client.bursts import FROM_ONE
from ospbridge.osp.client.leaving import leave
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    GetAgentInfo,
    GetAgentOverview,
    Message,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ospbridge.osp.client.machine import Exchange

AT_MOST: Final = 1000
LATENCY: Final = 1e-4
FROM_0_OR_1: Final = pytest.mark.parametrize("first", [0, 1])


class Lister:
    """Answers questions for lists. ``one_by_one``: it sends each piece when anything has come behind the one before."""

    def __init__(
        self, agents: int, *, first: int = 0, one_by_one: bool = False, by_kind: bool = False
    ) -> None:
        self.agents = agents
        self.first = first
        self.by_kind = by_kind
        """Inputs, outputs and infos have an index each."""
        self.one_by_one = one_by_one
        self.asked = 0
        self._left: list[Message] = []

    def answers(self, data: bytes) -> list[Message]:
        if self._left:
            return [self._left.pop(0)]
        request = decode_request(data)
        if isinstance(request, GetAgentOverview):
            pieces: list[Message] = [
                AgentOverviewNext(self.first + i, i + 1, "Agent", 1, f"agent{i}") for i in range(self.agents)
            ]
            head: Message = AgentOverview(self.agents)
        elif isinstance(request, GetAgentInfo):
            order = [0, 1, 2, 3, 0, 1, 2, 0, 1] if self.by_kind else range(9)
            pieces = [AgentInfoNext(self.first + i, -1.0, 1.0, f"/value{at}") for at, i in enumerate(order)]
            head = AgentInfo(request.agent_id, 4, 3, 2, "agent0")
        else:
            return []
        self.asked += 1
        if not self.one_by_one:
            return [head, *pieces]
        self._left = pieces
        return [head, self._left.pop(0)]


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


def test_who_leaves_in_the_midst_of_a_list_acknowledges_its_pieces() -> None:
    """Else a server that waits for that hears nothing of the goodbye."""
    machine = ClientMachine(DOCUMENT)
    machine.begin(roster.overview(machine), 0.0)
    machine.interrupt(KeyboardInterrupt())
    machine.begin(leave(machine, (1,)), 0.0)
    machine.outgoing.clear()
    machine.receive(AgentOverviewNext(0, 1, "Agent", 1, "agent0").encode(), 0.0)
    assert machine.outgoing[0][0] == Code.AGENT_OVERVIEW_ACK


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
