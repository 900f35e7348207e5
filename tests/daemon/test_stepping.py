"""Environments of several processes step through one daemon, whatever becomes of them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import AgentTaken
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import LocalDaemon, await_lines, player, seat_of, values

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


def test_a_quorum_of_two_processes_steps_in_lock_step_and_every_step_runs_once(
    profile: Profile, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    with (
        Ledger(path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile, ledger=ledger) as simulator,
        LocalDaemon(simulator.address, quorum=2),
        player("agent2", 200, -0.5) as other,
        closing(seat_of("agent1")) as seat,
    ):
        seat.reset(5)
        assert not any(seat.step(np.full(1, 0.25, np.float32)).truncated for _ in range(200))
        await_lines(other, "attached", "playing", "played")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["reset"] + 201 * ["step"]
    for record in records[2:]:
        agents = record["agents"]
        assert {name: agents[name]["inputs"] for name in agents} == {"agent1": [0.25], "agent2": [-0.5]}
        assert [len(agents[name]["votes"]) for name in agents] == [1, 1]


def test_a_killed_environment_frees_its_agent_and_holds_up_nobody(document: UdpSimulator) -> None:
    with (
        LocalDaemon(document.address, quorum=2) as daemon,
        player("agent2", 1_000_000, 0.5) as other,
        closing(seat_of("agent1")) as seat,
    ):
        seat.reset(1)
        await_lines(other, "attached", "playing")
        seat.step(values(0.5))
        with pytest.raises(AgentTaken, match=f"pid {other.pid}"):
            seat_of("agent2")
        other.kill()
        assert not any(seat.step(values(0.5)).truncated for _ in range(20))
        daemon.wait_until("free", "agent2")
        seat_of("agent2").close()
