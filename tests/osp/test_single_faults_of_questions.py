"""Every datagram of the exchanges beside reset and step lost, doubled or delayed, one at a time, in both profiles.

Those exchanges are harmless to repeat, so each must come to its result, whatever single fault meets it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from ospbridge.errors import SessionLost
from ospbridge.osp.client import asking
from ospbridge.osp.client.machine import Exchange
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Fault, Pair, no_fault
from tests.osp.test_single_faults import FAULTS, LATE_DOUBLES

pytestmark = pytest.mark.exhaustive

EVENT = "/Synthetic/Mark"


def listing(client: Client) -> None:
    values = client.do(client.conversation.values("/Synthetic/.*"))
    assert [value.name for value in values] == [f"/Synthetic/Value/{n:05d}" for n in range(5)]


def description(client: Client) -> None:
    agent = client.do(client.conversation.describe("agent2"))
    assert (len(agent.inputs), len(agent.outputs), len(agent.infos)) == (2, 3, 1)
    assert [value.name for value in agent.outputs] == ["/sensor/0", "/sensor/1", "/sensor/2"]


def registration(client: Client) -> None:
    talk = client.conversation
    client.do(talk.register(["agent1", "agent2"]))
    client.do(talk.deregister("agent1"))
    assert list(talk.votes) == ["agent2"]
    assert client.pair.server.controlled == 1


def events(client: Client) -> None:
    talk = client.conversation
    assert client.do(talk.register_event(EVENT))
    assert not client.do(talk.register_event("/No/Such"))
    assert list(talk.machine.events.values()) == [EVENT]
    client.do(talk.deregister_event(EVENT))
    assert not talk.machine.events


def variables(client: Client) -> None:
    talk = client.conversation
    client.do(talk.set("/Synthetic/Value/00003", "7.5"))
    assert client.do(talk.get("/Synthetic/Value/00003")).value == "7.5"
    client.do(talk.watch(["/Synthetic/Value/00003", "/Synthetic/Value/00004"]))
    if talk.machine.profile.values_are_pushed:
        ids = tuple(talk.machine.observed)
        assert len(ids) == 2
        client.do(asking.unobserve(talk.machine, ids))
        assert not talk.machine.observed


def restart(client: Client) -> None:
    exchange: Exchange[bool] = client.conversation.restart_communication()
    with suppress(SessionLost):
        client.do(exchange)
    client.pair.settle()
    assert client.pair.server.handlers == 0


STORIES: dict[str, Callable[[Client], None]] = {
    story.__name__: story for story in (listing, description, registration, events, variables, restart)
}


def tell(profile: Profile, story: str, fault: Fault) -> Pair:
    pair = Pair(SyntheticWorld(2, 3, 1, agents=2, values=5), profile)
    client = pair.client(profile).connect()
    pair.settle(0.2)
    pair.count = 0
    pair.fault = fault
    STORIES[story](client)
    pair.fault = no_fault
    pair.settle()
    return pair


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("kind", [*FAULTS, *LATE_DOUBLES])
@pytest.mark.parametrize("story", STORIES)
def test_each_single_fault_is_survived(profile: Profile, kind: str, story: str) -> None:
    delays = {**FAULTS, **LATE_DOUBLES}[kind]
    datagrams = tell(profile, story, no_fault).count
    assert datagrams >= 2
    for number in range(datagrams):

        def fault(datagram: Datagram, number: int = number) -> tuple[float, ...]:
            return delays if datagram.number == number else (0.0,)

        tell(profile, story, fault)
