"""Servers that take one client only, and do not answer INIT while they believe a dead one of ours still there."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn

import gymnasium
import numpy as np
import pytest
import trio

import ospbridge
from ospbridge.errors import SimulatorSilent
from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.timing import Limits
from ospbridge.session import reclaim
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lease import Lease, LeaseFile
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.holes import HoledNetwork
from tests.session.one_at_a_time import OneAtATime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.osp.profile import Profile

    Server = UdpSimulator | OneAtATime

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


def deaf_to_others(profile: Profile) -> UdpSimulator:
    """An INIT that comes while it has a client is lost."""
    return UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile, max_handlers=1)


def one_at_a_time(profile: Profile) -> OneAtATime:
    """An INIT that comes while it has a client is read behind that one's END."""
    return OneAtATime(SyntheticWorld(2, 3), profile)


@pytest.fixture(params=[deaf_to_others, one_at_a_time], ids=lambda make: make.__name__)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    make: Callable[[Profile], Server] = request.param
    with make(DOCUMENT) as running:
        yield running


def play_blocking(address: Endpoint, limits: Limits) -> None:
    with BlockingSession.connect(address, limits=limits) as session:
        session.register("agent")
        session.reset(1)
        session.step({"agent": [0.0, 0.0]})


def play_with_trio(address: Endpoint, limits: Limits) -> None:
    async def play() -> None:
        async with await TrioSession.connect(address, limits=limits) as session:
            await session.register("agent")
            await session.reset(1)
            await session.step({"agent": [0.0, 0.0]})

    trio.run(play)


BOTH = pytest.mark.parametrize("play", [play_blocking, play_with_trio])


def leases() -> list[Path]:
    return list((runtime_directory() / "leases").glob("*.lease"))


def died(address: Endpoint, state: str = "idle") -> None:
    """A session that controls the agent goes without a word, as that of a process that is killed."""
    session = BlockingSession.connect(address)
    session.register("agent")
    session.reset(1)
    if state == "mid-step":
        for vote in session.conversation.fill({"agent": [0.0, 0.0]}):
            session._socket.send(vote.datagram)
        time.sleep(0.1)
    session.disown()
    assert len(leases()) == 1


@BOTH
@pytest.mark.parametrize("state", ["idle", "mid-step"])
def test_the_place_of_our_own_dead_session_is_taken_long_before_the_limit(
    server: Server, play: Callable[[Endpoint, Limits], None], state: str
) -> None:
    died(server.address, state)
    begun = time.monotonic()
    play(server.address, Limits(connect=10.0))
    assert time.monotonic() - begun < 4.0
    assert leases() == []


@BOTH
def test_so_it_is_at_a_nerd_server(play: Callable[[Endpoint, Limits], None]) -> None:
    with deaf_to_others(NERD) as server:
        died(server.address)
        play(server.address, Limits(connect=10.0))
        assert leases() == []


@BOTH
def test_a_living_session_keeps_its_place(server: Server, play: Callable[[Endpoint, Limits], None]) -> None:
    with BlockingSession.connect(server.address) as living:
        living.register("agent")
        living.reset(1)
        with pytest.raises(SimulatorSilent):
            play(server.address, Limits(connect=0.8))
        living.step({"agent": [0.0, 0.0]})


def test_who_only_looks_says_goodbye_for_nobody(server: Server) -> None:
    died(server.address)
    with pytest.raises(SimulatorSilent):
        BlockingSession.connect(server.address, limits=Limits(connect=0.8), reclaim_stale=False)
    assert len(leases()) == 1


@contextmanager
def silent_server(*, dead: int) -> Iterator[Endpoint]:
    """Neither its main port nor the handlers of so many dead sessions of ours answer anything."""
    with ExitStack() as stack:
        ports = []
        for _ in range(1 + dead):
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.bind(("127.0.0.1", 0))
            ports.append(sock.getsockname()[1])
        for handler_port in ports[1:]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as place:
                place.bind(("127.0.0.1", 0))
                local_port = place.getsockname()[1]
            file = LeaseFile()
            file.write(
                Lease(
                    server="127.0.0.1",
                    server_port=ports[0],
                    local_host="127.0.0.1",
                    local_port=local_port,
                    handler_port=handler_port,
                    profile="document",
                    agents={"agent": 1},
                    events=False,
                    pid=1,
                )
            )
            file.abandon()
        yield Endpoint("127.0.0.1", ports[0])


