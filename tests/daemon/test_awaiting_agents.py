"""A daemon that starts before its simulator has the agents waits for them, says so, and ends when told to."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon import joining
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.settings import Settings
from ospbridge.errors import AgentNotFound, AgentTaken, ConfigurationError, OspBridgeError, SimulatorNotFound
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, all_free, free_port, run_program, seat_of, values

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.hub.status import StatusReply
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.server.agent import AgentControl

pytestmark = pytest.mark.loopback
WITHIN = 20.0
WAITS = ("--wait", "3600")


def unload(simulator: UdpSimulator) -> list[AgentControl]:
    """The simulator has no scene; what it had, to be loaded again."""
    controls, simulator.machine.controls = simulator.machine.controls, []
    return controls


def awaiting(daemon: Daemon, words: str) -> StatusReply:
    """The daemon's status, once it waits for that."""
    give_up = time.monotonic() + WITHIN
    while words not in (found := daemon.status()).connection:
        assert time.monotonic() < give_up, found
        time.sleep(0.02)
    return found


# --- each way of start ---------------------------------------------------------------------------------------------


def test_a_simulator_without_a_scene_is_joined_once_it_has_one(profile: Profile, tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=profile) as simulator:
        scene = unload(simulator)
        with Daemon(simulator.address, directory=tmp_path, wait=False) as daemon:
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
            assert said["level"] == "warning"
            assert said["simulator"] == str(simulator.address)
            assert daemon.end() == 0


def test_a_named_agent_that_is_not_there_is_waited_for_and_told_with_what_is(
    profile: Profile, tmp_path: Path
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=profile) as simulator:
        scene = unload(simulator)
        simulator.machine.controls = scene[1:]
        with Daemon(simulator.address, "--agent", "agent1", *WAITS, directory=tmp_path, wait=False) as daemon:
            awaiting(daemon, "no agent 'agent1'; it offers agent2")
            shown = run_program("status")
            assert shown.returncode == 69
            assert "waiting for agents" in shown.stdout
            assert "did you mean 'agent2'?" in shown.stderr
            (said,) = daemon.lines("waiting for agents")
            assert "it offers agent2" in said["reason"]
            assert "did you mean 'agent2'?" in said["hint"]
            with pytest.raises(SimulatorNotFound, match=r"offers agent2.*did you mean"):
                seat_of("agent1", wait=0.0)
            simulator.machine.controls = scene
            assert [agent.name for agent in daemon.wait_ready().agents] == ["agent1"]
            assert daemon.end() == 0


