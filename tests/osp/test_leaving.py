"""Leaving: no agent stays taken, whatever END does to agents; within the time for it, whoever is silent."""

from __future__ import annotations

import pytest

from ospbridge.osp import server
from ospbridge.osp.codes import Code
from ospbridge.osp.disconnect import leave
from ospbridge.osp.notices import told_by
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.server import Handler
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair
from tests.osp.stage import BOTH, Stage, ack, brought, give, joined, sent

MANY = [f"agent {number}" for number in range(64)]


@pytest.fixture
def end_only_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """END closes the connection, as the document says, and leaves agents taken."""

    def end(handler: Handler, _: bytes) -> None:
        handler.send(bytes((Code.END_COMMUNICATION_ACK,)))
        handler.machine.close(handler)

    monkeypatch.setitem(server.Handler.COMMANDS, Code.END_COMMUNICATION, end)


@pytest.mark.usefixtures("end_only_ends")
def test_agents_are_free_behind_a_goodbye_that_frees_none() -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["one", "two"]), DOCUMENT)
    client = joined(pair, "one", "two")
    assert client.do(client.conversation.leave())
    assert pair.server.controlled == 0
    assert pair.server.handlers == 0


@BOTH
@pytest.mark.parametrize("end_is_answered", [False, True])
@pytest.mark.parametrize("events", [False, True])
def test_leaving_takes_no_longer_than_it_may_where_nobody_answers(
    profile: Profile, end_is_answered: bool, events: bool
) -> None:
    silent = [False]

    def fault(datagram: Datagram) -> tuple[float, ...]:
        of_end = datagram.data[0] in {Code.END_COMMUNICATION, Code.END_COMMUNICATION_ACK}
        return () if silent[0] and not (of_end and end_is_answered) else (0.0,)

    pair = Pair(SyntheticWorld(1, len(MANY), names=MANY), profile, fault=fault)
    client = joined(pair, *MANY)
    if events:
        client.do(client.conversation.register_event("/Synthetic/Mark"))
    silent[0] = True
    began = pair.now
    confirmed = client.do(client.conversation.leave())
    assert confirmed is (end_is_answered and (profile is DOCUMENT or not events))
    assert pair.now - began < Limits().close


def test_a_step_that_was_given_up_runs_before_goodbye_is_said() -> None:
    """Its request would otherwise be counted still, and step the world of the next session."""
    stage = Stage(NERD).begin_step(0.5)
    machine = stage.machine
    machine.interrupt(KeyboardInterrupt())
    machine.abandon_step()
    machine.begin(leave(machine, (1,)), machine.now)
    assert sent(machine) == []
    give(machine, ack(), brought(0.5))
    assert sent(machine) == [Code.NEXT_SIMULATION_STEP_COMPLETED_ACK, Code.END_COMMUNICATION]


def test_what_a_step_that_was_given_up_still_brings_is_no_fault_of_the_network() -> None:
    stage = Stage(NERD).begin_step(0.5)
    stage.machine.interrupt(KeyboardInterrupt())
    stage.machine.abandon_step()
    give(stage.machine, ack(), brought(0.5))
    assert told_by(stage.machine.notices).remarks == []
