"""Daemons and environments of other processes: step by step together, told to leave, and killed in mid-step."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ospbridge.errors import AgentTaken, HubLost
from ospbridge.observe.runtime import default_hub
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import (
    Daemon,
    LocalDaemon,
    all_free,
    at_once,
    await_lines,
    player,
    seat_of,
    until,
    values,
)

pytestmark = pytest.mark.loopback


def waiting(call: Callable[[], object]) -> Future[object]:
    """Who waits in a thread, to be told that the daemon is lost."""
    return ThreadPoolExecutor(1).submit(call)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_told_to_stop_the_agents_are_free_within_three_seconds(simulator: UdpSimulator, number: int) -> None:
    """And every environment is told: who waits for the others' step, who acts next, and who looks on."""
    with LocalDaemon(simulator.address, quorum=2) as daemon:
        one, other = seat_of("agent1"), seat_of("agent2")
        observer = HubClient.connect().observe("agent1")
        at_once(lambda: one.reset(1), lambda: other.reset(1))
        waits = waiting(lambda: one.step(values(0.5)))
        looks_on = waiting(lambda: [None for _ in observer])
        until(lambda: daemon.conductor.barrier._left)
        assert daemon.end(number) == 0
        assert all_free(simulator)
        assert not default_hub().exists()
        assert list(default_hub().parent.glob("leases/*")) == []
        assert isinstance(waits.exception(10), HubLost)
        assert isinstance(looks_on.exception(10), HubLost)
        with pytest.raises(HubLost):
            other.step(values(0.5))
        for each in (one, other):
            each.close()


def test_killed_in_mid_step_the_next_daemon_has_all_agents_within_two_seconds(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(simulator.address, directory=tmp_path) as killed:
        seat = seat_of("agent1")
        seat.reset(1)

        def steps() -> None:
            while True:
                seat.step(values(0.5))

        waits = waiting(steps)
        until(lambda: killed.status().steps > 10)
        killed.kill()
        assert isinstance(waits.exception(10), HubLost)
        seat.close()
    with LocalDaemon(simulator.address, agents=("agent1",)) as second:
        (joined,) = second.lines("joined")
        assert joined["agents"] == ["agent1"]
        with BlockingSession.connect(str(simulator.address)) as other, closing(seat_of("agent1")) as seat:
            other.register("agent2")
            at_once(lambda: seat.reset(3), lambda: (other.reset(3), other.step({"agent2": values(0.0)})))
            at_once(lambda: seat.step(values(0.5)), lambda: other.step({"agent2": values(0.25)}))
            assert second.status().steps == 2


# --- environments of several processes --------------------------------------------------------------------------------


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
