"""Environments on networks that repeat datagrams: nothing is believed that may be another step's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.rebuild import BEGINNINGS
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import only, parallel, single, step, vector

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.filterwarnings("ignore:.*this network repeats or delays datagrams:UserWarning"),
]
BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
EVERY_KIND = pytest.mark.parametrize("made", [single, vector, parallel])
REST = np.zeros(2, np.float32)


def bound_to_repeat(profile: Profile, duplicate: float, **options: Any) -> UdpSimulator:
    faults = FaultPlan(duplicate=duplicate, seed=3)
    return UdpSimulator(SyntheticWorld(2, 3, 1), port=0, profile=profile, faults=faults, **options)


@pytest.mark.sampled(3)
@BOTH
@EVERY_KIND
def test_what_comes_twice_ends_episodes_with_the_reason_and_each_observation_is_its_step_s(
    made: Callable[..., Any], profile: Profile
) -> None:
    ends = 0
    with bound_to_repeat(profile, 0.03) as simulator:
        env = made(str(simulator.address), profile=profile.name)
        for seed in range(1, 21):
            observation, _ = env.reset(seed=seed)
            for number in range(1, 8):
                assert only(observation).tolist() == expected(REST, number, 3, seed=seed).tolist()
                observation, _, _, truncated, info = step(env)
                if only(truncated):
                    assert "exactly once" in str(info)
                    ends += 1
                    break
        env.close()
    assert ends


@pytest.mark.sampled(2)
@BOTH
@EVERY_KIND
def test_where_everything_comes_twice_a_reset_gives_up_and_says_why(
    made: Callable[..., Any], profile: Profile
) -> None:
    ran: list[str] = []
    with bound_to_repeat(profile, 1.0, ledger=lambda entry: ran.append(entry["kind"])) as simulator:
        env = made(str(simulator.address), profile=profile.name)
        with pytest.raises(StepUncertain, match="belongs to no step") as caught:
            env.reset(seed=1)
        env.close()
    assert "repeats or delays datagrams" in caught.value.hint
    assert ran.count("reset") <= 2 * BEGINNINGS
