"""A simulator that is silent for longer than a session is patient: given up, but nothing of it stays taken."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
import trio

import ospbridge
from ospbridge.errors import SessionLost
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.budget import CAPACITY
from ospbridge.session.lease import TRIES
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.holes import HoledNetwork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.osp.profile import Profile

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
LIMITS = Limits(query=0.5, step=1.0)


BOTH = pytest.mark.parametrize("simulator", [DOCUMENT, NERD], indirect=True, ids=lambda p: p.name)


@pytest.fixture
def simulator(request: pytest.FixtureRequest) -> Iterator[UdpSimulator]:
    profile: Profile = getattr(request, "param", DOCUMENT)
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile) as running:
        yield running


@pytest.fixture
def network(simulator: UdpSimulator) -> Iterator[HoledNetwork]:
    with HoledNetwork(simulator.address) as made:
        yield made


def leases() -> list[Path]:
    return list((runtime_directory() / "leases").glob("*.lease"))


def given_up(session: BlockingSession, network: HoledNetwork) -> None:
    """Its step met nothing but silence."""
    session.register("agent")
    session.reset(1)
    network.holed = True
    with pytest.raises(SessionLost, match="fell silent"):
        session.step({"agent": [0.0, 0.0]})


@BOTH
def test_a_session_that_was_given_up_frees_its_agents_when_it_closes(
    simulator: UdpSimulator, network: HoledNetwork
) -> None:
    session = BlockingSession.connect(network.address, limits=LIMITS)
    given_up(session, network)
    network.holed = False
    session.close()
    assert not simulator.machine.controlled
    assert leases() == []


@BOTH
def test_what_is_silent_even_then_is_freed_by_the_next_session(
    simulator: UdpSimulator, network: HoledNetwork
) -> None:
    session = BlockingSession.connect(network.address, limits=LIMITS)
    given_up(session, network)
    begun = time.monotonic()
    session.close()
    assert time.monotonic() - begun < 2.4
    assert simulator.machine.controlled
    assert len(leases()) == 1
    network.holed = False
    with BlockingSession.connect(network.address) as other:
        assert all(entry.available for entry in other.agents())
        other.register("agent")
    assert leases() == []


@BOTH
@pytest.mark.trio
async def test_so_does_a_session_of_trio(simulator: UdpSimulator, network: HoledNetwork) -> None:
    session = await TrioSession.connect(network.address, limits=LIMITS)
    await session.register("agent")
    await session.reset(1)
    network.holed = True
    with pytest.raises(SessionLost, match="fell silent"):
        await session.step({"agent": [0.0, 0.0]})
    network.holed = False
    with trio.fail_after(10):
        await session.aclose()
    assert not simulator.machine.controlled
    assert leases() == []


@pytest.mark.slow
def test_an_environment_plays_on_behind_a_silence_that_ended_its_episode(
    simulator: UdpSimulator, network: HoledNetwork
) -> None:
    env = gymnasium.make("ospbridge/Agent-v0", simulator=network.address, query_timeout=0.5, step_timeout=1.0)
    env.reset(seed=1)
    network.holed = True
    *_, truncated, info = env.step(np.zeros(2, np.float32))
    assert truncated
    assert "fell silent" in info["reason"]
    back = threading.Timer(2.5, lambda: setattr(network, "holed", False))
    back.start()
    env.reset(seed=2)
    back.join(10)
    assert not env.step(np.zeros(2, np.float32))[3]
    env.close()
    assert not simulator.machine.controlled
    assert leases() == []


@pytest.mark.slow
def test_a_lease_whose_handler_is_silent_is_tried_again_a_few_times(
    simulator: UdpSimulator, network: HoledNetwork
) -> None:
    session = BlockingSession.connect(network.address, limits=LIMITS)
    given_up(session, network)
    session.close()
    (file,) = leases()
    lease = json.loads(file.read_text())
    network.holed = False
    quick = Limits(close=0.4)
    # Nobody is where the handler was said to be, and nothing says so.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        file.write_text(json.dumps(lease | {"handler_port": silent.getsockname()[1]}))
        for tries in range(1, TRIES):
            BlockingSession.connect(network.address, limits=quick).close()
            assert json.loads(file.read_text())["tries"] == tries
        BlockingSession.connect(network.address, limits=quick).close()
    assert leases() == []


@pytest.mark.slow
def test_an_environment_whose_session_meets_another_silence_while_it_is_joined_again_tries_on(
    simulator: UdpSimulator, network: HoledNetwork
) -> None:
    env = gymnasium.make("ospbridge/Agent-v0", simulator=network.address, query_timeout=0.5, step_timeout=1.0)
    env.reset(seed=1)
    network.holed = True
    assert env.step(np.zeros(2, np.float32))[3]
    network.holed = False
    # It takes its agent back, hears the goodbye and is found, and is silent again when it is asked for its agents.
    network.answers_left = 3
    back = threading.Timer(2.0, lambda: setattr(network, "answers_left", None))
    back.start()
    env.reset(seed=2)
    back.join(10)
    unwrapped: Any = env.unwrapped
    assert unwrapped._seat.shared.budget._left < CAPACITY - 1.5
    assert not env.step(np.zeros(2, np.float32))[3]
    env.close()
    assert not simulator.machine.controlled
    assert leases() == []
