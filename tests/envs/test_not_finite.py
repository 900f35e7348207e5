"""NaN from a simulator whose agents have no scenario: each kind of environment ends, zeroes or passes it, as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs.rllib import env_creator
from ospbridge.errors import UsageError
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted
from tests.envs.kinds import only, parallel, single, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = [single, vector, parallel]
kinds = pytest.mark.parametrize("made", KINDS)


class Breaking(SyntheticWorld):
    """The second sensor and the reward are NaN from the third step on; the first one settles a reset."""

    def __init__(self) -> None:
        super().__init__(2, 3, ["/episode/reward"])
        self.count = 0

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.count = 0

    def step(self) -> None:
        super().step()
        self.count += 1
        if self.count >= 3:
            for agent in self.agents:
                agent.outputs[1] = np.nan
                agent.infos[0] = np.nan


@pytest.fixture
def address() -> Iterator[str]:
    with UdpSimulator(Breaking(), port=0) as simulator:
        yield str(simulator.address)


def steps(env: Any, count: int) -> list[Any]:
    """What the only agent saw of each, and what was said of it."""
    told = []
    for _ in range(count):
        named = hasattr(env, "possible_agents")
        zeros = np.zeros((1, 2) if hasattr(env, "num_envs") else 2, np.float32)
        seen, reward, _, truncated, info = env.step(dict.fromkeys(env.agents, zeros) if named else zeros)
        reason = only(info)["reason"] if named else info["reason"]
        told.append((only(seen), only(reward), bool(only(truncated)), str(only(reason))))
    return told


@pytest.mark.loopback
@kinds
def test_it_ends_the_episode_with_the_output_and_the_agent_where_nothing_is_asked(
    made: Callable[..., Any], address: str
) -> None:
    for asked in ({}, {"not_finite": "end"}):
        env = made(address, **asked)
        env.reset(seed=1)
        (_, _, early, _), (seen, reward, late, reason) = steps(env, 2)
        env.close()
        assert (early, late) == (False, True)
        assert (seen[1], reward) == (0.0, 0.0)
        assert "'/sensor/1' of agent 'agent' is nan" in reason


@pytest.mark.loopback
@kinds
def test_it_becomes_0_or_is_passed_where_that_is_asked(made: Callable[..., Any], address: str) -> None:
    for asked, number in (("zero", 0.0), ("pass", np.nan)):
        env = made(address, not_finite=asked)
        env.reset(seed=1)
        *_, (seen, reward, ended, reason) = steps(env, 3)
        env.close()
        np.testing.assert_equal([seen[1], reward], [number, number])
        assert (ended, reason) == (False, "")


@pytest.mark.loopback
def test_rllibs_environments_have_the_option_too(address: str) -> None:
    env = env_creator({"simulators": [address], "not_finite": "zero"})
    env.reset(seed=1)
    *_, (seen, reward, ended, _) = steps(env, 3)
    env.close()
    assert (seen[1], reward, ended) == (0.0, 0.0, False)


@pytest.mark.loopback
def test_a_daemon_without_a_scenario_ends_the_episode_too(address: str, runtime_directory: Path) -> None:
    hub = runtime_directory / "hub"
    with hosted(address, hub):
        env: Any = gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}").unwrapped
        env.reset(seed=1)
        _, (seen, _, ended, reason) = steps(env, 2)
        env.close()
    assert (seen[1], ended) == (0.0, True)
    assert "'/sensor/1' of agent 'agent' is nan" in reason


@kinds
def test_where_a_scenario_or_a_daemon_says_it_the_place_is_told(made: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="beside scenario 'cartpole'") as told:
        made("127.0.0.1:1", scenario="cartpole", not_finite="zero")
    assert 'not_finite = "zero" in [agent.observe]' in told.value.hint
    with pytest.raises(UsageError, match="attaches to a daemon") as told:
        made(None, bridge="unix:/nowhere", not_finite="end")
    assert "[agent.observe] of the scenario that the daemon plays" in told.value.hint
    with pytest.raises(UsageError, match="one of 'end', 'zero', 'pass', got 'stop'"):
        made("127.0.0.1:1", not_finite="stop")
