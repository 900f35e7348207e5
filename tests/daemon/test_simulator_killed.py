"""A simulator that is killed and started again while an environment plays, directly and at the hub: twenty times.

Without `--whole`, four of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.interface import Endpoint
from tests.daemon.forked import ForkedSimulator
from tests.daemon.running import WITHIN, LocalDaemon, all_free, descriptors

pytestmark = pytest.mark.loopback
ROUNDS = 20
THINK = 0.02
"""Seconds that a step takes, so that a simulator can be killed in one."""
AWAY = (0.15, 0.0, 0.3, 0.05)
"""Seconds for which the simulator stays away, in turn."""


@dataclass
class Seen:
    """Seconds, a round each."""

    noticed: list[float] = field(default_factory=list)
    noticed_in_step: list[float] = field(default_factory=list)
    rebuilt: list[float] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    """Descriptors of this process, which has the session."""


def act(env: gymnasium.Env[Any, Any]) -> str:
    """The reason that ended the episode; empty where none did."""
    _, reward, terminated, truncated, info = env.step(np.full(2, 0.25, np.float32))
    assert not terminated
    assert truncated == bool(info["reason"])
    assert not truncated or reward == 0.0
    return str(info["reason"])


def killed_again_and_again(
    env: gymnasium.Env[Any, Any], simulator: ForkedSimulator, rounds: Iterable[int] = range(ROUNDS)
) -> Seen:
    """Even rounds kill it between two steps, odd ones in a step."""
    seen = Seen()
    env.reset(seed=1)
    for number in rounds:
        assert not any(act(env) for _ in range(3))
        killer = threading.Timer(THINK / 2 if number % 2 else 0.0, simulator.kill)
        killer.start()
        if not number % 2:
            killer.join(10)
        begun = time.monotonic()
        if not (reason := act(env)):  # the timer was late, and the step over before
            reason = act(env)
        noticed = time.monotonic()
        killer.join(10)
        if number % 2:
            seen.noticed_in_step.append(noticed - simulator.killed_at)
        else:
            seen.noticed.append(noticed - begun)
        assert "connection refused" in reason
        returned = threading.Timer(AWAY[number % len(AWAY)], simulator.start)
        returned.start()
        env.reset(seed=number + 2)
        rebuilt = time.monotonic()
        returned.join(10)
        seen.rebuilt.append(rebuilt - simulator.started_at)
        seen.open.append(descriptors())
    assert not act(env)
    env.close()
    return seen


@pytest.fixture
def rounds(sample: Callable[..., list[int]]) -> list[int]:
    """Of both kinds equally many."""
    return sorted(sample(range(0, ROUNDS, 2), 2) + sample(range(1, ROUNDS, 2), 2))


@pytest.fixture
def simulator() -> Iterator[ForkedSimulator]:
    with ForkedSimulator(think=THINK) as running:
        yield running
        assert all_free(running)


def judge(seen: Seen) -> None:
    assert max(*seen.noticed, *seen.noticed_in_step, *seen.rebuilt) < WITHIN
    assert max(seen.open[2:]) <= min(seen.open[2:]), seen


def test_a_direct_environment_survives_twenty_deaths_of_its_simulator(
    simulator: ForkedSimulator, rounds: list[int]
) -> None:
    env = gymnasium.make("ospbridge/Agent-v0", simulator=simulator.address)
    judge(killed_again_and_again(env, simulator, rounds))


def test_an_environment_at_the_hub_survives_twenty_deaths_of_its_simulator(
    simulator: ForkedSimulator, rounds: list[int]
) -> None:
    with LocalDaemon(Endpoint("127.0.0.1", simulator.port)) as daemon:
        judge(killed_again_and_again(gymnasium.make("ospbridge/Agent-v0"), simulator, rounds))
        assert daemon.status().rebuilds == len(rounds)
