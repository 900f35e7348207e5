"""Agents that are taken, or do not vote, perhaps still by a session of our own that was lost: nobody else is blamed."""

from __future__ import annotations

import socket
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import AgentNotFound, AgentTaken, BarrierStuck
from ospbridge.interface import AgentEntry, Endpoint, Match
from ospbridge.osp.client.notices import told_by
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session import lost_agents
from ospbridge.session.lost_agents import explained, found_dead, given_up, stuck
from ospbridge.session.matching import NO_SCENE, choose
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.osp.pair import Pair
from tests.osp.stage import joined
from tests.session.drivers import Driver
from tests.session.servers import bound, changed, leases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ospbridge.osp.profile import Profile

SERVER = Endpoint("127.0.0.1", 45454)
BLOCKING = Driver()


def register(driver: Driver, simulator: UdpSimulator, *names: str) -> None:
    with driver.connect(simulator, limits=Limits(close=0.3)) as session:
        session.register(*names)


def refused(session: Any) -> None:
    """Its handler's port is closed; this simulator still has its agents."""
    session.link._refused(monotonic())


def gone(driver: Driver, simulator: UdpSimulator) -> None:
    session = driver.connect(simulator)
    session.register("agent1")
    refused(session)
    session.close()


@pytest.mark.loopback
def test_an_agent_of_a_session_whose_handler_has_just_gone_is_not_said_to_be_another_clients(
    either: Driver, simulator: UdpSimulator
) -> None:
    gone(either, simulator)
    assert leases() == []
    with pytest.raises(
        AgentTaken, match=r"a session of ours that may still have it was given up \d\.\d s ago"
    ) as e:
        register(either, simulator, "agent1")
    assert "another client" not in e.value.message
    assert "try again in a moment" in e.value.hint
    assert "restart-communication" in e.value.hint
    assert e.value.agents == ("agent1",)


def dead_session(simulator: UdpSimulator, handler: socket.socket) -> Path:
    """The lease of one that had agent1 and died; what it says leads to ``handler``."""
    session = BLOCKING.connect(simulator)
    session.register("agent1")
    session.disown()
    (file,) = leases()
    changed(file, handler_port=handler.getsockname()[1])
    return file


@pytest.mark.loopback
def test_an_agent_whose_lease_is_there_is_not_said_to_be_another_clients(
    either: Driver, simulator: UdpSimulator
) -> None:
    with bound() as silent:
        # The goodbye is not heard.
        file = dead_session(simulator, silent)
        with pytest.raises(
            AgentTaken, match="a session of ours was lost that may still have it, and its lease"
        ) as e:
            register(either, simulator, "agent1")
    assert "another client" not in e.value.message
    assert "each new session says goodbye for the lost one" in e.value.hint
    assert leases() == [file]


@pytest.mark.loopback
def test_so_it_is_where_the_dead_ones_handler_is_gone_and_its_lease_with_it(simulator: UdpSimulator) -> None:
    with bound() as closed:
        dead_session(simulator, closed)
    with pytest.raises(
        AgentTaken, match=r"a session of ours that may still have it was found dead 0\.\d s ago"
    ):
        register(BLOCKING, simulator, "agent1")
    assert leases() == []


@pytest.mark.loopback
def test_who_really_is_another_client_is_still_said_to_be_one(
    either: Driver, simulator: UdpSimulator
) -> None:
    gone(BLOCKING, simulator)
    with BLOCKING.connect(simulator) as other:
        other.register("agent2")
        with pytest.raises(AgentTaken, match=r"'agent2' of .* is controlled by another client") as e:
            register(either, simulator, "agent2")
    assert "stop the other client" in e.value.hint


@pytest.mark.loopback
def test_what_was_had_again_since_is_nobodys_loss_any_more(simulator: UdpSimulator) -> None:
    given_up(simulator.address, ["agent1", "agent2"])
    register(BLOCKING, simulator, "agent1")
    with BLOCKING.connect(simulator) as other:
        other.register("agent1", "agent2")
        given_up(simulator.address, ["agent2"])
        with pytest.raises(AgentTaken, match="another client"):
            register(BLOCKING, simulator, "agent1")
        with pytest.raises(AgentTaken, match="a session of ours"):
            register(BLOCKING, simulator, "agent2")


@pytest.mark.loopback
def test_who_has_said_goodbye_or_was_evicted_has_lost_nothing(simulator: UdpSimulator) -> None:
    register(BLOCKING, simulator, "agent1")
    evicted = BLOCKING.connect(simulator)
    evicted.register("agent1")
    BLOCKING.connect(simulator).restart_communication()
    evicted.take_notices()
    evicted.close()
    assert not lost_agents._losses


