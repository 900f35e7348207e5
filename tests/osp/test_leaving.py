"""Leaving: no agent stays taken, whatever END does to agents; within the time for it, whoever is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.osp.server import commands as server_commands
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import LATENCY, Datagram, Pair
from tests.osp.stage import BOTH, joined

if TYPE_CHECKING:
    from ospbridge.osp.server.handler import Handler

MANY = [f"agent {number}" for number in range(64)]


@pytest.fixture
def end_only_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """END closes the connection, as the document says, and leaves agents taken."""

    def end(handler: Handler, _: bytes) -> None:
        handler.send(bytes((Code.END_COMMUNICATION_ACK,)))
        handler.machine.close(handler)

    monkeypatch.setitem(server_commands.COMMANDS, Code.END_COMMUNICATION, end)


def codes_to_server(pair: Pair, since: int) -> list[int]:
    return [datagram.data[0] for datagram in pair.sent[since:] if datagram.to_server]


@pytest.mark.usefixtures("end_only_ends")
def test_agents_are_free_behind_a_goodbye_that_frees_none() -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["one", "two"]), DOCUMENT)
    client = joined(pair, "one", "two")
    assert client.do(client.conversation.leave())
    assert pair.server.controlled == 0
    assert pair.server.handlers == 0


@pytest.mark.usefixtures("end_only_ends")
def test_many_agents_are_given_back_in_one_round_trip() -> None:
    pair = Pair(SyntheticWorld(1, len(MANY), names=MANY), DOCUMENT)
    client = joined(pair, *MANY)
    began = pair.now
    assert client.do(client.conversation.leave())
    assert pair.server.controlled == 0
    assert pair.now - began < 5 * LATENCY


@pytest.mark.usefixtures("end_only_ends")
@pytest.mark.parametrize("each", [2, 3])
def test_of_many_agents_those_whose_datagrams_are_lost_are_given_back_too(each: int) -> None:
    lossy = [False]

    def fault(datagram: Datagram) -> tuple[float, ...]:
        of_agents = datagram.data[0] in {Code.DEREGISTER_FROM_AGENT, Code.DEREGISTER_FROM_AGENT_ACK}
        return () if lossy[0] and of_agents and not datagram.number % each else (0.0,)

    pair = Pair(SyntheticWorld(1, len(MANY), names=MANY), DOCUMENT, fault=fault)
    client = joined(pair, *MANY)
    lossy[0] = True
    began = pair.now
    client.do(client.conversation.leave())
    assert pair.server.controlled <= len(MANY) // 8
    assert pair.now - began < 1.0


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


@pytest.mark.usefixtures("end_only_ends")
@pytest.mark.parametrize("voted", [False, True])
def test_a_step_of_others_that_our_leaving_lets_go_is_theirs_alone(voted: bool) -> None:
    pair = Pair(SyntheticWorld(1, 3, names=["mine", "mine too", "theirs"]), DOCUMENT)
    ours, other = joined(pair, "mine", "mine too"), joined(pair, "theirs")
    pair.run((ours, ours.conversation.reset(7)), (other, other.conversation.reset(7)))
    if voted:
        ours.begin(ours.conversation.step({"mine": np.ones(1), "mine too": np.ones(1)}))
        pair.settle(0.1)
        ours.conversation.machine.interrupt(TimeoutError())
    other.begin(
        other.conversation.step({"theirs": np.ones(1)}) if not voted else other.conversation.overview()
    )
    ours.begin(ours.conversation.leave())
    pair.settle()
    assert ours.outcome() is True
    other.outcome()
    steps = [entry for entry in pair.ledger if entry["kind"] == "step"]
    assert len(steps) == (0 if voted else 1)
    assert pair.server.controlled == 1
