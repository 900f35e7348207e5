"""Environments of ospbridge for RLlib's own EnvRunners, each of which attaches to a place of its own.

A place is an agent of a bridge or simulator. RLlib gives every env runner the same ``env_config``; which place is its
own follows from its worker index. Sampling by a server of RLlib's, without Ray on this side, is another matter.

Facts about RLlib are of Ray 2.60.0: ``EnvContext`` carries ``worker_index`` (0: the local worker; None: an env runner
that a program makes by itself) and ``num_workers``; its ``vector_index`` stays 0 however many environments a runner
makes; with ``gym_env_vectorize_mode="vector_entry_point"`` a plain dict comes instead, from which the worker cannot be
told.
"""

from __future__ import annotations

import inspect
import multiprocessing
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gymnasium

from ospbridge.envs import AGENT_ID, SCENARIO_IDS, register_envs
from ospbridge.envs.agent_env import AgentEnv
from ospbridge.envs.options import is_remote
from ospbridge.errors import AgentTaken, ConfigurationError, UsageError
from ospbridge.toml.nearest import nearest
from ospbridge.transport.addresses import parse_endpoint
from ospbridge.transport.tls import parse_tls
from ospbridge.transport.unix import parse_unix

__all__ = ["Place", "SpacesOnly", "env_creator", "place_of", "register", "spaces"]

OWN_KEYS: Final = ("bridges", "simulators", "agents", "env_id", "observation_space", "action_space")
OPTIONS: Final = tuple(
    name
    for name in inspect.signature(AgentEnv).parameters
    if name not in {"simulator", "bridge", "agent"}  # their plurals take their place
)
TLS_OPTIONS: Final = tuple(name for name in OPTIONS if name.startswith("tls_"))


@dataclass(frozen=True, slots=True)
class Place:
    """What an environment attaches to: a bridge, a simulator, or (neither) the hub at the default path."""

    bridge: str | None = None
    simulator: str | None = None
    agent: str | None = None

    @property
    def address(self) -> str:
        """For people, and to tell simulators apart."""
        return self.bridge or self.simulator or "the default hub"


class _Placed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that holds its place until it is closed or collected."""

    def __init__(self, env: gymnasium.Env[Any, Any], place: Place) -> None:
        super().__init__(env)
        self.place = place
        _open.add(self)

    def close(self) -> None:
        _open.discard(self)
        super().close()


_open: weakref.WeakSet[_Placed] = weakref.WeakSet()
"""Those of this process: RLlib does not number the environments of one runner."""


class SpacesOnly(gymnasium.Env[Any, Any]):
    """Spaces and nothing behind them, for RLlib's local worker: where others sample, it holds no agent."""

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Raises UsageError, always."""
        raise UsageError(
            "the local worker's environment has spaces only, because the env runners hold the agents",
            hint="let env runners sample, or set num_env_runners=0",
        )

    def step(self, action: Any) -> Any:
        """Raises UsageError, always."""
        self.reset()


def register(name: str = "ospbridge") -> None:
    """Make ``name`` known to RLlib: ``config.environment(name, env_config={...})``."""
    try:
        from ray.tune.registry import register_env
    except ImportError as error:
        raise ConfigurationError(
            f"Ray cannot be imported: {error}", hint="pip install 'ospbridge[rllib]'"
        ) from None
    register_env(name, env_creator)


def env_creator(env_config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment of one env runner, attached to its place.

    ``env_config``: ``bridges`` ("unix:PATH", "tls://HOST:PORT", ...), ``simulators`` ("HOST:PORT", ...) or ``launch``
    (each environment starts its own), ``agents`` (names or globs, the same for each of them), ``env_id``,
    ``observation_space`` and ``action_space`` (see ``spaces``), and every option of ``AgentEnv``; its TLS files are for
    all bridges on other hosts. The local worker gets ``SpacesOnly`` where env runners sample. Raises ConfigurationError
    for what cannot work, and what attaching raises.
    """
    _check(env_config)
    worker = getattr(env_config, "worker_index", 0)
    if worker == 0 and (getattr(env_config, "num_workers", 0) or 0) > 0:
        return SpacesOnly(**_known_spaces(env_config))
    place = Place() if _launches(env_config) else _free_place(env_config)
    return _made(env_config, place)