def chosen(patterns: Sequence[str], leases: Path) -> AgentTaken:
    agents = [AgentEntry(1, "cart", "Agent", False), AgentEntry(2, "pole", "Agent", False)]
    with pytest.raises(AgentTaken) as caught, explained(SERVER, leases):
        choose(agents, patterns, server=SERVER, mine=(), available=True)
    return caught.value


@pytest.mark.parametrize("patterns", [(), ("*",)])
def test_of_several_each_is_told_apart(patterns: tuple[str, ...], tmp_path: Path) -> None:
    assert "another client" in chosen(patterns, tmp_path).message.replace("other clients", "another client")
    given_up(SERVER, ["cart", "wheel"])
    told = chosen(patterns, tmp_path)
    assert (
        "agent cart, pole of 127.0.0.1:45454 is taken; a session of ours that may still have cart"
        in told.message
    )
    assert told.message.endswith("pole: controlled by another client")
    assert told.agents == ("cart", "pole")


def test_a_loss_of_long_ago_or_at_another_simulator_explains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_dead(Endpoint("127.0.0.1", 45455), ["cart"])
    assert "another client" in chosen(["cart"], tmp_path).message
    found_dead(SERVER, ["cart"])
    assert "a session of ours" in chosen(["cart"], tmp_path).message
    later = monotonic() + lost_agents.RECENT
    monkeypatch.setattr(lost_agents, "monotonic", lambda: later)
    assert "another client" in chosen(["cart"], tmp_path).message


# --- barriers that wait for what a lost session has ----------------------------------------------------------------

SOON = Limits(step=0.3, reset=0.3, close=0.3)


class Waiting:
    """A session with agent1, whose steps and resets wait for agent2, which another one has by now."""

    def __init__(self, simulator: UdpSimulator) -> None:
        self.session = BLOCKING.connect(simulator, limits=SOON)
        self.session.register("agent1")
        self.other = BLOCKING.connect(simulator)
        self.other.register("agent2")

    def step(self) -> None:
        self.session.step({"agent1": [0.0, 0.0]})

    def reset(self) -> None:
        self.session.reset()

    def told(self, what: str) -> BarrierStuck:
        with (
            self.session,
            pytest.raises(BarrierStuck, match=f"the {what} did not complete within 0.3 s") as e,
        ):
            self.step() if what == "step" else self.reset()
        assert e.value.agents == ("agent2",)
        return e.value


WHAT = pytest.mark.parametrize("what", ["step", "reset"])
DOCUMENTED = pytest.mark.parametrize("profile", [DOCUMENT], ids=["document"])


@pytest.mark.loopback
@WHAT
def test_what_waits_for_a_dead_session_of_ours_names_that_and_the_way_out(
    simulator: UdpSimulator, what: str
) -> None:
    waiting = Waiting(simulator)
    waiting.other.disown()
    told = waiting.told(what)
    assert told.message.endswith(
        "(agent agent2 must be voted for too; "
        "a session of ours was lost that may still have it, and its lease is there)"
    )
    assert "each new session says goodbye for the lost one" in told.hint
    assert "restart-communication" in told.hint
    # It is true.
    with BLOCKING.connect(simulator, limits=SOON) as session:
        session.register("agent1")
        session.reset()
        session.step({"agent1": [0.0, 0.0]})


@pytest.mark.loopback
@WHAT
@DOCUMENTED
def test_so_it_is_told_of_one_that_this_process_has_given_up(simulator: UdpSimulator, what: str) -> None:
    waiting = Waiting(simulator)
    refused(waiting.other)
    waiting.other.close()
    told = waiting.told(what)
    assert "a session of ours that may still have it was given up" in told.message
    assert "other client" not in told.message
    assert "try again in a moment" in told.hint


@pytest.mark.loopback
@WHAT
@DOCUMENTED
def test_who_waits_for_another_client_is_still_told_so(simulator: UdpSimulator, what: str) -> None:
    given_up(simulator.address, ["agent2"])
    waiting = Waiting(simulator)
    with waiting.other:
        told = waiting.told(what)
    assert "agents controlled by other clients, which must vote too: agent2" in told.message
    assert "every client that controls an agent must ask" in told.hint


def test_a_wait_is_explained_by_a_loss_from_shortly_before_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = BarrierStuck("the reset did not complete within 60 s", who="others", agents=["cart", "pole"])
    assert stuck(error, SERVER, tmp_path, waited=60.0) is error
    given_up(SERVER, ["cart"])
    later = monotonic() + lost_agents.RECENT + 1.0
    monkeypatch.setattr(lost_agents, "monotonic", lambda: later)
    told = stuck(error, SERVER, tmp_path, waited=60.0)
    assert (
        "(agent cart, pole must be voted for too; a session of ours that may still have cart" in told.message
    )
    assert told.message.endswith("pole: controlled by another client)")
    assert stuck(error, SERVER, tmp_path, waited=0.5) is error


