"""The server machine's completions: order, acknowledgements, stalls, events, the datagram limit."""

from __future__ import annotations

import struct

import pytest

from ospbridge.errors import WorldFailed
from ospbridge.osp.messages import Truncated, decode_reply
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from tests.osp.served import Client, Completion, EchoWorld, Server, echoing
from tests.osp.stage import BOTH

EATEN = "datagram eaten in place of an acknowledgement"


def stepped(profile: Profile) -> tuple[Server, Client]:
    """A client with an outstanding completion."""
    server = Server(profile)
    client = server.player(1)
    client.step(1, 0.0, 0.0)
    assert client.codes() == [81, 85]
    return server, client


@pytest.mark.parametrize("profile, at_once", [(NERD, [[1], [2], [3], []]), (DOCUMENT, [[1, 2, 3], []])])
def test_completions_come_in_ascending_id_on_nerd_each_after_the_ack(
    profile: Profile, at_once: list[list[int]]
) -> None:
    server = echoing(profile, 3)
    client = server.player(3, 1, 2)
    for agent in (2, 3, 1):
        client.step(agent, 0.5)
    assert [client.read()[0] for _ in range(3)] == [81, 81, 81]
    for agents in at_once:
        assert [Completion(data).agent for data in client.read_all()] == agents
        client.ack()


@pytest.mark.parametrize(
    "command",
    [struct.pack("<Biiff", 80, 1, 2, 0, 0), b"\x07", b"\x32\1\0\0\0", b"\x69\1\0\0\0", b"\x46\0\0\0\0", b""],
    ids=["step", "end", "get value", "deregister", "reset", "empty"],
)
def test_nerd_eats_the_command_that_comes_in_place_of_a_step_s_ack_f1_f2(command: bytes) -> None:
    server, client = stepped(NERD)
    assert client.ask(command) == []
    assert server.machine.problems[EATEN] == 1
    if command:
        assert client.ask(command), "sent again it is answered"


def test_nerd_s_observers_wait_for_the_ack_of_a_reset_too_d9() -> None:
    server = Server(NERD)
    player, observer = server.player(1), server.join(2)
    player.reset()
    assert observer.codes() == [75]
    assert observer.ask(b"\x5a") == []
    assert [data[0] for data in observer.ask(b"\x5a")] == [91, 92]


# --- stalls --------------------------------------------------------------------------------------------------------


def test_any_datagram_restarts_the_stall_f21() -> None:
    server = Server(NERD, stall=lambda: True)
    client = server.player(1)
    client.step(1, 0.0, 0.0)
    assert client.codes() == [81]
    for _ in range(150):
        server.wait(0.01)
        client.ack()
    assert client.codes() == []
    server.wait(0.051)
    assert client.codes() == [85]


def stalls_once(profile: Profile) -> tuple[Server, Client]:
    """A client whose next completion is late, and no other."""
    fate = iter([True])
    server = Server(profile, stall=lambda: next(fate, False))
    return server, server.player(1)


@BOTH
def test_a_stalled_completion_merges_into_that_of_the_next_step(profile: Profile) -> None:
    server, client = stalls_once(profile)
    client.reset()
    server.wait(STALLED)
    client.ack_reset()
    client.read_all()
    server.machine.faults = server.machine.faults._replace(stall=iter([True, False]).__next__)
    client.step(1, 0.25, 0.25)
    assert client.codes() == [81]
    client.step(1, 0.5, 0.5)
    assert server.machine.steps == 2
    acknowledged, completed = client.read_all()
    assert acknowledged[0] == 81
    assert Completion(completed).outputs == [0.5, 0.5]
    client.ack()
    server.wait(1.0)
    assert client.codes() == [], "one flag, not a count"


def test_a_stalled_completion_comes_during_a_reset_and_is_awaited_like_any_other() -> None:
    server, client = stalls_once(NERD)
    client.step(1, 0.25, 0.25)
    assert client.codes() == [81]
    client.reset()
    assert client.codes() == [71, 85]
    client.ack_reset()
    assert client.codes() == [75]
    assert server.machine.problems[EATEN] == 1


# --- events --------------------------------------------------------------------------------------------------------


def completions(client: Client) -> list[Completion]:
    """Acknowledge until no completion comes any more."""
    found = []
    while client.inbox:
        data = client.read()
        if data[0] == 85:
            found.append(Completion(data))
            client.ack(found[-1].agent)
    return found


@BOTH
def test_events_come_in_order_of_occurrence_once_and_in_the_first_completion_only(profile: Profile) -> None:
    server = echoing(profile)
    client = server.player(1, 2)
    names = ["/Control/StepCompleted", "/World/Hit", "/Control/NextStep"]
    assert [client.listen(name) for name in names] == [1, 2, 3]
    server.world.next_events = ["/World/Hit", "/World/Hit"]
    client.step(1, 0.5)
    client.step(2, 0.5)
    first, second = completions(client)
    assert first.events == [3, 2, 1]
    assert second.events == []
    assert second.n_events == 0


@BOTH
@pytest.mark.parametrize("heard", [True, False], ids=["heard", "unheard"])
def test_an_event_that_the_world_never_announced_is_its_failure(profile: Profile, heard: bool) -> None:
    server = Server(profile)
    client = server.player(1)
    if heard:
        assert client.listen("/World/Hit") == 1
    server.world.next_events = ["/World/Miss"]
    with pytest.raises(WorldFailed, match="of the event '/World/Miss'; those it said it has: /World/Hit "):
        client.step(1, 0.5, 0.5)


@BOTH
def test_a_deregistered_event_is_told_no_more_and_its_id_is_echoed_d24(profile: Profile) -> None:
    server = Server(profile)
    client = server.player(1)
    end = b"x" if profile.end_marker else b""
    assert client.listen("/Control/StepCompleted") == client.listen("/Control/StepCompleted") == 1
    assert client.ask(b"\x1e\1\0\0\0") == [b"\x1f\1\0\0\0" + end]
    assert client.ask(b"\x1e\x4d\0\0\0") == [b"\x1f\x4d\0\0\0" + end]
    client.step(1, 0.5, 0.5)
    assert [completion.events for completion in completions(client)] == [[]]


# --- the datagram limit --------------------------------------------------------------------------------------------


def test_nerd_cuts_the_completion_of_300_outputs_to_1022_bytes_with_the_end_byte_d15() -> None:
    server = Server(NERD, EchoWorld((1, 300, 2)))
    client = server.player(1)
    client.step(1, 0.5)
    data = client.read_all()[1]
    assert len(data) == 1022
    assert data.endswith(b"x")
    assert struct.unpack_from("<ii", data, 5) == (300, 2), "the counts stay"
    cut = decode_reply(data, limit=NERD.datagram_limit)
    assert isinstance(cut, Truncated)
    assert (cut.received, cut.announced) == (250, 302)


STALLED = 0.06
"""Seconds after which a stalled completion has been told."""


@BOTH
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


@BOTH
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


@BOTH
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