def spaces(env_config: Mapping[str, Any]) -> dict[str, gymnasium.Space[Any]]:
    """``observation_space`` and ``action_space``, for ``config.environment(..., **spaces(env_config))``.

    Attaches to the first place for a moment, so it must be called before the env runners are there; or launches a
    simulator for that moment.
    """
    _check(env_config)
    env = _made(env_config, Place() if _launches(env_config) else _places(env_config)[0])
    try:
        return {"observation_space": env.observation_space, "action_space": env.action_space}
    finally:
        env.close()


def place_of(env_config: Mapping[str, Any], number: int = 0) -> Place:
    """The place of environment ``number`` of an env runner; those of n runners are dealt out in turn.

    Raises ConfigurationError where there are fewer places than environments.
    """
    _check(env_config)
    places = _places(env_config)
    runners: int = max(getattr(env_config, "num_workers", 0) or 0, 1)
    worker: int = max(getattr(env_config, "worker_index", 0) or 0, 1)
    if max(runners, worker) > len(places):
        raise ConfigurationError(
            f"{max(runners, worker)} env runners need a place each, and env_config names {_count(env_config)}",
            hint=f"set num_env_runners={len(places)}, or name more {_kind(env_config)} or agents in env_config",
        )
    at = worker - 1 + number * runners
    if at >= len(places):
        raise ConfigurationError(
            f"{number + 1} environments for each of {runners} env runners need {(number + 1) * runners} places, "
            f"and env_config names {_count(env_config)}",
            hint="set num_envs_per_env_runner=1, or name more bridges or simulators in env_config",
        )
    return places[at]


def _free_place(env_config: Mapping[str, Any]) -> Place:
    """The runner's first place that no environment of this process holds."""
    if multiprocessing.current_process().name.startswith("Worker<AsyncVectorEnv>"):
        raise ConfigurationError(
            "the environments of an env runner cannot be told apart in processes of their own",
            hint="leave gym_env_vectorize_mode at SYNC, or use more env runners",
        )
    held = {placed.place for placed in _open}
    number: int = getattr(env_config, "vector_index", 0)
    while (place := place_of(env_config, number)) in held:
        number += 1
    if any(other.address == place.address for other in held):
        raise ConfigurationError(
            f"two environments of one env runner would drive agents of {place.address}; "
            "agents of one simulator step together, so the second would wait for the first for ever",
            hint="set num_envs_per_env_runner=1 and use an env runner for each agent",
        )
    return place


def _made(env_config: Mapping[str, Any], place: Place) -> gymnasium.Env[Any, Any]:
    register_envs()
    options = {name: value for name, value in env_config.items() if name in OPTIONS}
    if any(map(is_remote, _listed(env_config, "bridges") or ())) and not is_remote(place.bridge):
        # The files are for the others.
        options = {name: value for name, value in options.items() if name not in TLS_OPTIONS}
    env = gymnasium.make(
        env_config.get("env_id", AGENT_ID),
        simulator=place.simulator,
        bridge=place.bridge,
        agent=_launched_agent(env_config) if _launches(env_config) else place.agent,
        disable_env_checker=True,  # RLlib's own gymnasium.make checks
        **options,
    )
    return _Placed(env, place)


def _launched_agent(env_config: Mapping[str, Any]) -> str | None:
    """The agent of a simulator that an environment has for itself."""
    agents = _listed(env_config, "agents") or (None,)
    if len(agents) > 1:
        raise ConfigurationError(
            f"env_config has launch and {len(agents)} agents, and each environment drives one agent of its simulator",
            hint="name one agent",
        )
    return agents[0]


