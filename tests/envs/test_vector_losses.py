"""The vector environment when simulators die, stay away and come back, in forks, and at the end of Python."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import SimulatorNotFound
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.vectors import fleet

pytestmark = pytest.mark.loopback


class Simulators:
    """Some that may be killed, and started again at the same address."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self._stack = stack
        self._running = [UdpSimulator(SyntheticWorld(1, 1, 0), port=0).start() for _ in range(count)]
        self.addresses = [str(each.address) for each in self._running]
        stack.callback(self._stop)

    def _stop(self) -> None:
        for each in self._running:
            each.stop()

    def kill(self, at: int) -> None:
        self._running[at].stop()

    def restart(self, at: int) -> None:
        port = int(self.addresses[at].rpartition(":")[2])
        self._running[at] = UdpSimulator(SyntheticWorld(1, 1, 0), port=port).start()


def joined(stack: ExitStack, count: int, **options: Any) -> tuple[Any, Simulators]:
    simulators = Simulators(stack, count)
    envs: Any = fleet(simulators.addresses, count, query_timeout=0.5, **options)
    stack.callback(envs.close)
    envs.reset(seed=1)
    return envs, simulators


def test_a_killed_simulator_truncates_its_own_environments_only_and_is_rebuilt_when_it_is_back() -> None:
    with ExitStack() as stack:
        envs, simulators = joined(stack, 3)
        actions = np.zeros((3, 1), np.float32)
        before, *_ = envs.step(actions)
        simulators.kill(1)
        last, _, terminations, truncations, info = envs.step(actions)
        assert truncations.tolist() == [False, True, False]
        assert not terminations.any()
        assert [bool(reason) for reason in info["reason"]] == [False, True, False]
        assert "connection refused" in info["reason"][1]
        np.testing.assert_array_equal(last[1], before[1])
        simulators.restart(1)
        for _ in range(2):
            _, _, _, truncations, info = envs.step(actions)
            assert not truncations.any()
            assert info["reason"].tolist() == ["", "", ""]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_simulator_that_stays_away_is_an_error_after_the_limit_and_a_reset_goes_on(mode: str) -> None:
    with ExitStack() as stack:
        envs, simulators = joined(stack, 2, connect_timeout=0.3, autoreset_mode=mode)
        actions = np.zeros((2, 1), np.float32)
        simulators.kill(0)
        if mode != "SameStep":
            _, _, _, truncations, _ = envs.step(actions)
            assert truncations.tolist() == [True, False]
        again = partial(envs.reset, options={"reset_mask": np.array([True, False])})
        with pytest.raises(SimulatorNotFound, match="nothing listens"):
            again() if mode == "Disabled" else envs.step(actions)
        simulators.restart(0)
        if mode == "NextStep":
            envs.step(actions)
        else:
            # The other world goes on where it was.
            again()
        _, _, _, truncations, info = envs.step(actions)
        assert not truncations.any()
        assert info["reason"].tolist() == ["", ""]


def test_environments_alive_at_the_interpreters_exit_give_their_agents_back() -> None:
    with ExitStack() as stack:
        addresses = Simulators(stack, 3).addresses
        code = (
            "import sys, gymnasium, ospbridge\n"
            "env = gymnasium.make('ospbridge/Agent-v0', simulator=sys.argv[1])\n"
            "envs = gymnasium.make_vec('ospbridge/Agent-v0', num_envs=2, simulator=sys.argv[2:])\n"
            "env.reset(seed=1)\nenvs.reset(seed=1)\n"
        )
        command = [sys.executable, "-W", "error", "-c", code, *addresses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        for address in addresses:
            with BlockingSession.connect(address, reclaim_stale=False) as session:
                assert all(entry.available for entry in session.agents())
