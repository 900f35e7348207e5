"""Programs that `bench` starts: what they say, how they fail, and that they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest

from ospbridge.bench.floors import one_floor
from ospbridge.bench.processes import Program, ProgramFailed
from ospbridge.bench.stage import Stage
from ospbridge.errors import HubLost
from ospbridge.osp.profile import PROFILES
from ospbridge.session.blocking import BlockingSession

pytestmark = pytest.mark.loopback


def test_the_error_the_hint_and_the_exit_code_of_a_command_are_passed_on() -> None:
    with (
        Program("ospbridge", "check", "no_such_scenario.toml", name="the checker") as program,
        pytest.raises(ProgramFailed) as e,
    ):
        program.line(20.0)
    assert e.value.message == "the checker ended (exit code 78): there is no file no_such_scenario.toml"
    assert e.value.hint.startswith("shipped are arena_avoid, ")
    assert e.value.exit_code == 78
    assert ProgramFailed.exit_code == 75


def lose_the_daemon() -> None:
    with Stage(inputs=2, outputs=3) as stage:
        env = gymnasium.make("ospbridge:ospbridge/Agent-v0", bridge=stage.hub, agent="agent", wait=20.0)
        try:
            env.reset(seed=1)
            os.kill(stage.daemon.process.pid, signal.SIGKILL)
            for _ in range(100):
                env.step(stage.action)
        finally:
            env.close()


def test_a_daemon_that_ends_meanwhile_is_told_in_place_of_what_its_client_saw() -> None:
    with pytest.raises(ProgramFailed, match=r"the daemon ended \(exit code -9\)") as e:
        lose_the_daemon()
    assert isinstance(e.value.__cause__, HubLost)


# --- responder ------------------------------------------------------------------------------------------------------


SIZES = ("--inputs", "3", "--outputs", "4")
OUTPUTS = np.array([0, 0.25, 0.5, 0.75], np.float32)


@pytest.fixture(params=sorted(PROFILES))
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def responder(profile: str) -> Iterator[str]:
    with Program("ospbridge.bench.responder", *SIZES, "--profile", profile) as program:
        yield program.line(20.0)


def test_a_session_finds_a_server_whose_clock_agrees_with_the_steps(responder: str, profile: str) -> None:
    for _ in range(2):
        with BlockingSession.connect(responder) as session:
            assert session.profile.name == profile
            (agent,) = session.register("agent")
            assert (len(agent.inputs), len(agent.outputs)) == (3, 4)
            assert session.reset(7)
            outcomes = [session.step({"agent": [0.1, 0.2, 0.3]})["agent"] for _ in range(50)]
            outcome = outcomes[-1]
            np.testing.assert_array_equal(outcome.outputs, OUTPUTS)
            assert float(session.get("/Simulation/SimulationTime").value) == pytest.approx(0.5)
            assert session.audit() == ""
            assert not session.pop_notices()


@pytest.mark.parametrize("spin", [False, True])
def test_the_floors_exchange_the_same_datagrams(responder: str, profile: str, spin: bool) -> None:
    for _ in range(2):
        with one_floor(responder, PROFILES[profile], 3, 4, spin=spin) as step:
            for _ in range(20):
                np.testing.assert_array_equal(step(), OUTPUTS)
    with BlockingSession.connect(responder) as session:
        assert session.agents()[0].available


def test_it_ends_when_its_standard_input_does() -> None:
    with Program("ospbridge.bench.responder") as program:
        program.line(20.0)
        assert program.process.stdin is not None
        program.process.stdin.close()
        assert program.process.wait(5.0) == 0
