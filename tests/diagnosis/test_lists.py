"""Servers whose lists are otherwise than most are probed as they are played with: all of their lists is understood."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from ospbridge.diagnosis.deviations import DEVIATIONS
from ospbridge.diagnosis.findings import Verdict
from ospbridge.diagnosis.greeting import Server
from ospbridge.diagnosis.reading import list_acks
from ospbridge.diagnosis.stage import Stage
from ospbridge.diagnosis.values import listing_ack
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import Profile
from ospbridge.osp.server import commands as server_commands
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.diagnosis.foreign import GREETING, ForeignServer
from tests.osp.lister import Lister

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.loopback
OF_LISTS = ("D4", "D5", "D12", "D16", "D17", "D19", "D25")


def found(profile: Profile) -> dict[str, Verdict]:
    probes = {deviation.id: deviation.probe for deviation in DEVIATIONS}
    with UdpSimulator(ArenaWorld(2), port=0, profile=profile) as simulator:
        stage = Stage(Server(socket.AF_INET, simulator.address), timeout=10.0)
        try:
            findings = {name: probes[name](stage) for name in OF_LISTS}
        finally:
            stage.close()
    return {name: finding.verdict for name, finding in findings.items()}


@pytest.mark.slow
def test_a_server_that_counts_pieces_from_1_shows_the_deviations_that_it_has(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = found(profile)

    def from_one(values: Iterable[object]) -> Iterator[tuple[int, object]]:
        return enumerate(values, 1)

    monkeypatch.setattr(server_commands, "enumerate", from_one, raising=False)
    with (
        UdpSimulator(ArenaWorld(2), port=0, profile=profile) as simulator,
        BlockingSession.connect(simulator.address) as session,
    ):
        assert [agent.name for agent in session.agents()] == ["robot1", "robot2"], "a session understands it"
    assert found(profile) == expected
    assert Verdict.NOT_TRIED not in expected.values()


@pytest.mark.slow
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_server_that_awaits_an_acknowledgement_of_each_piece_is_told_from_one_of_bursts(
    one_by_one: bool,
) -> None:
    lister = Lister(3, one_by_one=one_by_one)

    def manners(data: bytes) -> Iterable[bytes]:
        if data[:1] == b"\x05":
            return [GREETING]
        return [] if data == b"x" else [answer.encode(end=True) for answer in lister.answers(data)]

    with ForeignServer(manners) as server:
        stage = Stage(Server(socket.AF_INET, server.address), timeout=5.0)
        try:
            agents = stage.agents()
            assert [agent.name for agent in agents] == ["agent0", "agent1", "agent2"]
            interface = stage.interface(agents[0])
            assert [len(part) for part in (interface.inputs, interface.outputs, interface.infos)] == [4, 3, 2]
            if one_by_one:
                finding = list_acks(stage)
                assert finding.verdict is Verdict.NOT_SEEN
                assert "of its own" in finding.detail
        finally:
            stage.line.close()


def test_a_server_that_awaits_an_acknowledgement_of_each_variable_is_told_from_one_of_bursts() -> None:
    lister = Lister(3, one_by_one=True, strict=Code.VALUE_INFO_ACK)

    def manners(data: bytes) -> Iterable[bytes]:
        if data[:1] == b"\x05":
            return [b"\x06\x01\0\0\0\x01\0\0\0"] if len(data) == 9 else []
        return [] if data == b"x" else [answer.encode() for answer in lister.answers(data)]

    with ForeignServer(manners) as server:
        stage = Stage(Server(socket.AF_INET, server.address), timeout=5.0)
        try:
            finding = listing_ack(stage)
        finally:
            stage.line.close()
    assert finding.verdict is Verdict.NOT_SEEN
    assert "of its own" in finding.detail
