"""A simulator of this host that stalls is told of, whichever way its steps are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ospbridge.osp import client
from ospbridge.osp.notices import STALLED, Notice, told_by
from ospbridge.osp.profile import NERD
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import single, step, vector
from tests.session.drivers import Driver

pytestmark = pytest.mark.loopback
STEPS = 110


class StallingWorld(SyntheticWorld):
    """Each twelfth step takes as long as a wake-up that is lost; more of them than are needed."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self._stepped = 0

    def step(self, *given: Any, **named: Any) -> Any:
        self._stepped += 1
        if self._stepped % 12 == 0:
            time.sleep(0.06)
        return super().step(*given, **named)


@pytest.fixture(autouse=True)
def _however_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps that take long for another reason than a stall say that there is no time to lose on stalls.
    monkeypatch.setattr(client, "LATE", STALLED)


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(StallingWorld(), port=0, profile=NERD) as running:
        yield running


def play(session: Any, count: int = STEPS) -> list[str]:
    """More steps than are looked at, in several episodes; what is said of stalls."""
    session.register("agent")
    for number in range(count):
        if number % 40 == 0:
            session.reset(1)
        session.step({"agent": [0.0]})
    notices: list[Notice] = session.pop_notices()
    return [remark for remark in told_by(notices).remarks if "late" in remark]


@pytest.mark.parametrize("spin", [True, False], ids=["spinning", "sleeping"])
def test_it_is_told_of_once_with_the_command_that_cures_it(
    either: Driver, simulator: UdpSimulator, spin: bool
) -> None:
    with either.connect(simulator, spin=spin) as session:
        (text,) = play(session)
        assert f"`ospbridge tune {simulator.address}`" in text
        assert not play(session, 40)


def steps(env: Any) -> None:
    for _ in range(STEPS + 30):
        step(env)


@pytest.mark.parametrize("made", [single, vector])
def test_an_environment_warns_of_it_once(simulator: UdpSimulator, made: Callable[[str], Any]) -> None:
    env = made(str(simulator.address))
    try:
        env.reset(seed=1)
        with pytest.warns(UserWarning, match=f"ospbridge tune {simulator.address}") as warned:
            steps(env)
        assert len(warned) == 1
    finally:
        env.close()
