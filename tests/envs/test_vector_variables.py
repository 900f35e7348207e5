"""Variables that are vectors, of a simulator that has some: observed and set whole, through sessions and a daemon."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import ScenarioInvalid
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.world import Variable
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted
from tests.envs.kinds import only, parallel, single, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.loopback
NAMES: Final = ["/sensor/0", *(f"/Pos#{n}" for n in range(3)), "/Synthetic/Value/00000", "/Turn#1"]
SCENARIO: Final = """
name = "vectors"
[values]
"/Pos" = [0.4, 0.03, -2]
"/Turn" = "(1,0,0,0)"
[[agent]]
[agent.names]
height = "value:/Pos#1"
[agent.observe]
values = ["/Pos", "/Synthetic/Value/00000", "/Turn#1"]
[agent.episode]
reward = "height"
"""


class Placed(SyntheticWorld):
    """With a position and an orientation, which takes texts of four numbers only."""

    def __init__(self) -> None:
        super().__init__(2, 1, values=1)
        self.contents = {"/Pos": "(1,2,3)", "/Turn": "(0.7071,-0.7071,0,0)"}
        kinds = {"/Pos": "Vector3D", "/Turn": "Quaternion"}
        self.variables += [
            Variable(name, kind, partial(self.contents.__getitem__, name), self._writer(name))
            for name, kind in kinds.items()
        ]

    def _writer(self, name: str) -> Callable[[str], bool]:
        def write(text: str) -> bool:
            if text.count(",") != self.contents[name].count(","):
                return False
            self.contents[name] = text
            return True

        return write


@pytest.fixture(params=sorted(PROFILES))
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with UdpSimulator(Placed(), port=0, profile=PROFILES[request.param]) as simulator:
        yield str(simulator.address)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "vectors.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return file


@pytest.mark.parametrize("made", [single, vector, parallel])
def test_each_kind_of_environment_sets_and_observes_them_whole(
    made: Callable[..., Any], address: str, scenario: Path
) -> None:
    env = made(address, scenario=scenario)
    seen = only(env.reset(seed=1)[0])
    env.close()
    np.testing.assert_array_equal(seen[1:], np.array([0.4, 0.03, -2.0, 0.0, 0.0], np.float32))


def test_through_a_daemon_it_is_the_same_and_the_scenario_is_compared(
    address: str, scenario: Path, runtime_directory: Path
) -> None:
    hub = runtime_directory / "hub"
    with hosted(address, hub, "--scenario", str(scenario)):
        env: Any = gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}", scenario=scenario).unwrapped
        seen, _ = env.reset(seed=1)
        _, reward, *_ = env.step(np.zeros(2, np.float32))
        names = env._seat.observation_names
        env.close()
        several: Any = gymnasium.make_vec(
            "ospbridge/Agent-v0", num_envs=1, bridge=f"unix:{hub}", scenario=scenario
        )
        assert several.single_observation_space.shape == (6,)
        several.close()
    assert names == NAMES
    np.testing.assert_array_equal(seen[1:], np.array([0.4, 0.03, -2.0, 0.0, 0.0], np.float32))
    assert reward == 0.03


def test_a_whole_one_in_an_expression_is_refused_before_a_step_and_the_agent_stays_free(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "whole.toml"
    text = SCENARIO.replace('"/Pos" = [0.4, 0.03, -2]\n', "").replace("value:/Pos#1", "value:/Pos")
    file.write_text(text, encoding="utf-8")
    for made in (single, vector):
        with pytest.raises(ScenarioInvalid) as told:
            made(address, scenario=file)
        (mistake,) = told.value.mistakes
        assert "agent[0].names.height: 'value:/Pos' is a vector, and episode.reward takes one" in mistake
        assert "value:/Pos#0, value:/Pos#1, value:/Pos#2" in mistake
    single(address).close()