@BOTH
def test_however_many_leases_meet_silence_the_limit_of_connecting_holds_and_they_are_worth_as_much_as_before(
    play: Callable[[Endpoint, Limits], None],
) -> None:
    with silent_server(dead=3) as address:
        begun = time.monotonic()
        with pytest.raises(SimulatorSilent, match=r"within \d\.\d s"):
            play(address, Limits(connect=1.5))
        assert 1.5 <= time.monotonic() - begun < 2 * 1.5
        assert [json.loads(file.read_text())["tries"] for file in leases()] == [0, 0, 0]


@BOTH
def test_a_place_that_cannot_be_had_while_all_is_silent_costs_no_lease(
    play: Callable[[Endpoint, Limits], None],
) -> None:
    with silent_server(dead=1) as address, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        (file,) = leases()
        other.bind(("127.0.0.1", json.loads(file.read_text())["local_port"]))
        with pytest.raises(SimulatorSilent):
            play(address, Limits(connect=0.6))
        assert leases() == [file]


@pytest.mark.slow
@BOTH
def test_leases_that_meet_silence_leave_init_its_share_of_the_time(
    play: Callable[[Endpoint, Limits], None],
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator, HoledNetwork(simulator.address) as network:
        host, port = network.address.split(":")
        with silent_server(dead=2):
            for file in leases():
                file.write_text(json.dumps(json.loads(file.read_text()) | {"server_port": int(port)}))
            network.holed = True
            back = threading.Timer(1.5, lambda: setattr(network, "holed", False))
            back.start()
            play(Endpoint(host, int(port)), Limits(connect=3.0, close=1.5))
            back.join(10)
        # Once there was an answer to INIT, the silence of those handlers was their own.
        assert [json.loads(file.read_text())["tries"] for file in leases()] == [1, 1]


@pytest.mark.slow
@BOTH
def test_a_goodbye_that_was_lost_is_said_again(play: Callable[[Endpoint, Limits], None]) -> None:
    with deaf_to_others(DOCUMENT) as server, HoledNetwork(server.address) as network:
        host, port = network.address.split(":")
        address = Endpoint(host, int(port))
        died(address)
        network.holed = True
        back = threading.Timer(1.0, lambda: setattr(network, "holed", False))
        back.start()
        play(address, Limits(connect=15.0, close=0.4))
        back.join(10)
        assert leases() == []


@BOTH
def test_whoever_is_interrupted_meanwhile_leaves_the_lease_to_the_next(
    play: Callable[[Endpoint, Limits], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with deaf_to_others(DOCUMENT) as server:
        died(server.address)
        with monkeypatch.context() as patched:
            patched.setattr(reclaim.Successor, "goodbye", interrupted)
            with pytest.raises(KeyboardInterrupt):
                play(server.address, Limits(connect=5.0))
        play(server.address, Limits(connect=5.0))
        assert leases() == []


@pytest.mark.slow
def test_an_environment_plays_on_behind_a_silence_that_ended_its_session() -> None:
    with deaf_to_others(DOCUMENT) as server, HoledNetwork(server.address) as network:
        env = gymnasium.make(
            "ospbridge/Agent-v0",
            simulator=network.address,
            query_timeout=0.5,
            step_timeout=1.0,
            connect_timeout=5.0,
        )
        env.reset(seed=1)
        network.holed = True
        assert env.step(np.zeros(2, np.float32))[3]
        back = threading.Timer(2.5, lambda: setattr(network, "holed", False))
        back.start()
        env.reset(seed=2)
        back.join(10)
        assert not env.step(np.zeros(2, np.float32))[3]
        env.close()
        assert leases() == []
