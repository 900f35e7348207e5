"""Environments that somebody wants to copy: a clear word, and the one there is plays on."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

import ospbridge
from ospbridge.errors import UsageError
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import parallel, single, step, vector

if TYPE_CHECKING:
    from collections.abc import Callable

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


ANOTHER = {
    single: "gymnasium.make(env.spec)",
    vector: "gymnasium.make_vec(env.spec)",
    parallel: "parallel_env(...)",
}


@pytest.mark.parametrize("made", [single, vector, parallel])
def test_an_environment_says_that_it_cannot_be_copied_and_plays_on(
    made: Callable[..., Any],
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        env = made(str(simulator.address))
        env.reset(seed=1)
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(UsageError, match="neither copied nor pickled") as caught:
                copied(env)
            assert (
                f"make another one where it is wanted, for instance with {ANOTHER[made]}" in caught.value.hint
            )
        step(env)
        env.close()


def test_so_it_does_from_within_its_wrappers() -> None:
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        env = gymnasium.make("ospbridge/Agent-v0", simulator=str(simulator.address))
        with pytest.raises(UsageError, match="AgentEnv holds a connection"):
            copy.deepcopy(env)
        env.close()
