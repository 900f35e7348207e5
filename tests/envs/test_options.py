"""Options that environments of all kinds have: each kind lists them alike, heeds them, and tells what cannot be."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.envs import agent_env, options
from ospbridge.envs import vector as vector_env
from ospbridge.envs.rllib import env_creator
from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.observe.trace import read_trace
from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import parallel, rest, single, vector

if TYPE_CHECKING:
    from collections.abc import Callable
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
    found: list[tuple[ModuleType, Any]] = [
        (agent_env, agent_env.AgentEnv),
        (vector_env, vector_env.OspVectorEnv),
    ]
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


def rllib_env(simulator: str, **options: Any) -> Any:
    return env_creator({"simulators": [simulator], **options})


def sb3_env(**options: Any) -> Any:
    pytest.importorskip("stable_baselines3", reason="needs the extra: pip install 'ospbridge[sb3]'")
    from ospbridge.envs.sb3 import OspVecEnv

    return OspVecEnv.make(**options)


@pytest.mark.loopback
@pytest.mark.parametrize("made", [single, vector, parallel, sb3_env, rllib_env])
def test_files_stay_below_the_directory_in_which_the_environment_was_made(
    made: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        env = made(simulator=str(simulator.address), record="episodes", trace="t.jsonl")
        monkeypatch.chdir(elsewhere)
        env.reset()
        env.step(np.zeros((1, 1), np.float32) if made is sb3_env else rest(env))
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
            single("127.0.0.1:1", **{name: "x"})


@pytest.mark.parametrize(
    "module, package, extra",
    [("parallel", "pettingzoo", "pettingzoo"), ("sb3", "stable_baselines3", "sb3")],
)
def test_without_the_library_the_error_says_how_to_get_it(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"ospbridge.envs.{module}", raising=False)
    with pytest.raises(ConfigurationError, match=re.escape(f"pip install 'ospbridge[{extra}]'")):
        importlib.import_module(f"ospbridge.envs.{module}")
