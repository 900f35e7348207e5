"""Agents whose names look like globs that fit others: each can be had by its name, direct or through a daemon."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

import ospbridge
from ospbridge.errors import AgentsInUse
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected, reached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
NAMES = ("ab", "robot1", "robot[1]", "a*")


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3, names=NAMES), port=0) as running:
        yield running


@pytest.fixture(params=["direct", "hub"])
def way(request: pytest.FixtureRequest, simulator: UdpSimulator, tmp_path: Path) -> Iterator[Any]:
    with reached(request.param, simulator.address, tmp_path / "hub") as where:
        yield where


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_takes_the_agent_that_is_called_so(way: dict[str, Any], name: str) -> None:
    with closing(gymnasium.make("ospbridge/Agent-v0", agent=name, **way)) as env:
        assert env.unwrapped.interface.name == name  # type: ignore[attr-defined]


def test_a_vector_environment_takes_the_agents_that_are_called_so(way: dict[str, Any]) -> None:
    made = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, agents=["a*", "robot[1]"], **way)
    with closing(made) as env:
        env.reset(seed=1)


def test_a_scenario_means_the_agent_that_is_called_so(way: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "named.toml"
    file.write_text('name = "named"\n[[agent]]\nmatch = { name = "robot[1]" }\n')
    for agent in (None, "robot*"):
        with closing(gymnasium.make("ospbridge/Agent-v0", scenario=str(file), agent=agent, **way)) as env:
            assert env.unwrapped.interface.name == "robot[1]"  # type: ignore[attr-defined]


def test_an_environment_does_not_share_the_agent_of_another_name(simulator: UdpSimulator) -> None:
    where: dict[str, Any] = {"simulator": str(simulator.address)}
    with closing(gymnasium.make("ospbridge/Agent-v0", agent="robot1", **where)):
        with pytest.raises(AgentsInUse, match=r"robot\[1\]"):
            gymnasium.make("ospbridge/Agent-v0", agent="robot[1]", **where)
        with closing(gymnasium.make("ospbridge/Agent-v0", agent="robot?", **where)) as twin:
            assert twin.unwrapped.interface.name == "robot1"  # type: ignore[attr-defined]


def test_a_daemon_takes_the_agents_that_are_called_so(simulator: UdpSimulator, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    with (
        connected(simulator.address, hub, "--agent", "robot[1]", "--agent", "a*"),
        closing(HubClient.connect(f"unix:{hub}", wait=10.0)) as client,
    ):
        assert {agent.name for agent in client.status().agents} == {"robot[1]", "a*"}


def test_a_daemon_frees_by_force_no_agent_of_another_name(simulator: UdpSimulator, tmp_path: Path) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("robot1")
        with connected(simulator.address, tmp_path / "hub", "--force-restart", "--agent", "robot[1]"):
            assert other.controlled == ("robot1",)
            other.agents()
