"""The page on environments lists the ids, arguments and info keys that there are."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ospbridge
from ospbridge.envs.agent_env import AgentEnv
from ospbridge.envs.registration import AGENT_ID, SCENARIO_IDS
from ospbridge.envs.vector import OspVectorEnv
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.guarding import _TOLD

assert ospbridge.__version__
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "environments.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_id_is_listed_with_its_scenario_and_whether_noise_is_to_be_expected() -> None:
    told = re.findall(
        r"^\| `(ospbridge/[\w-]+)` \| (?:scenario `(\w+)`|none).* \| (yes|no) \|$", PAGE, re.MULTILINE
    )
    wanted = [(AGENT_ID, "", True), *((env_id, *said) for env_id, said in SCENARIO_IDS.items())]
    assert told == [(env_id, name, "yes" if noisy else "no") for env_id, name, noisy in wanted]
    for env_id, _, noisy in wanted:
        assert gymnasium.spec(env_id).nondeterministic is noisy


def parameters(kind: type[Any]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(kind).parameters.items()}


def test_every_argument_is_listed_with_its_default_and_who_takes_it() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| ([\w, ]+) \| .+ \|$", section("Arguments"), re.MULTILINE)
    told = {name: (default, takers.split(", ")) for name, default, takers in rows}
    kinds = {"one": parameters(AgentEnv), "vector": parameters(OspVectorEnv)}
    try:
        from ospbridge.envs.parallel import AgentsParallelEnv
    except ospbridge.errors.ConfigurationError:  # this one needs the extra; the others tell enough
        pass
    else:
        kinds["parallel"] = parameters(AgentsParallelEnv)
    assert set(told) == set().union(*kinds.values())
    for name, (default, takers) in told.items():
        assert [kind for kind in takers if kind in kinds] == [
            kind for kind in kinds if name in kinds[kind]
        ], name
        for kind in kinds.values():
            if name in kind:
                said = kind[name]
                said = said.name if isinstance(said, AutoresetMode) else repr(said).replace("'", '"')
                assert default == said, name


@pytest.mark.loopback
def test_the_keys_of_infos_are_those_of_the_page_in_their_types() -> None:
    told = re.findall(r"^\| `(\w+)` \| (\w+) \|", section("Infos"), re.MULTILINE)
    assert {name for name, _ in told} == _TOLD
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        env = gymnasium.make(AGENT_ID, simulator=str(simulator.address))
        _, first = env.reset(seed=1)
        *_, second = env.step(np.zeros(2, np.float32))
        env.close()
        for info in (first, second):
            assert [(name, type(value).__name__) for name, value in info.items()] == told
        envs = gymnasium.make_vec(AGENT_ID, num_envs=1, simulator=str(simulator.address))
        _, infos = envs.reset(seed=1)
        envs.close()
        assert set(infos) == {key for name, _ in told for key in (name, f"_{name}")}
