"""What an environment was made with, as gymnasium writes it down: recordings keep it, to make the environment again.

Gymnasium tells an environment its spec once that is made, so that it is asked for when an episode begins.
"""

from __future__ import annotations

import json
import os
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnasium import Env
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

__all__ = ["spec_of_agent"]

OF_VECTORS: Final = frozenset({"num_envs", "agents", "autoreset_mode", "copy", "vectorization_mode"})
"""Keywords of vector environments only: an agent of one is recorded as a single environment has it."""


def spec_of_agent(env: Env[Any, Any] | VectorEnv[Any, Any, Any]) -> Callable[[str, str], str]:
    """Tells for an address and an agent of ``env`` with what ``gymnasium.make`` makes its environment: JSON.

    Empty where gymnasium did not make ``env``, and where its spec cannot be written down. Keeps no environment alive.
    """
    made = weakref.ref(env)

    def told(address: str, agent: str) -> str:
        env = made()
        if env is None or env.spec is None:
            return ""
        try:
            return _of_one(env.spec, address, agent).to_json()
        except (TypeError, ValueError):
            # A class or function is registered, not its name.
            return ""

    return told


def _of_one(spec: EnvSpec, address: str, agent: str) -> EnvSpec:
    kwargs = _writable(spec.kwargs)
    if "num_envs" in kwargs:
        kwargs = {name: given for name, given in kwargs.items() if name not in OF_VECTORS}
        kwargs["agent"] = agent
        for where in ("simulator", "bridge"):
            if kwargs.get(where) is not None:
                kwargs[where] = address
    return replace(spec, kwargs=kwargs)


def _writable(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those that JSON can hold, and paths as texts."""
    found = {}
    for name, given in kwargs.items():
        value = os.fspath(given) if isinstance(given, os.PathLike) else given
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        found[name] = value
    return found
