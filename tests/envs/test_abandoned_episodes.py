"""Episodes that are reset before their end, as behind a wrapper that limits their time, are looked back at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

from ospbridge.osp.codes import ITERATIONS
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached
from tests.envs.kinds import only, parallel, single, step, vector

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.interface import Endpoint

pytestmark = pytest.mark.loopback
DOUBT = r"before this reset cannot be trusted: 4 steps were given, the clock shows 5"


def begun(env: Any) -> None:
    """With the neutral step, three."""
    _, info = env.reset(seed=1)
    assert reason(info) == ""
    for _ in range(2):
        step(env)


def hasten(address: Endpoint) -> None:
    """From here on the world makes two steps instead of one."""
    with BlockingSession.connect(str(address)) as other:
        other.set(ITERATIONS, "2")


def reason(told: Any) -> str:
    """What an info says, of a reset of whichever kind."""
    found = told if "reason" in told else only(told)
    said: str = only(found["reason"]) if not isinstance(found["reason"], str) else found["reason"]
    return said


@pytest.mark.parametrize("made", [single, vector, parallel, "hub"])
def test_a_reset_warns_of_steps_that_the_clock_denies(made: Any, tmp_path: Path) -> None:
    way = "direct" if made != "hub" else "hub"
    with (
        UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator,
        reached(way, simulator.address, tmp_path / "hub") as where,
    ):
        if made == "hub":
            env: Any = gymnasium.make("ospbridge/Agent-v0", **where).unwrapped
        else:
            env = made(str(simulator.address))
        begun(env)
        hasten(simulator.address)
        step(env)
        with pytest.warns(UserWarning, match=DOUBT):
            _, info = env.reset(seed=1)
        assert "4 steps were given, the clock shows 5" in reason(info)
        _, info = env.reset(seed=1)
        assert reason(info) == ""
        env.close()
