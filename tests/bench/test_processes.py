"""Programs that `bench` starts: what they say, how they fail, and that they end."""

from __future__ import annotations

import os
import signal

import gymnasium
import pytest

from ospbridge.bench.processes import Program, ProgramFailed
from ospbridge.bench.stage import Stage
from ospbridge.errors import HubLost

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
