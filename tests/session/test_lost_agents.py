"""Agents that are taken, or do not vote, perhaps still by a session of our own that was lost: nobody else is blamed."""

from __future__ import annotations

import json
import socket
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.errors import AgentTaken, BarrierStuck
from ospbridge.interface import AgentEntry, Endpoint
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.timing import Limits
from ospbridge.session import lost_agents
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lost_agents import explained, found_dead, given_up, stuck
from ospbridge.session.matching import choose
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ospbridge.osp.profile import Profile

SERVER = Endpoint("127.0.0.1", 45454)


@pytest.fixture(params=[DOCUMENT, NERD], ids=lambda p: p.name)
def simulator(request: pytest.FixtureRequest) -> Iterator[UdpSimulator]:
    profile: Profile = request.param
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=profile) as running:
        yield running


def register_blocking(address: Endpoint, *names: str) -> None:
    with BlockingSession.connect(address, limits=Limits(close=0.4)) as session:
        session.register(*names)


def register_with_trio(address: Endpoint, *names: str) -> None:
    async def register() -> None:
        async with await TrioSession.connect(address, limits=Limits(close=0.4)) as session:
            await session.register(*names)

    trio.run(register)


BOTH = pytest.mark.parametrize("register", [register_blocking, register_with_trio])


def refused(session: BlockingSession | TrioSession) -> None:
    """Its handler's port is closed; this simulator still has its agents."""
    session.link._refused(monotonic())


def gone_blocking(address: Endpoint) -> None:
    session = BlockingSession.connect(address)
    session.register("agent1")
    refused(session)
    session.close()


def gone_with_trio(address: Endpoint) -> None:
    async def lose() -> None:
        session = await TrioSession.connect(address)
        await session.register("agent1")
        refused(session)
        await session.aclose()

    trio.run(lose)


GONE = pytest.mark.parametrize("lose", [gone_blocking, gone_with_trio])


def leases() -> list[Path]:
    return list((runtime_directory() / "leases").glob("*.lease"))


@pytest.mark.loopback
@BOTH
@GONE
def test_an_agent_of_a_session_whose_handler_has_just_gone_is_not_said_to_be_another_clients(
    simulator: UdpSimulator, lose: Callable[[Endpoint], None], register: Callable[..., None]
) -> None:
    lose(simulator.address)
    assert leases() == []
    with pytest.raises(
        AgentTaken, match=r"a session of ours that may still have it was given up \d\.\d s ago"
    ) as e:
        register(simulator.address, "agent1")
    assert "another client" not in e.value.message
    assert "try again in a moment" in e.value.hint
    assert "restart-communication" in e.value.hint
    assert e.value.agents == ("agent1",)


def dead_session(simulator: UdpSimulator, handler: socket.socket) -> Path:
    """The lease of one that had agent1 and died; what it says leads to ``handler``."""
    session = BlockingSession.connect(simulator.address)
    session.register("agent1")
    session.disown()
    (file,) = leases()
    handler.bind(("127.0.0.1", 0))
    told = json.loads(file.read_text()) | {"handler_port": handler.getsockname()[1]}
    file.write_text(json.dumps(told))
    return file


