"""How many steps ours take in the time of one of gymnasium's AsyncVectorEnv, by medians within a run. Never times."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from ospbridge.bench.figures import Run, runs_of, timed, untold, values_of
from ospbridge.bench.stage import Stage
from ospbridge.bench.step import subjects_on
from ospbridge.bench.subjects import DIRECT, HUB
from tests.bench.patience import usual_until

if TYPE_CHECKING:
    from ospbridge.bench.figures import Runs

pytestmark = pytest.mark.loopback

PEER, STEPS, WARM_UP = "AsyncVectorEnv", 500, 200
DEMANDED = {DIRECT: 2.5, HUB: 1.0}
"""A step of the peer is mostly the waking of two processes, which takes 50 us on one
machine and 140 us on another, where a direct step takes 15 to 18 us on both: what that may cost is asserted in
``ratios_step``."""


class Still(gymnasium.Env[Any, Any]):
    """Computes nothing."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (16,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)

    def reset(self, **options: Any) -> Any:
        return np.zeros(16, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(16, np.float32), 0.0, False, False, {}


def peer() -> Run:
    """As gymnasium has it by default: shared memory, one process for the environment."""
    with closing(gymnasium.vector.AsyncVectorEnv([Still])) as envs:
        envs.reset(seed=1)
        actions = np.full((1, 8), 0.5, np.float32)
        return timed(lambda: envs.step(actions), STEPS, WARM_UP, alone=False)


def runs() -> Runs:
    with Stage(inputs=8, outputs=16) as stage:
        subjects = {**subjects_on(stage, tuple(DEMANDED), STEPS), PEER: values_of(peer)}
        yield from runs_of(subjects, untold, nullcontext())


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="an environment in another process needs a core of its own"
)
@pytest.mark.timeout(180)
def test_steps_are_as_many_times_those_of_the_peer_as_was_promised() -> None:
    broken = usual_until(
        runs(),
        lambda run: {name: run[name]["p50_us"] / run[PEER]["p50_us"] for name in DEMANDED},
        {name: 1 / times for name, times in DEMANDED.items()},
        least=5,
        longest=60.0,
    )
    assert not broken, broken
