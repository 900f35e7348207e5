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
