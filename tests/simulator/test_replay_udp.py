"""Recorded simulators on real sockets: environments and sessions join them as they would join the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import ospbridge  # noqa: F401  # registers the environments
from ospbridge.interface import Endpoint
from ospbridge.observe.trace import read_trace
from ospbridge.osp import step, timing
from ospbridge.osp.profile import PROFILES
from ospbridge.session import blocking, core
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.replay_script import read_scripts
from ospbridge.simulator.replaying import ReplayMachine, Told, What
from ospbridge.simulator.udp import UdpServer, UdpSimulator

pytestmark = pytest.mark.loopback

RECORDINGS = Path(__file__).parents[1] / "osp" / "traces"


@contextmanager
def replaying(
    trace: Path, *, speed: float | None = None, loop: bool = False
) -> Iterator[tuple[Endpoint, ReplayMachine, list[Told]]]:
    told: list[Told] = []
    machine = ReplayMachine(read_scripts(read_trace(trace)), tell=told.append, speed=speed, loop=loop)
    with UdpServer(machine, port=0) as server:
        yield server.address, machine, told


def play(simulator: Endpoint, trace: Path | None = None, *, episodes: int = 2) -> list[NDArray[np.float32]]:
    """What an environment saw of seeded episodes with seeded actions."""
    env = gymnasium.make("ospbridge/Agent-v0", simulator=str(simulator), agent="cart", trace=trace)
    env.action_space.seed(5)
    seen = []
    try:
        for episode in range(episodes):
            observation, _ = env.reset(seed=episode + 1)
            seen.append(observation)
            ended = False
            while not ended:
                observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
                seen.append(np.append(observation, np.float32(reward)))
                ended = terminated or truncated
    finally:
        env.close()
    return seen


def differing(told: list[Told]) -> list[str]:
    return [each.text for each in told if each.what is What.DIFFERS]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a client takes a pause for silence now and then, and what it asks then differs each time."""
    for module in (timing, step, core, blocking):
        monkeypatch.setattr(module, "SILENCE", 10.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("profile, speed", [("document", None), ("nerd", 1.0)])
def test_the_same_environment_sees_the_same_again(tmp_path: Path, profile: str, speed: float | None) -> None:
    trace = tmp_path / "trace.jsonl"
    with UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=PROFILES[profile]) as simulator:
        seen = play(simulator.address, trace)
    with replaying(trace, speed=speed) as (address, machine, told):
        again = play(address, tmp_path / "again.jsonl")
        assert differing(told) == []
        assert (machine.steps, machine.resets) == (len(seen), 2)
    assert [one.tobytes() for one in again] == [one.tobytes() for one in seen]
