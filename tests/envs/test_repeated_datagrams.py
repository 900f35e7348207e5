"""Environments on networks that repeat datagrams."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.envs import sharing
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.budget import Budget
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import only, parallel, single, step, vector

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.loopback
BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
EVERY_KIND = pytest.mark.parametrize("made", [single, vector, parallel])
REST = np.zeros(2, np.float32)


def without_rebuilds() -> None:
    """From here on the budget of the only session is spent."""
    (shared,) = sharing._shared.values()
    shared.budget = Budget(monotonic(), capacity=0)


def first(seed: int) -> list[float]:
    return expected(REST, 1, 3, seed=seed).tolist()  # type: ignore[no-any-return]  # floats


@pytest.mark.sampled(2)
@BOTH
@EVERY_KIND
def test_a_network_that_doubles_everything_runs_each_step_of_one_agent_once(
    made: Callable[..., Any], profile: Profile
) -> None:
    """The copy of a vote comes before the step is done, and counts for that one."""
    ran: list[str] = []
    with UdpSimulator(
        SyntheticWorld(2, 3, 1),
        port=0,
        profile=profile,
        faults=FaultPlan(duplicate=1.0),
        ledger=lambda entry: ran.append(entry["kind"]),
    ) as simulator:
        env = made(str(simulator.address), profile=profile.name)
        without_rebuilds()
        for seed in range(1, 4):
            observation, _ = env.reset(seed=seed)
            assert only(observation).tolist() == first(seed)
            for number in range(2, 8):
                observation, _, _, truncated, info = step(env)
                assert not only(truncated), info
                assert only(observation).tolist() == expected(REST, number, 3, seed=seed).tolist()
            assert ran[-8:] == ["reset", *7 * ["step"]]
        env.close()