# --- agents by name -------------------------------------------------------------------------------------------------


def twins(*available: bool) -> list[AgentEntry]:
    return [AgentEntry(number, "twin", "Agent", free) for number, free in enumerate(available, 1)]


@pytest.mark.parametrize("patterns", [(), ("twin",), ("tw*",), ("twin", "*")])
@pytest.mark.parametrize("available", [(True, True), (False, True), (True, False)])
def test_of_several_agents_of_one_name_one_is_meant(
    patterns: tuple[str, ...], available: tuple[bool, ...]
) -> None:
    assert choose(twins(*available), patterns, server=SERVER, mine=(), available=True) == ("twin",)


@pytest.mark.parametrize("patterns", [(), ("twin",), ("*",)])
def test_where_there_are_none_at_all_a_scene_is_missing(patterns: tuple[str, ...]) -> None:
    with pytest.raises(AgentNotFound, match="offers no agents at all") as caught:
        choose((), patterns, server=SERVER, mine=(), available=True)
    assert caught.value.hint == NO_SCENE


def test_each_client_gets_another_one_until_none_is_left(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["twin", "twin"]), profile)
    clients = [joined(pair), joined(pair)]
    for number, client in enumerate(clients, 1):
        names = client.do(client.conversation.matching(("twin",)))
        (interface,) = client.do(client.conversation.register(names))
        assert interface.id == number
    third = joined(pair)
    with pytest.raises(AgentTaken):
        third.do(third.conversation.matching(("twin",)))


def test_whoever_leaves_agents_of_one_name_to_others_is_told_so_once(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["twin", "twin", "twin", "other", "other2"]), profile)
    first, second, third = joined(pair), joined(pair), joined(pair)
    told = []
    for client in (first, second, third):
        talk = client.conversation
        client.do(talk.register(client.do(talk.matching(("twin",)))))
        client.do(talk.register(client.do(talk.matching(("twin",)))))
        told.append([remark.partition(" of ")[2] for remark in told_by(talk.take_notices()).remarks])
    ending = "are called 'twin'", "is called 'twin'"
    assert [len(remarks) for remarks in told] == [1, 1, 0]
    assert [remarks[0].endswith(end) for remarks, end in zip(told, ending, strict=False)] == [True, True]


@pytest.mark.parametrize(
    "patterns, meant, names",
    [
        ((), [Match(type="Arm")], ("a", "b")),
        (("*",), [Match(type="Arm")], ("a", "b")),
        (("*",), [Match(name="b"), Match(type="Le?")], ("leg", "b")),
        (("leg", "a"), [Match(type="Arm")], ("leg", "a")),
        (("*",), [Match(type="Wing")], ("a", "leg", "b")),
        ((), [Match(type="Wing")], ("a", "leg", "b")),
        (("[al]*",), (), ("a", "leg")),
    ],
)
def test_of_those_that_fit_what_is_meant_counts_and_all_where_that_is_none(
    patterns: tuple[str, ...], meant: list[Match], names: tuple[str, ...]
) -> None:
    agents = [
        AgentEntry(number, name, kind, True)
        for number, (name, kind) in enumerate([("a", "Arm"), ("leg", "Leg"), ("b", "Arm")], 1)
    ]
    assert choose(agents, patterns, server=SERVER, mine=(), available=True, meant=meant) == names


@pytest.mark.parametrize(
    "patterns, meant, names",
    [
        (("robot[1]",), (), ("robot[1]",)),
        (("a*", "robot?"), (), ("a*", "robot1")),
        (("a?",), (), ("ab", "a*")),
        (("robot*",), [Match(name="robot[1]")], ("robot[1]",)),
        ((), [Match(name="a*")], ("a*",)),
        ((), [Match(name="a*", type="Leg")], ("ab", "robot1", "robot[1]", "a*")),
    ],
)
def test_a_name_that_looks_like_a_glob_means_the_agent_that_is_called_so(
    patterns: tuple[str, ...], meant: list[Match], names: tuple[str, ...]
) -> None:
    agents = [
        AgentEntry(number, name, "Arm", True)
        for number, name in enumerate(["ab", "robot1", "robot[1]", "a*"], 1)
    ]
    assert choose(agents, patterns, server=SERVER, mine=(), available=True, meant=meant) == names
