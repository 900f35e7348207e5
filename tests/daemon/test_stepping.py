"""Environments that step through a daemon, in this process and in others, and what becomes of those that are killed."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import AgentTaken, BarrierStuck
from ospbridge.osp.timing import Limits
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, LocalDaemon, await_line, finish, in_thread, seat_of, start, values

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
        Daemon(simulator.address, "--quorum", "2", directory=tmp_path),
    ):
        one, two = start("agent1", 200, 0.25), start("agent2", 200, -0.5)
        for line in ("attached", "playing", "played"):
            await_line(one, line)
            await_line(two, line)
        finish(one)
        finish(two)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["reset"] + 201 * ["step"]
    for record in records[2:]:
        agents = record["agents"]
        assert {name: agents[name]["inputs"] for name in agents} == {"agent1": [0.25], "agent2": [-0.5]}
        assert [len(agents[name]["votes"]) for name in agents] == [1, 1]


def test_a_killed_environment_frees_its_agent_and_holds_up_nobody(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, quorum=2) as daemon, closing(seat_of("agent1")) as seat:
        other = start("agent2", 1_000_000, 0.5)
        await_line(other, "attached")
        seat.reset(1)
        await_line(other, "playing")
        seat.step(values(0.5))
        with pytest.raises(AgentTaken, match=f"pid {other.pid}"):
            seat_of("agent2")
        other.kill()
        other.communicate()
        assert not any(seat.step(values(0.5)).truncated for _ in range(20))
        daemon.wait_until("free", "agent2")
        seat_of("agent2").close()


def test_all_done_agents_reset_together(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, limits=Limits(reset=0.5)), closing(seat_of("agent2")) as two:
        with closing(seat_of("agent1")) as one:
            one.reset(1)
            with pytest.raises(BarrierStuck, match="agent1"):
                in_thread(lambda: two.reset(1))
            assert not one.step(values(0.1)).truncated
        assert two.reset(2).info["osp_seed"] == 2
