"""The server machine: INIT, END, RESET_COMMUNICATION, agents, and what comes that is none of them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ospbridge.interface import InterfaceValue
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.world import WorldAgent
from tests.osp.served import EchoWorld, Server, echoing
from tests.osp.stage import BOTH

DOCUMENT_INIT = struct.pack("<Bii", 5, 1, 1)


@pytest.mark.parametrize(
    "data", [DOCUMENT_INIT, b"\x05\x01\x00x", b"\x05\x01\x02x", b"\x05\x02\x01x", b"\x05\x01", b"\x05", b""]
)
def test_nerd_is_silent_to_other_forms_and_versions_d1_d2(data: bytes) -> None:
    server = Server(NERD)
    server.init(data)
    server.wait(1.0)
    assert not server.opened
    assert server.machine.problems.total() == 1


def test_a_reset_while_nerd_takes_its_time_for_an_init_is_told_behind_the_answer() -> None:
    server = Server(NERD)
    player = server.player(1)
    server.init(b"\x05\x01\x01", ("127.0.0.1", 2))
    player.reset()
    assert not server.inboxes[server.opened[-1]]
    server.wait(NERD.init_takes)
    assert [data[0] for data in server.inboxes[server.opened[-1]]] == [6, 75]


@BOTH
def test_a_world_s_half_of_a_character_is_told_as_a_question_mark(profile: Profile) -> None:
    client = Server(profile, EchoWorld(names=["half \ud800"])).join()
    assert client.overview()[1].rstrip(b"x").endswith(b"half ?\0")


@BOTH
def test_inits_beyond_the_limit_are_not_answered(profile: Profile) -> None:
    server = Server(profile, max_handlers=2)
    server.join()
    second = server.join()
    server.init(b"\x05\x01\x01" if profile is NERD else DOCUMENT_INIT)
    server.wait(1.0)
    assert len(server.opened) == 2
    assert server.machine.problems["INIT beyond the limit of handlers"] == 1
    second.send(b"\x07")
    server.join()


@BOTH
def test_an_init_beyond_the_limit_closes_the_handler_of_a_client_long_silent(profile: Profile) -> None:
    server = Server(profile, max_handlers=3)
    player, silent = server.player(1), server.join(2)
    server.wait(30.0)
    server.join(3)
    server.wait(31.0)
    server.join(4)
    assert server.closed == [silent.handler_id]
    assert silent.codes()[0] == 11, "told, should it still be there"
    player.step(1, 0.0, 0.0)
    assert player.codes() == [81, 85], "whoever controls an agent stays"


@BOTH
def test_end_after_an_event_registration_does_not_kill_this_server_f19(profile: Profile) -> None:
    server = Server(profile)
    listener, player = server.join(1), server.player(1, port=2)
    assert listener.listen("/Control/StepCompleted") == 1
    listener.ask(b"\x07")
    player.step(1, 0.0, 0.0)
    assert player.codes() == [81, 85]
    warned = server.machine.problems["END after an event registration: the real server dies of it"]
    assert warned == (0 if profile.end_after_events_is_safe else 1)


def test_nerd_tells_a_restart_to_all_with_a_stray_71_and_closes_all_d7() -> None:
    server = echoing(NERD)
    first, second = server.player(1), server.player(2, port=2)
    assert first.ask(b"\x0a") == [b"\x0bx", b"\x47x"]
    assert second.read_all() == [b"\x0bx", b"\x47x"]
    assert server.closed == [first.handler_id, second.handler_id]
    assert server.machine.controlled == 0
    again = server.player(1, 2, port=3)
    again.reset()
    again.reset()
    assert again.codes() == [71, 71, 75]


@BOTH
def test_a_restart_on_the_main_port_is_ignored_d20(profile: Profile) -> None:
    server = Server(profile)
    client = server.join()
    server.init(b"\x0a")
    assert not server.closed
    assert client.read_all() == []


@BOTH
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x09",
        b"\xff" * 9000,
        b"\x56\1\0\0\0",
        b"\x56",
        b"\x4c",
        b"\x4b",
        b"\x5d",
        b"\x61",
        b"\x2a",
        b"\x01abc",
    ],
)
def test_what_an_idle_handler_cannot_use_is_ignored_without_reply_f6_f7(
    profile: Profile, data: bytes
) -> None:
    server = Server(profile)
    client = server.player(1)
    assert client.ask(data) == []
    client.step(1, 0.0, 0.0)
    assert client.codes() == [81, 85]


# --- agents -----------------------------------------------------------------------------------------------------------


@BOTH
def test_taken_agents_are_flagged_0_also_for_their_owner_d25(profile: Profile) -> None:
    server = echoing(profile)
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
    server = echoing(profile, 3)
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


@pytest.mark.parametrize("name", ["inputs", "outputs", "infos"])
@pytest.mark.parametrize("value", [[0.5], np.array([0.5]), np.array([0.5], np.float32)])
def test_arrays_cannot_be_other_ones_because_the_server_sends_those_that_it_knows(
    name: str, value: object
) -> None:
    arm = WorldAgent("arm", [InterfaceValue("/Motor", -1, 1)], [InterfaceValue("/Angle", -9, 9)])
    with pytest.raises(AttributeError, match=rf"{name} of agent 'arm' .*agent\.{name}\[:\] = "):
        setattr(arm, name, value)
    assert getattr(arm, name).dtype == np.float32
