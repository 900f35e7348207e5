from __future__ import annotations

import os
import signal

import gymnasium
import pytest

from ospbridge.bench.processes import ProgramFailed
from ospbridge.bench.stage import Stage
from ospbridge.errors import HubLost

pytestmark = pytest.mark.loopback


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


def fail_by_itself() -> None:
    with Stage(inputs=2, outputs=3) as stage:
        assert len(stage.responders) == 1
        raise HubLost("it was me")


def test_a_daemon_that_ends_meanwhile_is_told_in_place_of_what_its_client_saw() -> None:
    with pytest.raises(ProgramFailed, match=r"the daemon ended \(exit code -9\)") as e:
        lose_the_daemon()
    assert isinstance(e.value.__cause__, HubLost)


def test_an_error_while_all_programs_run_stays_what_it_is() -> None:
    with pytest.raises(HubLost, match="it was me"):
        fail_by_itself()


def test_simulators_of_one_stage_have_addresses_of_their_own() -> None:
    with Stage(inputs=2, outputs=3, simulators=3) as stage:
        assert len(set(stage.responders)) == 3
        assert stage.responder == stage.responders[0]
