"""Options that environments of all kinds have: each kind lists them alike, heeds them, and tells what cannot be."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.envs import agent_env, options, vector
from ospbridge.errors import UsageError
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from types import ModuleType

FLAGS = [name for name, usual in options.DEFAULTS.items() if isinstance(usual, bool)]


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


def test_each_kind_lists_all_of_them_as_help_shows_them() -> None:
    for _, kind in kinds():
        parameters = inspect.signature(kind).parameters
        listed = {name: parameters[name] for name in options.Options.__annotations__}
        assert {name: each.default for name, each in listed.items()} == options.DEFAULTS
        assert listed["wait"].annotation is float
        assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())


@pytest.mark.loopback
def test_each_kind_heeds_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in kinds():
        asked = Asked(options.DEFAULTS)
        with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator, monkeypatch.context() as patched:
            patched.setattr(module, "DEFAULTS", asked)
            kind(simulator=str(simulator.address)).close()
        assert asked.names == set(options.DEFAULTS)


@pytest.mark.parametrize("name", [name for name in options.DEFAULTS if name not in FLAGS])
def test_what_none_of_them_can_be_is_told_with_its_name(name: str) -> None:
    for _, kind in kinds():
        with pytest.raises(UsageError) as caught:
            kind(simulator="127.0.0.1:1", **{name: [name]})
        assert name in f"{caught.value.message} {caught.value.hint}"
        assert f"got ['{name}']" in caught.value.message
