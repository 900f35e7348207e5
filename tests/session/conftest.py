"""Sessions of both drivers, and a simulator for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ospbridge.osp.profile import Profile
from ospbridge.session import connect, rebuild
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.drivers import Driver, driver
from tests.session.servers import SETTLES


@pytest.fixture(autouse=True)
def _settled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connect, rebuild):
        monkeypatch.setattr(module, "RESTART_SETTLES", SETTLES)


@pytest.fixture(params=["blocking", "trio"])
def either(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Each way to drive a session."""
    with driver(request.param) as made:
        yield made


@pytest.fixture
def simulator(profile: Profile) -> Iterator[UdpSimulator]:
    """Of two agents, in each way in which servers speak OSP."""
    with UdpSimulator(SyntheticWorld(2, 3, 1, agents=2), port=0, profile=profile) as running:
        yield running
