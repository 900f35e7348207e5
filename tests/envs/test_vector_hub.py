"""The vector environment through daemons: the same as over sessions of its own, one message for many agents."""

from __future__ import annotations

import signal
from contextlib import ExitStack, closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from ospbridge.envs.groups.rows import FeedbackRows
from ospbridge.errors import HubNotFound
from ospbridge.session.hub_client import HubClient
from tests.envs.daemons import connected, hosted
from tests.envs.vectors import assert_same, cart_poles, fleet, trajectory

pytestmark = pytest.mark.loopback


@pytest.fixture
def hubs(runtime_directory: Path) -> list[Path]:
    """Where the daemons of this test listen."""
    return [runtime_directory / "one", runtime_directory / "two"]


def attached(hubs: list[Path], count: int, **options: Any) -> VectorEnv[Any, Any, Any]:
    bridge = [f"unix:{hub}" for hub in hubs]
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=count, bridge=bridge, **options)


@pytest.mark.parametrize("policy", ["all", "any"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda m: m.value)
def test_two_hubs_return_what_the_two_simulators_return(
    mode: AutoresetMode, policy: str, hubs: list[Path]
) -> None:
    with cart_poles(2, copies=2) as addresses:
        direct = trajectory(fleet(addresses, 4, autoreset_mode=mode), 50)
        with (
            hosted(addresses[0], hubs[0], "--reset-policy", policy),
            hosted(addresses[1], hubs[1], "--reset-policy", policy),
        ):
            through = trajectory(attached(hubs, 4, autoreset_mode=mode), 50)
    without_reasons(direct)
    without_reasons(through)
    assert_same(through, direct)


@pytest.mark.parametrize("worlds", [1, 2])
@pytest.mark.parametrize("way", ["direct", "hub"])
def test_what_a_step_returned_is_the_users_own(hubs: list[Path], way: str, worlds: int) -> None:
    with ExitStack() as stack:
        addresses = stack.enter_context(cart_poles(worlds, copies=3))
        if way == "hub":
            for address, hub in zip(addresses, hubs, strict=False):
                stack.enter_context(hosted(address, hub))
        count = 3 * worlds
        envs: Any = fleet(addresses, count) if way == "direct" else attached(hubs[:worlds], count)
        envs.reset(seed=1)
        actions = np.zeros((count, 1), np.float32)
        told = [envs.step(actions) for _ in range(4)]
        # By then steps tell nothing but numbers, and come as rows.
        assert all(type(seats.group._last) is FeedbackRows for seats in envs._groups)
        kept = deepcopy(told)
        for observations, rewards, *_, infos in told[2:]:
            observations[:] = rewards[:] = 0.0
            infos["osp_seed"][:] = 0
            infos["infos"]["/episode/reward"][:] = 0.0
        assert_same(deepcopy(told[:2]), kept[:2])
        observations, rewards, *_, infos = envs.step(actions)
        assert observations.any()
        assert rewards.tolist() == [1.0] * count
        assert infos["osp_seed"].tolist() == [1] * 3 + [4] * 3 * (worlds - 1)
        assert infos["infos"]["/episode/reward"].tolist() == [1.0] * count
        envs.close()


def without_reasons(told: Any) -> None:
    """The daemon cuts with words of its own where its policy is any."""
    for *_, info in told:
        for which in (info, info.get("final_info", {})):
            which.pop("reason", None)


def test_a_daemon_that_was_killed_truncates_its_environments_and_is_attached_to_again(
    hubs: list[Path],
) -> None:
    with cart_poles(2) as addresses, hosted(addresses[0], hubs[0]):
        with connected(addresses[1], hubs[1]) as daemon:
            envs = attached(hubs, 2)
            envs.reset(seed=3)
            envs.step(np.ones((2, 1), np.float32))
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            _, _, terminations, truncations, info = envs.step(np.ones((2, 1), np.float32))
            assert truncations.tolist() == [False, True]
            assert not terminations.any()
            assert info["reason"][0] == ""
            assert "lost" in info["reason"][1]
        with hosted(addresses[1], hubs[1]):
            _, _, _, truncations, info = envs.step(np.ones((2, 1), np.float32))
            assert not truncations.any()
            assert info["reason"].tolist() == ["", ""]
            envs.step(np.ones((2, 1), np.float32))
            envs.close()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_daemon_that_stays_away_is_an_error_and_costs_the_others_no_step(
    killed: int, hubs: list[Path]
) -> None:
    living = hubs[1 - killed]
    with (
        cart_poles(2) as addresses,
        hosted(addresses[1 - killed], living),
        closing(HubClient.connect(f"unix:{living}")) as onlooker,
    ):
        with hosted(addresses[killed], hubs[killed]):
            envs = attached(hubs, 2, connect_timeout=0.5)
            envs.reset(seed=3)
        _, _, _, truncations, _ = envs.step(np.ones((2, 1), np.float32))
        assert truncations[killed]
        before = onlooker.status().steps
        for _ in range(2):
            with pytest.raises(HubNotFound):
                envs.step(np.ones((2, 1), np.float32))
        assert onlooker.status().steps == before
        with hosted(addresses[killed], hubs[killed]):
            _, _, _, truncations, _ = envs.step(np.ones((2, 1), np.float32))
            assert not truncations.any()
            assert onlooker.status().steps == before + 1
            envs.close()


@pytest.mark.parametrize("several", [True, False])
def test_a_daemon_that_was_replaced_between_two_calls_costs_a_reset_nothing(
    several: bool, hubs: list[Path]
) -> None:
    with cart_poles(1) as addresses:
        with hosted(addresses[0], hubs[0]):
            env: Any = (
                attached(hubs[:1], 1)
                if several
                else gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hubs[0]}")
            )
            first, _ = env.reset(seed=3)
        with hosted(addresses[0], hubs[0]):
            again, _ = env.reset(seed=3)
            np.testing.assert_array_equal(again, first)
            assert not np.any(env.step(np.ones_like(env.action_space.sample()))[3])
            env.close()
