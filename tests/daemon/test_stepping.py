"""Environments that step through a daemon, in this process and in others, and what becomes of those that are killed."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import AgentTaken, BarrierStuck
from ospbridge.hub.decoding import VERSION
from ospbridge.hub.requests import Attach, Hello, Reset
from ospbridge.osp.timing import Limits
from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.hubs import Line
from tests.daemon.running import Daemon, LocalDaemon, await_line, finish, in_thread, seat_of, start, values

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


def test_steps_through_the_hub_bring_what_the_simulator_computes(
    simulator: UdpSimulator, profile: Profile
) -> None:
    with LocalDaemon(simulator.address), closing(seat_of("agent1")) as seat:
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


def test_an_environment_that_dies_while_it_waits_for_the_reset_counts_no_more(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, quorum=2) as daemon, closing(seat_of("agent1")) as seat:
        with closing(Line(default_hub())) as dying:
            dying.ask(Hello(VERSION, "line"))
            dying.ask(Attach(["agent2"]))
            dying.say(Reset([], 1))
            daemon.wait_until("waiting for reset", "agent2")
        daemon.wait_until("free", "agent2")
        thread = threading.Thread(target=seat.reset, args=(1,))
        thread.start()
        daemon.wait_until("waiting for reset", "agent1")
        assert daemon.status().resets == 0
        with closing(seat_of("agent2")) as second:
            second.reset(1)
            thread.join(10)
            assert daemon.status().resets == 1


def test_all_done_agents_reset_together(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, limits=Limits(reset=0.5)), closing(seat_of("agent2")) as two:
        with closing(seat_of("agent1")) as one:
            one.reset(1)
            with pytest.raises(BarrierStuck, match="agent1"):
                in_thread(lambda: two.reset(1))
            assert not one.step(values(0.1)).truncated
        assert two.reset(2).info["osp_seed"] == 2
