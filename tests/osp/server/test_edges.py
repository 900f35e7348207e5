"""The server machine where things cross: what is withdrawn while it is about to be told."""

from __future__ import annotations

import struct

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.server.machine import OTHER_INIT
from tests.osp.served import Completion, EchoWorld, Server

both = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda profile: profile.name)
STALLED = 0.06
"""Seconds after which a stalled completion has been told."""


@both
def test_a_step_is_not_told_to_a_client_that_gave_its_agents_back_meanwhile(profile: Profile) -> None:
    server = Server(profile, stall=lambda: True)
    client = server.player(1)
    client.step(1, 0.0, 0.0)
    assert client.codes() == [81]
    assert server.machine.steps == 1
    client.deregister(1)
    server.wait(STALLED)
    assert client.codes() == []
    assert client.overview(), "the handler is free"


@both
def test_an_event_that_nobody_listens_to_any_more_is_not_told_with_the_step_it_occurred_in(
    profile: Profile,
) -> None:
    server = Server(profile, stall=lambda: True)
    client = server.player(1)
    kept, dropped = client.listen("/Control/StepCompleted"), client.listen("/Control/NextStep")
    client.step(1, 0.0, 0.0)
    client.send(struct.pack("<Bi", 30, dropped))
    client.read_all()
    server.wait(STALLED)
    assert Completion(client.read()).events == [kept]


@both
def test_giving_an_event_back_that_was_never_given_changes_no_other(profile: Profile) -> None:
    server = Server(profile)
    client = server.player(1)
    event = client.listen("/Control/StepCompleted")
    assert client.ask(struct.pack("<Bi", 30, event + 5))[0][:5] == struct.pack("<Bi", 31, event + 5)
    client.step(1, 0.0, 0.0)
    assert Completion(client.read_all()[-1]).events == [event]


def test_a_greeting_comes_late_and_only_once() -> None:
    server = Server(NERD, EchoWorld())
    server.init(b"\x05\1\1")
    (handler,) = server.opened
    assert not server.inboxes[handler]
    server.wait(1.0)
    assert list(server.inboxes[handler]) == [b"\x06\1\1x"]
    assert server.machine.next_deadline() is None


@pytest.mark.parametrize(
    "profile, init",
    [
        (NERD, b"\x05\2\1"),
        (NERD, b"\x05\1\2"),
        (NERD, b"\x05\1"),
        (DOCUMENT, struct.pack("<Bii", 5, 2, 1)),
        (DOCUMENT, struct.pack("<Bii", 5, 1, 2)),
        (DOCUMENT, b"\x05\1\0\0\0\1\0\0"),
    ],
)
def test_an_init_of_another_version_or_form_opens_nothing(profile: Profile, init: bytes) -> None:
    server = Server(profile)
    server.init(init)
    server.wait(1.0)
    assert server.opened == []
    assert server.machine.problems == {OTHER_INIT: 1}


@both
def test_what_is_no_command_is_counted_and_an_acknowledgement_that_nobody_awaits_is_not(
    profile: Profile,
) -> None:
    server = Server(profile)
    client = server.join()
    for data in (b"\x5d", b"\x56\1\0\0\0", b"\x4b", b"\x4c"):
        assert client.ask(data) == []
    assert server.machine.problems == {}
    for data in (b"\xff", b"", b"\x51"):
        assert client.ask(data) == []
    assert server.machine.problems == {"unknown command": 3}
