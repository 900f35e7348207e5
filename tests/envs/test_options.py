"""Options that environments of all kinds have: each kind lists them alike, heeds them, and tells what cannot be."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs import agent_env, options, vector
from ospbridge.errors import UsageError
from ospbridge.observe.trace import read_trace
from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


class Asked(dict[str, Any]):
    """Options that remember which of them were asked for."""

    def __init__(self, said: Any) -> None:
        super().__init__(said)
        self.names: set[str] = set()

    def __or__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


def kinds() -> list[tuple[ModuleType, Any]]:
    """Those that can be had here: one needs an extra."""
    found: list[tuple[ModuleType, Any]] = [(agent_env, agent_env.AgentEnv), (vector, vector.OspVectorEnv)]
    if find_spec("pettingzoo"):
        from ospbridge.envs import parallel

        found.append((parallel, parallel.AgentsParallelEnv))
    return found


@pytest.mark.loopback
def test_each_kind_lists_and_heeds_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in kinds():
        parameters = inspect.signature(kind).parameters
        listed = {name: parameters[name] for name in options.Options.__annotations__}
        assert {name: each.default for name, each in listed.items()} == options.DEFAULTS
        assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        asked = Asked(options.DEFAULTS)
        with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator, monkeypatch.context() as patched:
            patched.setattr(module, "DEFAULTS", asked)
            kind(simulator=str(simulator.address)).close()
        assert asked.names == set(options.DEFAULTS)


def test_what_none_of_them_can_be_is_told_with_its_name() -> None:
    flags = [name for name, usual in options.DEFAULTS.items() if isinstance(usual, bool)]
    for _, kind in kinds():
        for name in options.DEFAULTS.keys() - flags - {"launch", "pin"}:  # see tests/launch
            with pytest.raises(UsageError, match=f"got \\['{name}'\\]") as caught:
                kind(simulator="127.0.0.1:1", **{name: [name]})
            assert name in f"{caught.value.message} {caught.value.hint}"


def made(kind: str, **options: Any) -> Any:
    """As each library makes one, of the only agent of a simulator."""
    if kind == "one":
        return gymnasium.make("ospbridge/Agent-v0", **options)
    if kind == "vector":
        return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, **options)
    if kind == "rllib":
        from ospbridge.envs.rllib import env_creator

        return env_creator({"simulators": [options.pop("simulator")], **options})
    if kind == "parallel":
        pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")
        from ospbridge.envs.parallel import parallel_env

        return parallel_env(**options)
    pytest.importorskip("stable_baselines3", reason="needs the extra: pip install 'ospbridge[sb3]'")
    from ospbridge.envs.sb3 import OspVecEnv

    return OspVecEnv.make(**options)


@pytest.mark.loopback
@pytest.mark.parametrize("kind", ["one", "vector", "parallel", "sb3", "rllib"])
def test_files_stay_below_the_directory_in_which_the_environment_was_made(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        env = made(kind, simulator=str(simulator.address), record="episodes", trace="t.jsonl")
        monkeypatch.chdir(elsewhere)
        env.reset()
        action = np.zeros(1, np.float32)
        env.step(
            dict.fromkeys(env.agents, action)
            if kind == "parallel"
            else action
            if kind in {"one", "rllib"}
            else action[None]
        )
        env.close()
    assert len(list(read_recording(here / "episodes"))) == 1
    assert any(record.note.startswith("NEXT_SIMULATION_STEP") for record in read_trace(here / "t.jsonl"))
    assert list(elsewhere.iterdir()) == []


def test_a_relative_file_where_the_directory_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for name in ("record", "trace"):
        with pytest.raises(UsageError, match=f"{name}='x' is relative to a directory that is not there"):
            made("one", simulator="127.0.0.1:1", **{name: "x"})
