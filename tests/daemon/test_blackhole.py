"""A network that swallows everything for two seconds, again and again: what environments lose by that, and what not.

`.ci/long blackhole` has a hole of 2 s in every 7 s for a minute, by the environment variable HOLES.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.holes import HoledNetwork
from tests.daemon.running import LocalDaemon, all_free, until

HOLES = int(os.environ.get("HOLES", "1"))
"""Without a minute to spare: one."""
LONG = HOLES > 2
"""Whether it is the long check, which has the machine for itself."""
BETWEEN = 5.0 if LONG else 0.3
RECOVERED = 3.0 + (1.0 if LONG else 20.0)
"""Seconds, with those that a busy machine may add."""
pytestmark = [pytest.mark.loopback, pytest.mark.timeout(60 + 10 * HOLES)]


class Player(threading.Thread):
    """Steps as fast as it can, each step with an input of its own."""

    def __init__(self, **where: Any) -> None:
        super().__init__()
        self.env = gymnasium.make("ospbridge/Agent-v0", **where)
        self.moments: list[float] = []
        """When each step was told."""
        self.told: list[float] = []
        """What was given, of each step that was told as it ran."""
        self.reasons: list[str] = []
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        self.env.reset(seed=1)
        for number in itertools.count():
            if self.over.is_set():
                break
            given = 0.25 + (number % 8192) / 16384
            *_, truncated, info = self.env.step(np.full(1, given, np.float32))
            self.moments.append(time.monotonic())
            if truncated:
                self.reasons.append(info["reason"])
                self.env.reset(seed=1)
            else:
                self.told.append(given)
        self.env.close()


@pytest.mark.parametrize("where", ["direct", "hub"])
def test_holes_of_two_seconds_cost_no_step_and_are_over_within_three(where: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with (
        Ledger(path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT, ledger=ledger) as simulator,
        HoledNetwork(simulator.address) as network,
        ExitStack() as stack,
    ):
        if where == "hub":
            host, _, port = network.address.partition(":")
            stack.enter_context(LocalDaemon(Endpoint(host, int(port))))
        player = Player(**({"simulator": network.address} if where == "direct" else {}))
        until(lambda: player.moments)
        ends = []
        for _ in range(HOLES):
            time.sleep(BETWEEN)
            ends.append(network.hole(2.0))
        until(lambda: player.moments[-1] > ends[-1])
        time.sleep(BETWEEN)
        player.over.set()
        player.join(30)
        assert not player.is_alive()
        stack.close()
        assert network.swallowed
        assert all_free(simulator)
    for end in ends:
        assert next(moment for moment in player.moments if moment > end) - end < RECOVERED
    # What was told ran once, with the inputs that were given, in the order in which they were.
    records = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step"]
    assert [record["n"] for record in steps] == list(range(1, len(steps) + 1))
    ran = iter([record["agents"]["agent"]["inputs"][0] for record in steps])
    assert all(given in ran for given in player.told)
    neutral = sum(record["kind"] == "reset" for record in records)
    most = len(player.told) + len(player.reasons)
    assert len(steps) - neutral in range(len(player.told), most + 1), player.reasons
