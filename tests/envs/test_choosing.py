"""Which agents environments take, direct or through a daemon: by name, glob, or the type that a scenario says."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

from ospbridge.record.episode import read_episode
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.osp.world import World

pytestmark = pytest.mark.loopback
NAMES = ("ab", "robot1", "robot[1]", "a*", "M\xfcller", "\u673a\u5668\u4eba", "Kn\uf7f6chel")
"""Some look like globs that fit others, some are beyond ASCII, and one is no UTF-8: as a server that writes Latin-1
has it."""
HEATS = ["/Heat", "/Cold", "/Heat"]
TOLD = ["/Heat", "/Cold", "/Heat (2)"]


@pytest.fixture(scope="module", params=["direct", "hub"])
def reached_worlds(request: pytest.FixtureRequest, clean_environment: Path) -> Iterator[dict[str, Any]]:
    """Where environments find the agents of worlds, the same ones for all tests of the module."""
    worlds: dict[str, World] = {
        "named": SyntheticWorld(2, 3, HEATS, names=NAMES),
        "typed": GymWorld(["CartPole-v1", "Pendulum-v1", "CartPole-v1"]),
    }
    with ExitStack() as stack:
        found = {}
        for kind, world in worlds.items():
            simulator = stack.enter_context(UdpSimulator(world, port=0))
            hub = clean_environment / f"{kind}-{request.param}"
            found[kind] = stack.enter_context(reached(request.param, simulator.address, hub))
        yield found


@pytest.fixture
def named(reached_worlds: dict[str, Any]) -> Any:
    return reached_worlds["named"]


@pytest.fixture
def typed(reached_worlds: dict[str, Any]) -> Any:
    """Two carts, and a pendulum between them; a daemon has no scenario."""
    return reached_worlds["typed"]


@pytest.fixture
def of_type(tmp_path: Path) -> Any:
    """A scenario for the agents of a type, with the spaces of no scenario."""

    def written(kind: str) -> str:
        file = tmp_path / "typed.toml"
        file.write_text(f'name = "typed"\n[[agent]]\nmatch = {{ type = "{kind}" }}\n')
        return str(file)

    return written


def single(where: dict[str, Any], **options: Any) -> Any:
    return closing(gymnasium.make("ospbridge/Agent-v0", **where, **options).unwrapped)


def test_an_environment_takes_the_agent_that_is_called_so(named: dict[str, Any]) -> None:
    for name in NAMES:
        with single(named, agent=name) as env:
            assert env.interface.name == name


def test_a_vector_environment_takes_the_agents_that_are_called_so(named: dict[str, Any]) -> None:
    made = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, agents=["a*", "robot[1]"], **named)
    with closing(made) as env:
        env.reset(seed=1)
        *_, info = env.step(env.action_space.sample())
        assert [name for name in info["infos"] if not name.startswith("_")] == TOLD
        assert len({info["infos"][name][0] for name in TOLD}) == 3


def test_a_scenario_means_the_agent_that_is_called_so(named: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "named.toml"
    file.write_text('name = "named"\n[[agent]]\nmatch = { name = "robot[1]" }\n')
    for agent in (None, "robot*"):
        with single(named, scenario=str(file), agent=agent) as env:
            assert env.interface.name == "robot[1]"


def test_a_single_environment_tells_all_infos_of_one_name_and_records_them(
    named: dict[str, Any], tmp_path: Path
) -> None:
    with single(named, agent="ab", record=tmp_path) as env:
        env.reset(seed=1)
        *_, info = env.step(env.action_space.sample())
    assert list(info["infos"]) == TOLD
    assert len(set(info["infos"].values())) == 3, "each has its own number"
    (file,) = tmp_path.rglob("*.npz")
    assert list(read_episode(file).info_names) == TOLD


@pytest.mark.parametrize("agent", [None, "*"])
def test_a_single_environment_takes_the_only_agent_of_the_type(
    typed: dict[str, Any], of_type: Any, agent: str | None
) -> None:
    with single(typed, scenario=of_type("Pendulum*"), agent=agent) as env:
        assert env.interface.name == "pendulum"
        env.reset(seed=1)


def test_a_vector_environment_takes_all_agents_of_the_type(typed: dict[str, Any], of_type: Any) -> None:
    made = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, scenario=of_type("CartPole*"), **typed)
    with closing(made) as env:
        env.reset(seed=1)
        assert env.single_observation_space.shape == (4,)
