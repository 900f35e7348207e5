"""A daemon that starts before its simulator has the agents waits for them, says so, and ends when told to."""

from __future__ import annotations

import json
import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import AgentNotFound, AgentTaken, SimulatorNotFound
from ospbridge.interface import Match
from ospbridge.session.blocking import BlockingSession
from tests.daemon.running import LocalDaemon, run_here, seat_of, until, values

if TYPE_CHECKING:
    from click.testing import Result

    from ospbridge.hub.status import StatusReply
    from ospbridge.simulator.udp import UdpSimulator

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("impatient")]


def awaiting(daemon: LocalDaemon, words: str) -> StatusReply:
    """The daemon's status, once it waits for that."""
    until(lambda: words in daemon.conductor.connection, lambda: daemon.conductor.connection)
    return daemon.status()


def test_a_simulator_without_a_scene_is_joined_once_it_has_one(simulator: UdpSimulator) -> None:
    scene, simulator.machine.controls = simulator.machine.controls, []
    with LocalDaemon(simulator.address, ready=False) as daemon:
        found = awaiting(daemon, "waiting for agents")
        assert not found.ready
        assert "no agents at all" in found.connection
        assert "scene" in found.hint
        simulator.machine.controls = scene
        assert [agent.name for agent in daemon.wait_ready().agents] == ["agent1", "agent2"]
        assert daemon.status().hint == ""
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            assert not seat.step(values(0.5)).truncated
        (said,) = daemon.lines("waiting for agents")
        assert (said["level"], said["simulator"]) == ("warning", str(simulator.address))


def test_a_named_agent_that_is_not_there_is_waited_for_and_told_with_what_is(document: UdpSimulator) -> None:
    scene = document.machine.controls
    document.machine.controls = scene[1:]
    with LocalDaemon(document.address, ready=False, agents=("agent1",), wait=3600.0) as daemon:
        awaiting(daemon, "no agent 'agent1'; it offers agent2")
        shown = run_here("status")
        assert shown.exit_code == 69
        assert "waiting for agents" in shown.stdout
        assert "did you mean 'agent2'?" in shown.stderr
        (said,) = daemon.lines("waiting for agents")
        assert "it offers agent2" in said["reason"]
        with pytest.raises(SimulatorNotFound, match=r"offers agent2.*did you mean"):
            seat_of("agent1", wait=0.0)
        document.machine.controls = scene
        assert [agent.name for agent in daemon.wait_ready().agents] == ["agent1"]


@pytest.mark.parametrize("changes", [{}, {"agents": ("agent1",)}, {"quorum": 2}], ids=str)
def test_agents_that_other_clients_control_are_taken_once_they_are_free(
    simulator: UdpSimulator, changes: dict[str, Any]
) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1", "agent2")
        with LocalDaemon(simulator.address, ready=False, wait=3600.0, **changes) as daemon:
            found = awaiting(daemon, "waiting for agents")
            assert "agent1" in found.connection
            assert "restart-communication" in found.hint
            assert other.controlled == ("agent1", "agent2")
            other.close()
            assert "agent1" in [agent.name for agent in daemon.wait_ready().agents]


def test_status_waits_until_the_agents_are_ready(document: UdpSimulator) -> None:
    found: list[Result] = []
    waiting = threading.Thread(target=lambda: found.append(run_here("status", "--wait", "20", "--json")))
    waiting.start()
    with LocalDaemon(document.address):
        waiting.join(30)
        (done,) = found
        assert done.exit_code == 0
        status = json.loads(done.stdout)
        assert [agent.pop("name") for agent in status["agents"]] == ["agent1", "agent2"]
        expected = {
            "ready": True,
            "simulator": str(document.address),
            "profile": "document",
            "connection": "joined",
            "pid": os.getpid(),
            "recording": None,
        }
        assert expected.items() <= status.items()
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            done = run_here("status")
        assert done.exit_code == 0
        assert f"(pid {os.getpid()})" in done.stdout
        assert "agent2  free" in done.stdout
        assert "recording" not in done.stdout


@pytest.mark.parametrize("options", [(), ("--wait", "0")], ids=["unsaid", "one_try"])
def test_agents_that_do_not_exist_or_are_taken_are_an_error_at_once_unless_they_are_to_be_waited_for(
    document: UdpSimulator, options: tuple[str, ...]
) -> None:
    once = ("connect", "--simulator", str(document.address), *options)
    done = run_here(*once, "--agent", "agnet1")
    assert done.exit_code == AgentNotFound.exit_code == 2
    assert "it offers agent1, agent2" in done.stderr
    assert "Hint: did you mean 'agent1'?" in done.stderr
    with BlockingSession.connect(document.address) as other:
        other.register("agent1", "agent2")
        done = run_here(*once)
        assert done.exit_code == AgentTaken.exit_code == 69
        assert "controlled by another client" in done.stderr


def test_a_scenario_that_is_for_none_of_the_agents_is_told(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, meant=(Match(name="agnt*"),)) as daemon:
        (line,) = daemon.lines("the scenario matches no agent")
    assert (line["matches"], line["agents"]) == (["'agnt*'"], ["agent1", "agent2"])
