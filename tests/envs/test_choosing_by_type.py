"""A scenario says which agents it is for by type too: environments take those, direct or through a daemon."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

import ospbridge
from ospbridge.errors import AgentNotFound
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


@pytest.fixture(params=["direct", "hub"])
def way(request: pytest.FixtureRequest, runtime_directory: Path) -> Iterator[Any]:
    """Where two carts are, and a pendulum between them: the simulator, or a daemon of theirs without a scenario."""
    with (
        UdpSimulator(GymWorld(["CartPole-v1", "Pendulum-v1", "CartPole-v1"]), port=0) as simulator,
        reached(request.param, simulator.address, runtime_directory / "hub") as where,
    ):
        yield where


@pytest.fixture
def of_type(tmp_path: Path) -> Any:
    """A scenario for the agents of a type, with the spaces of no scenario."""

    def written(kind: str) -> str:
        file = tmp_path / "typed.toml"
        file.write_text(f'name = "typed"\n[[agent]]\nmatch = {{ type = "{kind}" }}\n')
        return str(file)

    return written


@pytest.mark.parametrize("agent", [None, "*"])
def test_a_single_environment_takes_the_only_agent_of_the_type(
    way: dict[str, Any], of_type: Any, agent: str | None
) -> None:
    made = gymnasium.make("ospbridge/Agent-v0", scenario=of_type("Pendulum*"), agent=agent, **way)
    with closing(made) as env:
        assert env.unwrapped.interface.name == "pendulum"  # type: ignore[attr-defined]
        env.reset(seed=1)


def test_a_vector_environment_takes_all_agents_of_the_type(way: dict[str, Any], of_type: Any) -> None:
    made = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, scenario=of_type("CartPole*"), **way)
    with closing(made) as env:
        env.reset(seed=1)
        assert env.single_observation_space.shape == (4,)


def test_a_parallel_environment_takes_all_agents_of_the_type(way: dict[str, Any], of_type: Any) -> None:
    pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")
    from ospbridge.envs.parallel import parallel_env

    with closing(parallel_env(scenario=of_type("CartPole*"), **way)) as env:
        assert len(env.possible_agents) == 2
        assert all(name.startswith("cart") for name in env.possible_agents)


def test_an_agent_of_another_type_that_is_named_is_refused(way: dict[str, Any], of_type: Any) -> None:
    with pytest.raises(AgentNotFound, match="no task for agent 'pendulum' of type 'Pendulum-v1'"):
        gymnasium.make("ospbridge/Agent-v0", scenario=of_type("CartPole*"), agent="pendulum", **way)
