"""The server machine where things cross: what is withdrawn while it is about to be told."""

from __future__ import annotations

import struct

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
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
