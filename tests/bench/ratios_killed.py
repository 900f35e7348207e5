"""How soon a simulator that is killed is noticed, and one that is back is joined, beside the silence that would be
waited for otherwise: medians of many deaths. docs/explanation/faults.md names them."""

from __future__ import annotations

import statistics

import gymnasium
import pytest

from ospbridge.interface import Endpoint
from ospbridge.osp.timing import SILENCE
from tests.daemon.forked import ForkedSimulator
from tests.daemon.running import LocalDaemon
from tests.daemon.test_simulator_killed import THINK, Seen, killed_again_and_again

pytestmark = pytest.mark.loopback
NOTICED, NOTICED_IN_STEP, REBUILT = 0.4, 1.6, 8.0
"""In silences."""


def judge(seen: Seen) -> None:
    assert statistics.median(seen.noticed) / SILENCE < NOTICED, seen
    assert statistics.median(seen.noticed_in_step) / SILENCE < NOTICED_IN_STEP, seen
    assert statistics.median(seen.rebuilt) / SILENCE < REBUILT, seen


def test_a_direct_environment_notices_in_time() -> None:
    with ForkedSimulator(think=THINK) as simulator:
        env = gymnasium.make("ospbridge/Agent-v0", simulator=simulator.address)
        judge(killed_again_and_again(env, simulator))


def test_an_environment_at_the_hub_notices_in_time() -> None:
    with ForkedSimulator(think=THINK) as simulator, LocalDaemon(Endpoint("127.0.0.1", simulator.port)):
        env = gymnasium.make("ospbridge/Agent-v0")
        judge(killed_again_and_again(env, simulator))
