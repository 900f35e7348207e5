"""A simulator that is killed and started again twenty times while an environment plays, directly and at the hub."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.session.blocking import BlockingSession
from tests.daemon.forked import ForkedSimulator
from tests.daemon.processes import descriptors
from tests.daemon.running import Daemon

if TYPE_CHECKING:
    from pathlib import Path

assert ospbridge.__version__
pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.timeout(120)]
ROUNDS = 20
THINK = 0.02
"""Seconds that a step takes, so that a simulator can be killed in one."""
AWAY = (0.15, 0.0, 0.3, 0.05)
"""Seconds for which the simulator stays away, in turn."""
NOTICED = 0.1
NOTICED_IN_STEP = 0.4
REBUILT = 2.0


@dataclass
class Seen:
    """Seconds, a round each."""

    noticed: list[float] = field(default_factory=list)
    noticed_in_step: list[float] = field(default_factory=list)
    rebuilt: list[float] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    """Descriptors of whoever has the session."""


def act(env: gymnasium.Env[Any, Any]) -> str:
    """The reason that ended the episode; empty where none did."""
    _, reward, terminated, truncated, info = env.step(np.full(2, 0.25, np.float32))
    assert not terminated
    assert truncated == bool(info["reason"])
    assert not truncated or reward == 0.0
    return str(info["reason"])


def killed_again_and_again(env: gymnasium.Env[Any, Any], simulator: ForkedSimulator, pid: int | str) -> Seen:
    seen = Seen()
    env.reset(seed=1)
    for number in range(ROUNDS):
        for _ in range(5):
            assert not act(env)
        if number % 2:
            killer = threading.Timer(THINK / 2, simulator.kill)
            killer.start()
            reason = act(env)
            noticed = time.monotonic()
            killer.join(10)
            if not reason:  # the timer was late, and the step over before
                reason, noticed = act(env), time.monotonic()
            seen.noticed_in_step.append(noticed - simulator.killed_at)
        else:
            simulator.kill()
            begun = time.monotonic()
            reason = act(env)
            seen.noticed.append(time.monotonic() - begun)
        assert "connection refused" in reason
        returned = threading.Timer(AWAY[number % len(AWAY)], simulator.start)
        returned.start()
        env.reset(seed=number + 2)
        rebuilt = time.monotonic()
        returned.join(10)
        seen.rebuilt.append(rebuilt - simulator.started_at)
        seen.open.append(descriptors(pid))
    assert not act(env)
    return seen


def judge(seen: Seen) -> None:
    # Of a busy machine some rounds may be late, but not most.
    assert statistics.median(seen.noticed) < NOTICED, seen
    assert statistics.median(seen.noticed_in_step) < NOTICED_IN_STEP, seen
    assert sorted(seen.rebuilt)[ROUNDS * 9 // 10] < REBUILT, seen
    assert max(seen.open[2:]) <= min(seen.open[2:]), seen


def all_free(simulator: ForkedSimulator) -> bool:
    with BlockingSession.connect(simulator.address, reclaim_stale=False) as session:
        return all(entry.available for entry in session.agents())


def test_a_direct_environment_survives_twenty_deaths_of_its_simulator() -> None:
    with ForkedSimulator(think=THINK) as simulator:
        env = gymnasium.make("ospbridge/Agent-v0", simulator=simulator.address)
        seen = killed_again_and_again(env, simulator, "self")
        env.close()
        assert all_free(simulator)
    judge(seen)


def test_an_environment_at_the_hub_survives_twenty_deaths_of_its_simulator(tmp_path: Path) -> None:
    with ForkedSimulator(think=THINK) as simulator, Daemon(simulator.address, directory=tmp_path) as daemon:
        env = gymnasium.make("ospbridge/Agent-v0")
        seen = killed_again_and_again(env, simulator, daemon.process.pid)
        assert daemon.status().rebuilds == ROUNDS
        env.close()
        assert daemon.end() == 0
        assert all_free(simulator)
    judge(seen)