@pytest.mark.parametrize("options", [(), ("--agent", "agent1")], ids=["any", "named"])
def test_agents_that_other_clients_control_are_taken_once_they_are_free(
    simulator: UdpSimulator, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1", "agent2")
        with Daemon(simulator.address, *options, *WAITS, directory=tmp_path, wait=False) as daemon:
            found = awaiting(daemon, "waiting for agents")
            assert "agent1" in found.connection
            assert "restart-communication" in found.hint
            assert other.controlled == ("agent1", "agent2")
            other.close()
            assert "agent1" in [agent.name for agent in daemon.wait_ready().agents]
            assert daemon.end() == 0


def test_a_simulator_that_goes_away_while_its_agents_are_awaited_is_waited_for_too(tmp_path: Path) -> None:
    port = free_port()
    with UdpSimulator(SyntheticWorld(2, 3), port=port) as simulator:
        unload(simulator)
        daemon = Daemon(simulator.address, directory=tmp_path, wait=False)
        with daemon:
            awaiting(daemon, "waiting for agents")
            simulator.close()
            awaiting(daemon, "waiting for the simulator")
            with UdpSimulator(SyntheticWorld(2, 3), port=port):
                assert daemon.wait_ready().rebuilds == 0
                assert daemon.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_it_waits_for_agents_it_stops(
    simulator: UdpSimulator, tmp_path: Path, number: int
) -> None:
    with Daemon(simulator.address, "--agent", "nobody", *WAITS, directory=tmp_path, wait=False) as daemon:
        awaiting(daemon, "waiting for agents")
        assert daemon.end(number) == 0
        assert "Traceback" not in daemon.log.read_text()
    assert all_free(simulator)


# --- what is not waited for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--wait", "0")], ids=["unsaid", "one_try"])
def test_agents_that_do_not_exist_or_are_taken_are_an_error_at_once_unless_they_are_to_be_waited_for(
    simulator: UdpSimulator, options: tuple[str, ...]
) -> None:
    once = ("--simulator", str(simulator.address), *options)
    done = run_program("connect", *once, "--agent", "agnet1")
    assert done.returncode == AgentNotFound.exit_code
    assert "it offers agent1, agent2" in done.stderr
    assert "Hint: did you mean 'agent1'?" in done.stderr
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1", "agent2")
        done = run_program("connect", *once)
        assert done.returncode == AgentTaken.exit_code
        assert "controlled by other clients" in done.stderr


def test_a_simulator_without_agents_is_an_error_where_one_try_is_asked_for(simulator: UdpSimulator) -> None:
    unload(simulator)
    done = run_program("connect", "--simulator", str(simulator.address), "--wait", "0")
    assert done.returncode == AgentNotFound.exit_code
    assert "no agents at all" in done.stderr


async def first_error(simulator: UdpSimulator, **settings: object) -> OspBridgeError:
    """What ends the conductor."""
    conductor = Conductor(Settings(hub=Path("hub"), simulator=simulator.address, **settings))  # type: ignore[arg-type]
    with trio.fail_after(WITHIN):
        try:
            await conductor.run()
        except OspBridgeError as error:
            return error
    raise AssertionError("it ended")


@pytest.mark.trio
async def test_a_quorum_that_needs_more_agents_than_there_are_is_an_error_also_with_some_of_them_taken(
    simulator: UdpSimulator,
) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1")
        error = await first_error(simulator, quorum=3)
        assert isinstance(error, ConfigurationError)
        assert "can never be met: 2 agents" in error.message
        error = await first_error(simulator, agents=("agent2",), quorum=2, wait=0.0)
        assert isinstance(error, ConfigurationError)


@pytest.mark.trio
async def test_a_quorum_waits_for_agents_that_others_control(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1")
        error = await first_error(simulator, quorum=2, wait=0.0)
        assert isinstance(error, AgentTaken)
        assert error.agents == ("agent1",)
        conductor = Conductor(Settings(hub=Path("hub"), simulator=simulator.address, quorum=2, wait=60.0))
        with trio.fail_after(WITHIN):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(conductor.run)
                await until(lambda: "waiting for agents: a quorum of 2" in conductor.connection)
                other.close()
                await until(lambda: conductor.ready)
                assert sorted(conductor.lockstep.held) == ["agent1", "agent2"]
                nursery.cancel_scope.cancel()


# --- by force ------------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_nobody_is_disconnected_by_force_before_all_wanted_agents_are_there(
    simulator: UdpSimulator,
) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1")
        error = await first_error(simulator, agents=("agent1", "agent9"), force_restart=True, wait=0.0)
        assert isinstance(error, AgentTaken)
        other.agents()
        assert other.controlled == ("agent1",)


@pytest.mark.trio
async def test_a_restart_that_is_not_allowed_so_soon_is_said_once(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.daemon.forcing.RESTARTS", 0)
    monkeypatch.setattr(joining, "LONGEST_PAUSE_FOR_AGENTS", 0.02)
    with BlockingSession.connect(document.address) as other, capture_logs() as logs:
        other.register("agent1")
        error = await first_error(document, agents=("agent1",), force_restart=True, wait=0.5)
        assert isinstance(error, AgentTaken)
        other.agents()
    assert sum(line["event"] == "the communication is not restarted again so soon" for line in logs) == 1


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.005)


# --- a scenario of others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("match, told", [("agnt*", True), ("agent1", False)])
def test_a_scenario_that_is_for_none_of_the_agents_is_told(match: str, told: bool, tmp_path: Path) -> None:
    scenario = tmp_path / "mine.toml"
    scenario.write_text(f'name = "mine"\n[[agent]]\nmatch = {{ name = "{match}" }}\n')
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        Daemon(simulator.address, "--scenario", str(scenario), directory=tmp_path) as daemon,
    ):
        assert daemon.end() == 0
        found = [(line["matches"], line["agents"]) for line in daemon.lines("the scenario matches no agent")]
    assert found == ([(["'agnt*'"], ["agent1", "agent2"])] if told else [])
