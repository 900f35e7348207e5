"""Sessions of both drivers, and a simulator for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ospbridge.osp.client.surplus import SurplusMachine
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.drivers import Driver, driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.osp.profile import Profile


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


@pytest.fixture
def seen_off(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whenever handlers of INITs that nobody means are looked for: how many are at it, from then on."""
    under_way: list[SurplusMachine] = []
    counts: list[int] = []
    begin = SurplusMachine.begin

    def begun(machine: SurplusMachine, now: float, give_up: float) -> None:
        begin(machine, now, give_up)
        under_way.append(machine)
        counts.append(sum(not each.finished for each in under_way))

    monkeypatch.setattr(SurplusMachine, "begin", begun)
    return counts
