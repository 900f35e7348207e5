"""A simulator that is silent for longer than a session is patient: given up, but nothing of it stays taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import SessionLost
from ospbridge.osp.timing import Limits
from ospbridge.session.rebuild import CAPACITY
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.holes import HoledNetwork
from tests.session.drivers import Driver
from tests.session.servers import leases

pytestmark = pytest.mark.loopback
BRIEF = Limits(query=0.3, step=0.5, close=0.5)


@pytest.fixture
def network(simulator: UdpSimulator) -> Iterator[HoledNetwork]:
    with HoledNetwork(simulator.address) as made:
        yield made


def given_up(driver: Driver, simulator: UdpSimulator, network: HoledNetwork) -> Any:
    """A session whose step met nothing but silence."""
    session = driver.playing(network.address, "agent1", profile=simulator.machine.profile, limits=BRIEF)
    network.holed = True
    with pytest.raises(SessionLost, match="fell silent"):
        session.step({"agent1": [0.0, 0.0]})
    return session


def test_a_session_that_was_given_up_frees_its_agents_when_it_closes(
    either: Driver, simulator: UdpSimulator, network: HoledNetwork
) -> None:
    session = given_up(either, simulator, network)
    network.holed = False
    session.close()
    assert not simulator.machine.controlled
    assert leases() == []


def test_what_is_silent_even_then_is_freed_by_the_next_session(
    either: Driver, simulator: UdpSimulator, network: HoledNetwork
) -> None:
    given_up(either, simulator, network).close()
    assert simulator.machine.controlled
    assert len(leases()) == 1
    network.holed = False
    with either.connect(network.address, profile=simulator.machine.profile) as other:
        assert all(entry.available for entry in other.agents())
        other.register("agent1")
    assert leases() == []


@pytest.mark.parametrize(
    "single, taken_back",
    [(False, False), (True, False), (False, True)],
    ids=["one silence", "of a server of one client", "and another while it is joined"],
)
def test_an_environment_plays_on_behind_a_silence_that_ended_its_episode(
    *, single: bool, taken_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Limits.__init__.__kwdefaults__ or {}, "close", BRIEF.close)
    with (
        UdpSimulator(SyntheticWorld(2, 3), port=0, max_handlers=1 if single else 64) as simulator,
        HoledNetwork(simulator.address) as network,
    ):
        env = gymnasium.make(
            "ospbridge/Agent-v0",
            simulator=network.address,
            profile="document",
            query_timeout=0.3,
            step_timeout=0.5,
        )
        env.reset(seed=1)
        network.holed = True
        *_, truncated, info = env.step(np.zeros(2, np.float32))
        assert truncated
        assert "fell silent" in info["reason"]
        if taken_back:
            # It takes its agent back, hears the goodbye and is found, and is silent when it is asked for its agents.
            network.answers_left = 3
            network.holed = False

        def comes_back() -> None:
            network.holed = False
            network.answers_left = None

        back = threading.Timer(0.6 if taken_back else 0.2, comes_back)
        back.start()
        env.reset(seed=2)
        back.join(10)
        unwrapped: Any = env.unwrapped
        assert unwrapped._backend.shared.budget._left < CAPACITY
        assert not env.step(np.zeros(2, np.float32))[3]
        env.close()
        assert not simulator.machine.controlled
    assert leases() == []
