"""Three processes drive three agents of one simulator, and one of them is killed: what the others and the world see."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
AGENTS = ("agent1", "agent2", "agent3")
DEAD = "agent2"
STEP_TIMEOUT = 30.0
NEUTRAL = [0.0]
WAIT = 60.0
PLAYER = """
import sys, time
from pathlib import Path
import gymnasium, numpy as np, ospbridge
bridge, agent, first, pause_at, pause, directory = sys.argv[1:]
env = gymnasium.make("ospbridge/Agent-v0", bridge=bridge, agent=agent)
env.reset(seed=1)
told = Path(directory, agent).open("w", buffering=1)
for number in range(10_000):
    if number == int(pause_at):
        print("paused", flush=True)
        time.sleep(float(pause))
    value = int(first) + (number + 1) / 16384
    _, _, terminated, truncated, info = env.step(np.full(1, value, np.float32))
    assert not terminated and not truncated, info["reason"]
    print(time.monotonic(), file=told)
    if Path(directory, "stop").exists():
        break
env.close()
"""
FIRST = {"agent1": -1, "agent2": 0, "agent3": 0}
"""What its inputs begin with. No input given is neutral, and no agent gives the same one twice."""


class Players:
    """One process an agent; ``pauses`` says before which step an agent thinks, and for how many seconds."""

    def __init__(self, hub: Path, directory: Path, pauses: dict[str, tuple[int, float]]) -> None:
        self._directory = directory
        self.processes = {
            agent: subprocess.Popen(
                [
                    *(sys.executable, "-c", PLAYER, f"unix:{hub}", agent, str(FIRST[agent])),
                    *(str(value) for value in pauses.get(agent, (-1, 0.0))),
                    str(directory),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for agent in AGENTS
        }

    def stepped_at(self, agent: str) -> list[float]:
        """When each of its steps was over."""
        path = self._directory / agent
        return [float(line) for line in path.read_text().splitlines()] if path.exists() else []

    def await_steps(self, agent: str, count: int) -> None:
        give_up = time.monotonic() + WAIT
        while len(self.stepped_at(agent)) < count:
            assert self.processes[agent].poll() is None, self.processes[agent].communicate()
            assert time.monotonic() < give_up
            time.sleep(0.01)

    def await_pause(self, agent: str) -> None:
        stdout = self.processes[agent].stdout
        assert stdout is not None
        assert stdout.readline() == "paused\n"

    def stop(self, *agents: str) -> None:
        (self._directory / "stop").touch()
        for agent in agents:
            _, said = self.processes[agent].communicate(timeout=WAIT)
            assert self.processes[agent].returncode == 0, said

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@contextmanager
def playing(hub: Path, directory: Path, pauses: dict[str, tuple[int, float]]) -> Iterator[Players]:
    players = Players(hub, directory, pauses)
    try:
        yield players
    finally:
        players.end()


def await_state(hub: Path, agent: str, state: str) -> None:
    client = HubClient.connect(f"unix:{hub}")
    give_up = time.monotonic() + WAIT
    while {a.name: a.state for a in client.status().agents}[agent] != state:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    client.close()


def inputs_of(records: list[dict[str, Any]], agent: str) -> list[list[float]]:
    return [record["agents"][agent]["inputs"] for record in records]


def given(agent: str, count: int) -> list[list[float]]:
    """The first inputs that a player of ``agent`` gives."""
    return [[FIRST[agent] + (number + 1) / 16384] for number in range(count)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", ["while it thinks", "in the barrier", "in the step"])
@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_the_others_go_on_when_one_of_three_is_killed(
    profile: Profile, moment: str, runtime_directory: Path, tmp_path: Path
) -> None:
    hub, path = runtime_directory / "hub", tmp_path / "ledger.jsonl"
    world = SyntheticWorld(1, 1, agents=3, think=0.2 if moment == "in the step" else 0.0)
    pauses = {"while it thinks": {DEAD: (50, 60.0)}, "in the barrier": {"agent1": (50, 1.0)}}
    options = ("--quorum", "3", "--step-timeout", f"{STEP_TIMEOUT:g}")
    survivors = [agent for agent in AGENTS if agent != DEAD]
    with (
        Ledger(path) as ledger,
        UdpSimulator(world, port=0, profile=profile, ledger=ledger) as simulator,
        hosted(simulator.address, hub, *options),
        playing(hub, tmp_path, pauses.get(moment, {})) as players,
    ):
        for agent in pauses.get(moment, {}):
            players.await_pause(agent)
        if moment == "in the step":
            players.await_steps(DEAD, 5)
        # Those who do not pause have acted by then, and wait.
        time.sleep(0.3)
        players.processes[DEAD].kill()
        players.processes[DEAD].wait(WAIT)
        killed = time.monotonic()
        await_state(hub, DEAD, "free")
        before = {agent: len(players.stepped_at(agent)) for agent in survivors}
        for agent in survivors:
            players.await_steps(agent, before[agent] + 10)
        heir = gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}", agent=DEAD)
        players.stop(*survivors)
        heir.reset(seed=2)
        for _ in range(3):
            heir.step(np.full(1, -0.5, np.float32))
        heir.close()
    for agent in survivors:
        moments = players.stepped_at(agent)
        assert next(at for at in moments if at > killed) - killed < STEP_TIMEOUT
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["n"] for record in records if record["kind"] == "step"] == list(range(1, len(records) - 1))
    resets = [number for number, record in enumerate(records) if record["kind"] == "reset"]
    assert len(resets) == 2
    for record in records:
        if record["kind"] == "step":
            assert [len(agent["votes"]) for agent in record["agents"].values()] == [1, 1, 1]
    # After each reset comes one neutral step.
    first, second = records[resets[0] + 2 : resets[1]], records[resets[1] + 2 :]
    for agent in survivors:
        # One who stops rests until the other one stops too.
        count = len(players.stepped_at(agent))
        assert inputs_of(first, agent) == given(agent, count) + [NEUTRAL] * (len(first) - count)
        assert inputs_of(second, agent)[:3] == [NEUTRAL] * 3
    told = len(players.stepped_at(DEAD))
    acted = sum(inputs != NEUTRAL for inputs in inputs_of(first, DEAD))
    # The step that it was killed in has run with its inputs, or with none.
    assert acted in (told, told + 1)
    if moment != "in the step":
        assert acted == told == 50
    assert inputs_of(first, DEAD) == given(DEAD, acted) + [NEUTRAL] * (len(first) - acted)
    assert len(first) > acted + 5
    assert inputs_of(second, DEAD) == [[-0.5]] * 3
