"""The server machine: overview, info, registration."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ospbridge.interface import InterfaceValue
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.world import WorldAgent
from tests.osp.served import EchoWorld, Server
from tests.osp.stage import BOTH


@BOTH
def test_taken_agents_are_flagged_0_also_for_their_owner_d25(profile: Profile) -> None:
    server = Server(profile, EchoWorld((1, 1, 0), (1, 1, 0)))
    owner, other = server.player(2), server.join(2)
    for client in (owner, other):
        flags = [data[15] for data in client.overview()[1:]]
        assert flags == [1, 0]


@pytest.mark.parametrize("request_", [b"\x5a", struct.pack("<Bi", 95, 1)], ids=["overview", "info"])
def test_nerd_awaits_one_ack_behind_a_listing_and_eats_what_comes_instead_d4_f3(request_: bytes) -> None:
    server = Server(NERD)
    client = server.join()
    client.overview()
    client.ask(request_)
    assert client.ask(struct.pack("<Bi", 100, 1)) == []
    assert client.register(1) == 1
    assert server.machine.problems["datagram eaten in place of an acknowledgement"] == 1


@BOTH
def test_an_unknown_agent_s_info_is_empty_and_wants_no_ack_d5(profile: Profile) -> None:
    server = Server(profile)
    client = server.join()
    end = b"x" if profile.end_marker else b""
    empty = struct.pack("<Biiii", 96, 0, 0, 0, 0) + b"\0" + end
    assert client.ask(struct.pack("<Bi", 95, 1)) == [empty], "before an overview none is known"
    client.overview()
    assert client.ask(struct.pack("<Bi", 95, 99)) == [empty]
    assert client.ask(struct.pack("<Bi", 95, -1)) == [empty]
    assert client.ask(b"\x5f") == [empty]
    assert client.register(1) == 1


@BOTH
def test_deregistering_tells_what_became_of_it_d6(profile: Profile) -> None:
    server = Server(profile, EchoWorld((1, 1, 0), (1, 1, 0), (1, 1, 0)))
    first, second = server.player(1), server.player(2, port=2)
    status = profile.foreign_deregister_status
    assert status == (2 if profile is NERD else 1)
    assert [second.deregister(agent)[0][5] for agent in (1, 3, 42, 2, 2)] == [status, status, 2, 1, status]
    assert first.deregister(1)[0][5] == 1
    assert second.register(1) == 1


@BOTH
def test_requests_are_taken_with_and_without_the_end_byte_d3(profile: Profile) -> None:
    server = Server(profile)
    client = server.join()
    client.ask(b"\x5a\x78")
    client.send(b"\x5d\x78")
    assert client.ask(struct.pack("<Bi", 100, 1) + b"\x78")[0][5] == 1
    client.ask(struct.pack("<Bi", 70, 0) + b"\x78")
    client.ack_reset()
    client.send(struct.pack("<Biiff", 80, 1, 2, 0.5, 0.25) + b"\x78")
    client.read()
    assert struct.unpack_from("<2f", client.read(), 21) == (0.5, 0.25)


def test_nerd_cuts_a_long_string_to_1023_bytes_that_end_with_zero_d15() -> None:
    world = EchoWorld()
    world.agents = [WorldAgent("N" * 2000, [InterfaceValue("/" + "i" * 2000, 0.0, 1.0)], [])]
    client = Server(NERD, world).join()
    entry = client.overview()[1]
    assert len(entry) == 1023
    assert entry.endswith(b"N\0")
    info, value = client.ask(struct.pack("<Bi", 95, 1))
    assert len(info) == len(value) == 1023
    assert value.endswith(b"i\0")


def agent() -> WorldAgent:
    return WorldAgent("arm", [InterfaceValue("/Motor", -1, 1)], [InterfaceValue("/Angle", -9, 9)])


@pytest.mark.parametrize("name", ["inputs", "outputs", "infos"])
@pytest.mark.parametrize("value", [[0.5], np.array([0.5]), np.array([0.5], np.float32)])
def test_arrays_cannot_be_other_ones_because_the_server_sends_those_that_it_knows(
    name: str, value: object
) -> None:
    arm = agent()
    with pytest.raises(AttributeError, match=rf"{name} of agent 'arm' .*agent\.{name}\[:\] = "):
        setattr(arm, name, value)
    assert getattr(arm, name).dtype == np.float32
