"""Agents that are taken, or do not vote, perhaps still by a session of our own that was lost: nobody else is blamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from ospbridge.errors import AgentTaken, BarrierStuck
from ospbridge.interface import AgentEntry, Endpoint, Match
from ospbridge.osp.notices import told_by
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.session import lease
from ospbridge.session.lease import explained, note_loss
from ospbridge.session.names import choose
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.osp.pair import Pair
from tests.osp.stage import joined
from tests.session.drivers import Driver
from tests.session.servers import bound, changed, leases

SERVER = Endpoint("127.0.0.1", 45454)
BLOCKING = Driver()


def register(driver: Driver, simulator: UdpSimulator, *names: str) -> None:
    with driver.connect(simulator, limits=Limits(close=0.3)) as session:
        session.register(*names)


def gone(driver: Driver, simulator: UdpSimulator) -> None:
    """A session whose handler's port is closed, while this simulator still has its agent."""
    session = driver.having(simulator, "agent1")
    session.channel.refused(monotonic())
    session.close()


@pytest.mark.loopback
def test_an_agent_of_a_session_whose_handler_has_just_gone_is_not_said_to_be_another_clients(
    either: Driver, simulator: UdpSimulator
) -> None:
    gone(either, simulator)
    assert leases() == []
    with pytest.raises(
        AgentTaken, match=r"a session of ours that may still have agent1 was given up \d\.\d s ago"
    ) as e:
        register(either, simulator, "agent1")
    assert "another client" not in e.value.message
    assert "try again in a moment" in e.value.hint
    assert "restart-communication" in e.value.hint
    assert e.value.agents == ("agent1",)


@contextmanager
def killed_and_not_heard(simulator: UdpSimulator) -> Iterator[Path]:
    """The lease of a session that has died with agent1, and whose old handler hears no goodbye."""
    session = BLOCKING.having(simulator, "agent1")
    session.disown()
    (file,) = leases()
    with bound() as silent:
        changed(file, handler_port=silent.getsockname()[1])
        yield file


@pytest.mark.loopback
def test_an_agent_whose_lease_is_there_is_not_said_to_be_another_clients(
    either: Driver, simulator: UdpSimulator
) -> None:
    with killed_and_not_heard(simulator) as file, BLOCKING.connect(simulator, reclaim_stale=False) as other:
        # Of two agents that are taken one is somebody else's: nothing may be restarted.
        other.register("agent2")
        with pytest.raises(
            AgentTaken, match="a session of ours was lost that may still have agent1, and its lease"
        ) as e:
            register(either, simulator, "agent1")
        assert file in leases()
    assert "another client" not in e.value.message
    assert "each new session says goodbye for the lost one" in e.value.hint


@pytest.mark.loopback
@pytest.mark.parametrize("profile", [NERD], ids=["nerd"])
def test_agents_that_only_our_dead_have_are_freed_by_a_restart_of_the_communication(
    either: Driver, simulator: UdpSimulator
) -> None:
    with (
        killed_and_not_heard(simulator),
        either.connect(simulator, limits=Limits(close=0.3)) as session,
    ):
        session.register("agent1", "agent2")
        (told,) = told_by(session.pop_notices()).remarks
    assert told.endswith("was restarted, which alone freed agent1 of a killed session of ours")
    assert leases() == []


@pytest.mark.loopback
@pytest.mark.parametrize("profile", [NERD], ids=["nerd"])
def test_nothing_is_restarted_while_another_session_of_ours_lives(
    either: Driver, simulator: UdpSimulator
) -> None:
    with (
        killed_and_not_heard(simulator),
        BLOCKING.connect(simulator, reclaim_stale=False),
        pytest.raises(AgentTaken, match="a session of ours was lost that may still have agent1"),
    ):
        register(either, simulator, "agent1")


@pytest.mark.loopback
def test_who_really_is_another_client_is_still_said_to_be_one(
    either: Driver, simulator: UdpSimulator
) -> None:
    gone(BLOCKING, simulator)
    told = r"'agent2' of .* is controlled by another client"
    with BLOCKING.having(simulator, "agent2"), pytest.raises(AgentTaken, match=told) as e:
        register(either, simulator, "agent2")
    assert "stop the other client" in e.value.hint


@pytest.mark.loopback
def test_what_was_had_again_since_is_nobodys_loss_any_more(simulator: UdpSimulator) -> None:
    note_loss(simulator.address, ["agent1", "agent2"], "was given up")
    register(BLOCKING, simulator, "agent1")
    with BLOCKING.having(simulator, "agent1", "agent2"):
        note_loss(simulator.address, ["agent2"], "was given up")
        with pytest.raises(AgentTaken, match="another client"):
            register(BLOCKING, simulator, "agent1")
        with pytest.raises(AgentTaken, match="a session of ours"):
            register(BLOCKING, simulator, "agent2")


def test_a_loss_of_long_ago_or_at_another_simulator_explains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blamed(whom: str) -> None:
        cart = AgentEntry(1, "cart", "Agent", False)
        with pytest.raises(AgentTaken, match=whom), explained(SERVER, tmp_path):
            choose([cart], ["cart"], server=SERVER, mine=(), available=True)

    note_loss(Endpoint("127.0.0.1", 45455), ["cart"], "was found dead")
    blamed("another client")
    note_loss(SERVER, ["cart"], "was found dead")
    blamed("a session of ours")
    later = monotonic() + lease.RECENT
    monkeypatch.setattr(lease, "monotonic", lambda: later)
    blamed("another client")


# --- barriers that wait for what a lost session has ----------------------------------------------------------------

SOON = Limits(step=0.3, reset=0.3, close=0.3)


@pytest.mark.loopback
@pytest.mark.parametrize("what", ["step", "reset"])
def test_what_waits_for_a_dead_session_of_ours_names_that_and_the_way_out(
    simulator: UdpSimulator, what: str
) -> None:
    with BLOCKING.having(simulator, "agent1", limits=SOON) as session:
        other = BLOCKING.having(simulator, "agent2")
        other.disown()
        with pytest.raises(BarrierStuck, match=f"the {what} did not complete within 0.3 s") as told:
            session.reset() if what == "reset" else session.step({"agent1": [0.0, 0.0]})
    assert told.value.agents == ("agent2",)
    assert told.value.message.endswith(
        "(agent agent2 must be voted for too; "
        "a session of ours was lost that may still have agent2, and its lease is there)"
    )
    assert "each new session says goodbye for the lost one" in told.value.hint
    assert "restart-communication" in told.value.hint
    # It is true.
    with BLOCKING.playing(simulator, "agent1", seed=0, limits=SOON) as session:
        session.step({"agent1": [0.0, 0.0]})


# --- agents by name -------------------------------------------------------------------------------------------------


def twins(*available: bool) -> list[AgentEntry]:
    return [AgentEntry(number, "twin", "Agent", free) for number, free in enumerate(available, 1)]


@pytest.mark.parametrize("patterns", [(), ("twin",), ("tw*",), ("twin", "*")])
@pytest.mark.parametrize("available", [(True, True), (False, True), (True, False)])
def test_of_several_agents_of_one_name_one_is_meant(
    patterns: tuple[str, ...], available: tuple[bool, ...]
) -> None:
    assert choose(twins(*available), patterns, server=SERVER, mine=(), available=True) == ("twin",)


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
        told.append([remark.partition(" of ")[2] for remark in told_by(talk.pop_notices()).remarks])
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