@pytest.mark.loopback
@BOTH
def test_an_agent_whose_lease_is_there_is_not_said_to_be_another_clients(
    simulator: UdpSimulator, register: Callable[..., None]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        # The goodbye is not heard.
        file = dead_session(simulator, silent)
        with pytest.raises(
            AgentTaken, match="a session of ours was lost that may still have it, and its lease"
        ) as e:
            register(simulator.address, "agent1")
    assert "another client" not in e.value.message
    assert "each new session says goodbye for the lost one" in e.value.hint
    assert leases() == [file]


@pytest.mark.loopback
def test_so_it_is_where_the_dead_ones_handler_is_gone_and_its_lease_with_it(simulator: UdpSimulator) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        dead_session(simulator, closed)
    with pytest.raises(
        AgentTaken, match=r"a session of ours that may still have it was found dead 0\.\d s ago"
    ):
        register_blocking(simulator.address, "agent1")
    assert leases() == []


@pytest.mark.loopback
@BOTH
def test_who_really_is_another_client_is_still_said_to_be_one(
    simulator: UdpSimulator, register: Callable[..., None]
) -> None:
    gone_blocking(simulator.address)
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent2")
        with pytest.raises(AgentTaken, match=r"'agent2' of .* is controlled by another client") as e:
            register(simulator.address, "agent2")
    assert "stop the other client" in e.value.hint


@pytest.mark.loopback
def test_what_was_had_again_since_is_nobodys_loss_any_more(simulator: UdpSimulator) -> None:
    given_up(simulator.address, ["agent1", "agent2"])
    register_blocking(simulator.address, "agent1")
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1", "agent2")
        given_up(simulator.address, ["agent2"])
        with pytest.raises(AgentTaken, match="another client"):
            register_blocking(simulator.address, "agent1")
        with pytest.raises(AgentTaken, match="a session of ours"):
            register_blocking(simulator.address, "agent2")


@pytest.mark.loopback
def test_who_has_said_goodbye_or_was_evicted_has_lost_nothing(simulator: UdpSimulator) -> None:
    register_blocking(simulator.address, "agent1")
    evicted = BlockingSession.connect(simulator.address)
    evicted.register("agent1")
    BlockingSession.connect(simulator.address).restart_communication()
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


def test_of_several_that_were_lost_one_by_one_nobody_else_is_blamed_for_any(tmp_path: Path) -> None:
    given_up(SERVER, ["pole"])
    given_up(SERVER, ["cart"])
    assert "another client" not in chosen(["*"], tmp_path).message


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

SOON = Limits(step=0.5, reset=0.5, close=0.4)


class Waiting:
    """A session with agent1, whose steps and resets wait for agent2, which another one has by now."""

    def __init__(self, address: Endpoint) -> None:
        self.session = BlockingSession.connect(address, limits=SOON)
        self.session.register("agent1")
        self.other = BlockingSession.connect(address)
        self.other.register("agent2")

    def step(self) -> None:
        self.session.step({"agent1": [0.0, 0.0]})

    def reset(self) -> None:
        self.session.reset()

    def told(self, what: str) -> BarrierStuck:
        with (
            self.session,
            pytest.raises(BarrierStuck, match=f"the {what} did not complete within 0.5 s") as e,
        ):
            self.step() if what == "step" else self.reset()
        assert e.value.agents == ("agent2",)
        return e.value


WHAT = pytest.mark.parametrize("what", ["step", "reset"])


@pytest.mark.loopback
@WHAT
def test_what_waits_for_a_dead_session_of_ours_names_that_and_the_way_out(
    simulator: UdpSimulator, what: str
) -> None:
    waiting = Waiting(simulator.address)
    waiting.other.disown()
    told = waiting.told(what)
    assert told.message.endswith(
        "(agent agent2 must be voted for too; "
        "a session of ours was lost that may still have it, and its lease is there)"
    )
    assert "each new session says goodbye for the lost one" in told.hint
    assert "restart-communication" in told.hint
    # It is true.
    with BlockingSession.connect(simulator.address, limits=SOON) as session:
        session.register("agent1")
        session.reset()
        session.step({"agent1": [0.0, 0.0]})


@pytest.mark.loopback
@WHAT
def test_so_it_is_told_of_one_that_this_process_has_given_up(simulator: UdpSimulator, what: str) -> None:
    waiting = Waiting(simulator.address)
    refused(waiting.other)
    waiting.other.close()
    told = waiting.told(what)
    assert "a session of ours that may still have it was given up" in told.message
    assert "other client" not in told.message
    assert "try again in a moment" in told.hint


@pytest.mark.loopback
@WHAT
def test_who_waits_for_another_client_is_still_told_so(simulator: UdpSimulator, what: str) -> None:
    given_up(simulator.address, ["agent2"])
    waiting = Waiting(simulator.address)
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
