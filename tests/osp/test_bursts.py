"""Lists of servers that read the document otherwise than those that can still be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.osp import asking
from ospbridge.osp.bursts import FROM_ONE
from ospbridge.osp.client import ClientMachine
from ospbridge.osp.messages import AgentOverviewNext, Message
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from tests.osp.lister import Lister

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ospbridge.osp.client import Exchange

AT_MOST: Final = 1000
LATENCY: Final = 1e-4


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


@pytest.mark.parametrize("agents", [1, 2, 3, 40])
def test_pieces_that_wait_for_an_acknowledgement_each_are_acknowledged_each(agents: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(agents, one_by_one=True)
    for _ in range(2):
        found = run(machine, asking.overview(machine), server.answers)
        assert [entry.name for entry in found] == [f"agent{i}" for i in range(agents)]
    interface = run(machine, asking.agent_info(machine, 1), server.answers)
    assert [len(values) for values in (interface.inputs, interface.outputs, interface.infos)] == [4, 3, 2]
    assert server.asked == 3, (
        "each list was asked for once: what was sent again counted as an acknowledgement"
    )
    assert machine.now < 3 * 2 * DOCUMENT.patience


@pytest.mark.parametrize("agents", [1, 2, 40])
def test_pieces_may_count_from_1(agents: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(agents, first=1)
    found = run(machine, asking.overview(machine), server.answers)
    assert [entry.name for entry in found] == [f"agent{i}" for i in range(agents)]
    assert server.asked == FROM_ONE
    began = machine.now
    interface = run(machine, asking.agent_info(machine, 1), server.answers)
    assert [value.name for value in interface.infos] == ["/value7", "/value8"]
    assert server.asked == FROM_ONE + 1, "it is known by then"
    assert machine.now - began < DOCUMENT.patience


@pytest.mark.parametrize("lost_in", [1, FROM_ONE - 1])
def test_a_piece_behind_the_last_alone_is_no_list_that_counts_from_1(lost_in: int) -> None:
    machine, server = ClientMachine(DOCUMENT, limits=Limits(query=5.0)), Lister(3)

    def answers(data: bytes) -> list[Message]:
        replies = server.answers(data)
        if replies and server.asked <= lost_in:
            stray = AgentOverviewNext(3, 4, "Agent", 1, "another")
            return [reply for reply in replies if not isinstance(reply, AgentOverviewNext) or reply.index] + [
                stray
            ]
        return replies

    found = run(machine, asking.overview(machine), answers)
    assert [entry.name for entry in found] == ["agent0", "agent1", "agent2"]
    assert not machine.counts_from_one
