"""An agent may have several infos of one name: environments tell them all, direct or through a daemon."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

import ospbridge
from ospbridge.record.episode import read_episode
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached

if TYPE_CHECKING:
    from pathlib import Path

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
HEATS = ["/Heat", "/Cold", "/Heat"]
TOLD = ["/Heat", "/Cold", "/Heat (2)"]


@pytest.fixture(params=["direct", "hub"])
def way(request: pytest.FixtureRequest, runtime_directory: Path) -> Any:
    """What an environment is told of where its agents are: two, of three infos each."""
    with (
        UdpSimulator(SyntheticWorld(1, 2, HEATS, agents=2), port=0) as simulator,
        reached(request.param, simulator.address, runtime_directory / "hub") as where,
    ):
        yield where


def test_a_single_environment_tells_them_all_and_records_them(way: Any, tmp_path: Path) -> None:
    made = gymnasium.make("ospbridge/Agent-v0", agent="agent1", record=tmp_path, **way)
    with closing(made) as env:
        env.reset(seed=1)
        *_, info = env.step(env.action_space.sample())
    assert list(info["infos"]) == TOLD
    assert len(set(info["infos"].values())) == 3, "each has its own number"
    (file,) = tmp_path.rglob("*.npz")
    assert list(read_episode(file).info_names) == TOLD


def test_a_vector_environment_tells_them_all(way: Any) -> None:
    with closing(gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, **way)) as env:
        env.reset(seed=1)
        for _ in range(3):
            *_, info = env.step(env.action_space.sample())
            assert [name for name in info["infos"] if not name.startswith("_")] == TOLD
            assert len({info["infos"][name][0] for name in TOLD}) == 3