def _launches(env_config: Mapping[str, Any]) -> bool:
    """Whether each environment starts a simulator of its own: then it needs no place."""
    if env_config.get("launch") in (None, False):
        return False
    for key in ("simulators", "bridges"):
        if env_config.get(key) is not None:
            raise ConfigurationError(
                f"env_config has both launch and {key}",
                hint="each environment launches its own; leave out the others",
            )
    return True


def _known_spaces(env_config: Mapping[str, Any]) -> dict[str, gymnasium.Space[Any]]:
    try:
        told = {key: env_config[key] for key in ("observation_space", "action_space")}
    except KeyError:
        pass
    else:
        return told
    try:
        return spaces(env_config)
    except AgentTaken as error:
        raise ConfigurationError(
            f"RLlib's local worker needs the spaces, and the env runners hold the agents: {error.message}",
            hint="leave create_env_on_local_worker off, or look before they start: "
            "env_config |= ospbridge.envs.rllib.spaces(env_config)",
        ) from None


def _check(env_config: Mapping[str, Any]) -> None:
    """Raises ConfigurationError for keys and ids that mean nothing here."""
    if "num_envs" in env_config:
        raise ConfigurationError(
            "gym_env_vectorize_mode is vector_entry_point, with which RLlib does not say which env runner asks",
            hint="leave it at SYNC",
        )
    known = (*OWN_KEYS, *OPTIONS)
    for key in env_config:
        if key not in known:
            raise ConfigurationError(
                f"env_config has the unknown key {key!r}",
                hint=nearest(str(key), known) or f"the keys are {', '.join(known)}",
            )
    env_id = env_config.get("env_id", AGENT_ID)
    ids = (AGENT_ID, *SCENARIO_IDS)
    if env_id not in ids and env_id not in gymnasium.registry:
        raise ConfigurationError(
            f"env_config names the unknown env_id {env_id!r}",
            hint=nearest(str(env_id), ids) or f"ospbridge has {', '.join(ids)}",
        )


def _places(env_config: Mapping[str, Any]) -> list[Place]:
    """Every agent of every bridge or simulator; neighbours in the list are on different ones."""
    bridges, simulators = _listed(env_config, "bridges"), _listed(env_config, "simulators")
    if bridges is not None and simulators is not None:
        raise ConfigurationError(
            "env_config has both bridges and simulators",
            hint="simulators are joined directly, bridges are hubs of `ospbridge connect`; name one kind",
        )
    for bridge in bridges or ():
        if is_remote(bridge):
            parse_tls(bridge)
        else:
            parse_unix(bridge)
    for simulator in simulators or ():
        parse_endpoint(simulator)
    agents: Sequence[str | None] = _listed(env_config, "agents") or (None,)
    if simulators is not None:
        return [Place(simulator=simulator, agent=agent) for agent in agents for simulator in simulators]
    hubs: Sequence[str | None] = bridges or (None,)
    return [Place(bridge=hub, agent=agent) for agent in agents for hub in hubs]


def _listed(env_config: Mapping[str, Any], key: str) -> list[str] | None:
    """One text or several, each once."""
    given = env_config.get(key)
    if given is None:
        return None
    listed = [given] if isinstance(given, str) else list(given)
    if not listed or not all(isinstance(text, str) for text in listed):
        raise ConfigurationError(
            f"env_config[{key!r}] is {given!r}, not a list of texts", hint="name at least one"
        )
    if twice := sorted({text for text in listed if listed.count(text) > 1}):
        raise ConfigurationError(
            f"env_config[{key!r}] has {twice[0]!r} more than once",
            hint="name it once; env runners that share a bridge or simulator are told apart by agents",
        )
    return listed


def _kind(env_config: Mapping[str, Any]) -> str:
    return "simulators" if env_config.get("simulators") is not None else "bridges"


def _count(env_config: Mapping[str, Any]) -> str:
    """How the number of places comes about."""
    kind = _kind(env_config)
    addresses, agents = (len(_listed(env_config, key) or (None,)) for key in (kind, "agents"))
    return f"{addresses * agents} ({kind}: {addresses}, agents for each: {agents})"
