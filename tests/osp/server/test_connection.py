"""The server machine: INIT, END, RESET_COMMUNICATION, and what comes that is none of them."""

from __future__ import annotations

import struct

import pytest

from ospbridge.osp.profile import NERD, Profile
from tests.osp.served import EchoWorld, Server
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
    server = Server(NERD, EchoWorld((1, 1, 0), (1, 1, 0)))
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
