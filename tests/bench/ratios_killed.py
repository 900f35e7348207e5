"""How soon a simulator that is killed is noticed, and one that is back is joined: half of them within the limits that
docs/explanation/faults.md names."""

from __future__ import annotations

import statistics

import gymnasium
import pytest

import ospbridge
from ospbridge.interface import Endpoint
from tests.daemon.forked import ForkedSimulator
from tests.daemon.running import LocalDaemon
from tests.daemon.test_simulator_killed import THINK, Seen, killed_again_and_again

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
NOTICED = 0.1
NOTICED_IN_STEP = 0.4
REBUILT = 2.0


def judge(seen: Seen) -> None:
    assert statistics.median(seen.noticed) < NOTICED, seen
    assert statistics.median(seen.noticed_in_step) < NOTICED_IN_STEP, seen
    assert statistics.median(seen.rebuilt) < REBUILT, seen


def test_a_direct_environment_notices_in_time() -> None:
    with ForkedSimulator(think=THINK) as simulator:
        env = gymnasium.make("ospbridge/Agent-v0", simulator=simulator.address)
        judge(killed_again_and_again(env, simulator))
        env.close()


def test_an_environment_at_the_hub_notices_in_time() -> None:
    with ForkedSimulator(think=THINK) as simulator, LocalDaemon(Endpoint("127.0.0.1", simulator.port)):
        env = gymnasium.make("ospbridge/Agent-v0")
        judge(killed_again_and_again(env, simulator))
        env.close()
