"""Which agents environments take, direct or through a daemon: by name, glob, or the type that a scenario says."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

import ospbridge
from ospbridge.errors import AgentNotFound, AgentsInUse
from ospbridge.record.episode import read_episode
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted, reached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.osp.world import World

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
NAMES = ("ab", "robot1", "robot[1]", "a*", "M\xfcller", "\u673a\u5668\u4eba", "Kn\uf7f6chel")
"""Some look like globs that fit others, some are beyond ASCII, and one is no UTF-8: as a server that writes Latin-1
has it."""
HEATS = ["/Heat", "/Cold", "/Heat"]
TOLD = ["/Heat", "/Cold", "/Heat (2)"]


class Reaching:
    """Where environments find the agents of a world, the same one for each test of the module."""

    def __init__(self, way: str, stack: ExitStack, directory: Path) -> None:
        self._way, self._stack, self._directory = way, stack, directory
        self._found: dict[str, dict[str, Any]] = {}

    def __call__(self, kind: str) -> dict[str, Any]:
        if kind not in self._found:
            worlds: dict[str, World] = {
                "named": SyntheticWorld(2, 3, HEATS, names=NAMES),
                "typed": GymWorld(["CartPole-v1", "Pendulum-v1", "CartPole-v1"]),
            }
            simulator = self._stack.enter_context(UdpSimulator(worlds[kind], port=0))
            hub = self._directory / f"{kind}-{self._way}"
            self._found[kind] = self._stack.enter_context(reached(self._way, simulator.address, hub))
        return self._found[kind]


@pytest.fixture(scope="module", params=["direct", "hub"])
def reaching(request: pytest.FixtureRequest, clean_environment: Path) -> Iterator[Reaching]:
    with ExitStack() as stack:
        yield Reaching(request.param, stack, clean_environment)


@pytest.fixture
def named(reaching: Reaching) -> dict[str, Any]:
    return reaching("named")


@pytest.fixture
def typed(reaching: Reaching) -> dict[str, Any]:
    """Two carts, and a pendulum between them; a daemon has no scenario."""
    return reaching("typed")


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


def test_an_agent_of_another_type_that_is_named_is_refused(typed: dict[str, Any], of_type: Any) -> None:
    with pytest.raises(AgentNotFound, match="no task for agent 'pendulum' of type 'Pendulum-v1'"):
        gymnasium.make("ospbridge/Agent-v0", scenario=of_type("CartPole*"), agent="pendulum", **typed)


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3, names=NAMES), port=0) as running:
        yield running


def test_an_environment_does_not_share_the_agent_of_another_name(simulator: UdpSimulator) -> None:
    where: dict[str, Any] = {"simulator": str(simulator.address)}
    with single(where, agent="robot1"):
        with pytest.raises(AgentsInUse, match=r"robot\[1\]"):
            single(where, agent="robot[1]")
        with single(where, agent="robot?") as twin:
            assert twin.interface.name == "robot1"


def test_a_daemon_takes_the_agents_that_are_called_so_and_frees_no_other_by_force(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    chosen = ("--agent", "robot[1]", "--agent", "a*")
    with BlockingSession.connect(simulator.address) as other:
        other.register("robot1")
        with (
            hosted(simulator.address, tmp_path / "hub", "--force-restart", *chosen),
            closing(HubClient.connect(f"unix:{tmp_path}/hub", wait=10.0)) as client,
        ):
            assert {agent.name for agent in client.status().agents} == {"robot[1]", "a*"}
            assert other.controlled == ("robot1",)
            other.agents()
