"""A network that swallows everything for two seconds, again and again: what environments lose by that, and what not.

`.ci/long blackhole` has a hole of 2 s in every 7 s for a minute, by the environment variable HOLES.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.holes import HoledNetwork, holes
from tests.daemon.running import LocalDaemon, all_free, until

if TYPE_CHECKING:
    from pathlib import Path

assert ospbridge.__version__
HOLES = int(os.environ.get("HOLES", "1"))
"""Without a minute to spare: one."""
HOLE = 2.0
LONG = HOLES > 2
"""Whether it is the long check, which has the machine for itself."""
BETWEEN = 5.0 if LONG else 0.3
RECOVERED = 3.0
BUSY = 1.0 if LONG else 20.0
"""Seconds that a busy machine may add."""
pytestmark = [pytest.mark.loopback, pytest.mark.timeout(60 + 10 * HOLES)]


class Player:
    """Steps as fast as it can, each step with inputs of its own."""

    def __init__(self, env: gymnasium.Env[Any, Any], first: float) -> None:
        self.env = env
        self.moments: list[float] = []
        """When each step was told."""
        self.told: list[tuple[float, float]] = []
        """What was given and what came back, of each step that was told as it ran."""
        self.reasons: list[str] = []
        self.errors: list[BaseException] = []
        self._first = first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.env.reset(seed=1)
            for number in itertools.count():
                if self._stop.is_set():
                    break
                given = self._first + (number % 8192) / 16384
                observation, _, _, truncated, info = self.env.step(np.full(1, given, np.float32))
                self.moments.append(time.monotonic())
                if truncated:
                    self.reasons.append(info["reason"])
                    self.env.reset(seed=1)
                else:
                    self.told.append((given, float(observation[0])))
        except BaseException as error:
            self.errors.append(error)
            raise

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def longest_silence_after(self, end: float) -> float:
        """Until the first step that was told behind ``end``."""
        return next(moment for moment in self.moments if moment > end) - end


def through_holes(network: HoledNetwork, player: Player) -> list[float]:
    """When each hole was over."""
    until(lambda: player.moments or player.errors)
    ends = holes(network, HOLES, seconds=HOLE, between=BETWEEN)
    until(lambda: player.errors or player.moments[-1] > ends[-1])
    return ends


def judge(player: Player, ends: list[float], records: list[dict[str, Any]]) -> None:
    assert not player.errors
    assert max(map(player.longest_silence_after, ends)) < RECOVERED + BUSY
    # What was told ran once, with the inputs that were given, in the order in which they were.
    steps = [record for record in records if record["kind"] == "step"]
    assert [record["n"] for record in steps] == list(range(1, len(steps) + 1))
    ran = iter([record["agents"]["agent"]["inputs"][0] for record in steps])
    for given, _ in player.told:
        assert given in ran
    given_in_all = len(player.told) + len(player.reasons)
    neutral = sum(record["kind"] == "reset" for record in records)
    assert len(steps) - neutral in range(len(player.told), given_in_all + 1), player.reasons


@pytest.mark.parametrize("where", ["direct", "hub"])
def test_holes_of_two_seconds_cost_no_step_and_are_over_within_three(where: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with (
        Ledger(path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT, ledger=ledger) as simulator,
        HoledNetwork(simulator.address) as network,
    ):
        if where == "direct":
            env = gymnasium.make("ospbridge/Agent-v0", simulator=network.address)
            with Player(env, 0.25) as player:
                ends = through_holes(network, player)
            env.close()
        else:
            host, _, port = network.address.partition(":")
            with LocalDaemon(Endpoint(host, int(port))):
                env = gymnasium.make("ospbridge/Agent-v0")
                with Player(env, 0.25) as player:
                    ends = through_holes(network, player)
                env.close()
        assert network.swallowed
        assert all_free(simulator)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    judge(player, ends, records)
