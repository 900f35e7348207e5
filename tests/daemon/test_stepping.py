"""Environments that step through a daemon, against the real simulator."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import AgentTaken, BarrierStuck
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, await_line, finish, in_thread, seat_of, start, values

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


def test_steps_through_the_hub_bring_what_the_simulator_computes(
    simulator: UdpSimulator, profile: Profile, tmp_path: Path
) -> None:
    with Daemon(simulator.address, directory=tmp_path):
        seat = seat_of("agent1")
        assert (len(seat.interface.inputs), len(seat.interface.outputs)) == (2, 3)
        assert seat.outputs_normalised is profile.outputs_normalised
        feedback = seat.reset(7)
        assert feedback.info["osp_seed"] == 7
        for number in range(1, 50):
            feedback = seat.step(values(number / 64))
            wanted = expected(values(number / 64), number + 1, 3, 7)
            np.testing.assert_array_equal(feedback.observation, wanted)
            assert feedback.observation.dtype == np.float32
            assert feedback.observation.flags.writeable
        seat.close()
    assert set(feedback.info) == {"osp_seed", "infos", "events", "values", "restored", "reason"}


def test_a_quorum_of_two_processes_steps_in_lock_step_and_every_step_runs_once(
    profile: Profile, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    with (
        Ledger(path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile, ledger=ledger) as simulator,
        Daemon(simulator.address, "--quorum", "2", directory=tmp_path),
    ):
        one, two = start("agent1", 300, 0.25), start("agent2", 300, -0.5)
        for line in ("attached", "playing", "played"):
            await_line(one, line)
            await_line(two, line)
        finish(one)
        finish(two)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["reset"] + 301 * ["step"]
    for record in records[2:]:
        agents = record["agents"]
        assert {name: agents[name]["inputs"] for name in agents} == {"agent1": [0.25], "agent2": [-0.5]}
        assert [len(agents[name]["votes"]) for name in agents] == [1, 1]


def test_a_killed_environment_frees_its_agent_and_holds_up_nobody(
    document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, "--quorum", "2", directory=tmp_path) as daemon:
        other = start("agent2", 1_000_000, 0.5)
        await_line(other, "attached")
        seat = seat_of("agent1")
        seat.reset(1)
        await_line(other, "playing")
        seat.step(values(0.5))
        with pytest.raises(AgentTaken, match=f"pid {other.pid}"):
            seat_of("agent2")
        other.kill()
        other.communicate()
        begun = time.monotonic()
        for _ in range(20):
            assert not seat.step(values(0.5)).truncated
        assert time.monotonic() - begun < 10
        daemon.wait_until("free", "agent2")
        seat_of("agent2").close()
        seat.close()


def test_an_environment_killed_while_it_waits_for_the_reset_counts_no_more(
    document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, "--quorum", "2", directory=tmp_path) as daemon:
        other = start("agent2", 1, 0.5)
        await_line(other, "attached")
        daemon.wait_until("waiting for reset", "agent2")
        other.kill()
        other.communicate()
        daemon.wait_until("free", "agent2")
        seat = seat_of("agent1")
        thread = threading.Thread(target=seat.reset, args=(1,))
        thread.start()
        daemon.wait_until("waiting for reset", "agent1")
        assert daemon.status().resets == 0
        second = seat_of("agent2")
        second.reset(1)
        thread.join(10)
        assert daemon.status().resets == 1
        for each in (seat, second):
            each.close()


def test_all_done_agents_reset_together(document: UdpSimulator, tmp_path: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as simulator,
        Daemon(simulator.address, "--reset-timeout", "1", directory=tmp_path),
    ):
        one, two = seat_of("agent1"), seat_of("agent2")
        one.reset(1)
        with pytest.raises(BarrierStuck, match="agent1"):
            in_thread(lambda: two.reset(1))
        assert not one.step(values(0.1)).truncated
        one.close()
        assert two.reset(2).info["osp_seed"] == 2
        two.close()
