"""Gymnasium environments as agents of one world, behind one barrier.

Each environment is an agent. The first step after a reset publishes the initial observation and does not advance the
environment, with reward 0 and both flags 0, while simulated time counts it like any other: OSP's reset brings no
observation. An environment that ended stays frozen, its outputs and flags as they are and its reward 0, until the
world is reset. With N iterations per step the environment advances N times.

Seeds: agent k of the world is reset with seed + k, so that agent 0 is the local environment of that seed, bit for bit.
"""

from __future__ import annotations

import math
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np

from ospbridge.errors import ConfigurationError, OspBridgeError, WorldFailed
from ospbridge.interface import InterfaceValue
from ospbridge.osp.repository import double_variable
from ospbridge.osp.world import WorldAgent
from ospbridge.simulator.gym_spaces import action_reader, agent_base_name, observation_writer
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.osp.world import Variable

__all__ = ["EPISODE_ENDED", "GymWorld"]

EPISODE_ENDED: Final = "/episode/ended"

INFOS: Final = (
    InterfaceValue("/episode/reward", -math.inf, math.inf),
    InterfaceValue("/episode/terminated", 0.0, 1.0),
    InterfaceValue("/episode/truncated", 0.0, 1.0),
)


class HostedEnv:
    """One environment, driven through its agent's arrays."""

    def __init__(self, name: str, env_id: str) -> None:
        self.env_id = env_id
        self.env = _make(env_id)
        self._action = action_reader(env_id, self.env.action_space)
        self._observation = observation_writer(env_id, self.env.observation_space)
        self.agent = WorldAgent(name, self._action.inputs, self._observation.outputs, INFOS, type=env_id)
        self._fresh = False
        self._frozen = False

    def reset(self, seed: int | None) -> None:
        """Start an episode; its first observation is published by the next step."""
        try:
            observation, _ = self.env.reset(seed=seed)
            self._first = self._fitting(observation)
        except Exception as error:
            raise self._failed("reset", error) from error
        self._fresh, self._frozen = True, False
        self.agent.infos[:] = 0.0

    def step(self) -> bool:
        """Advance, unless fresh or frozen; True if the episode ended in this step."""
        agent = self.agent
        if self._fresh:
            self._fresh = False
            agent.outputs[:] = self._first
            return False
        if self._frozen:
            agent.infos[0] = 0.0
            return False
        inputs = agent.inputs
        if np.isnan(inputs).any():
            # Engines written in C++ abort on NaN; a motor that is given no number rests.
            inputs = np.where(np.isnan(inputs), agent.neutral, inputs)
        try:
            observation, reward, terminated, truncated, _ = self.env.step(self._action.read(inputs))
            agent.outputs[:] = self._fitting(observation)
            agent.infos[:] = float(reward), terminated, truncated
            self._frozen = bool(terminated or truncated)
        except Exception as error:
            raise self._failed("step", error) from error
        return self._frozen

    def _fitting(self, observation: Any) -> Any:
        """As outputs. Raises ValueError for an observation of another size than its space has."""
        written = self._observation.write(observation)
        if len(written) != len(self.agent.outputs):
            raise ValueError(
                f"its observation has {pluralize(len(written), 'number')}, its "
                f"observation space {len(self.agent.outputs)}"
            )
        return written

    def _failed(self, what: str, error: Exception) -> WorldFailed:
        return WorldFailed(
            f"environment {self.env_id!r} of agent {self.agent.name!r} failed in a {what}: {_told(error)}"
        )

    def parameters(self) -> Iterable[Variable]:
        """Public numbers of the environment, such as gravity and masses, as settable variables."""
        target = self.env.unwrapped
        for name, value in sorted(vars(target).items()):
            if not name.startswith("_") and isinstance(value, int | float) and not isinstance(value, bool):
                yield _parameter(f"/Sim/{self.agent.name}/Parameter/{name}", target, name)


def _parameter(path: str, target: object, name: str) -> Variable:
    """What the environment has made something else of, which is no number, reads as NaN and is not to be set."""

    def read() -> float:
        try:
            return float(getattr(target, name, math.nan))
        except (TypeError, ValueError, OverflowError):
            return math.nan

    def write(value: float) -> bool:
        before = getattr(target, name, None)
        if not isinstance(before, int | float | np.number):
            return False
        setattr(target, name, int(value) if isinstance(before, int) and value.is_integer() else value)
        return True

    return double_variable(path, read, write)


class GymWorld:
    """Environments by id, one agent each; names that occur several times are numbered from 1."""

    def __init__(self, env_ids: Sequence[str], *, time_step: float = 0.01) -> None:
        if not env_ids:
            raise ConfigurationError("a world needs at least one environment", hint="name one with --env")
        bases = [agent_base_name(env_id) for env_id in env_ids]
        total, count = Counter(bases), Counter[str]()
        self.hosted: list[HostedEnv] = []
        for base, env_id in zip(bases, env_ids, strict=True):
            count[base] += 1
            name = f"{base}{count[base]}" if total[base] > 1 else base
            self.hosted.append(HostedEnv(name, env_id))
        self.agents = [hosted.agent for hosted in self.hosted]
        self.variables = [variable for hosted in self.hosted for variable in hosted.parameters()]
        self.events = (EPISODE_ENDED,)
        self.time_step = time_step
        self._occurred: list[str] = []

    def reset(self, seed: int) -> None:
        """Reset every environment. A negative seed stands for its 32 bits, since Gymnasium wants none below 0."""
        for index, hosted in enumerate(self.hosted):
            hosted.reset((seed & 0xFFFF_FFFF) + index if seed else None)

    def step(self) -> None:
        """Advance every environment that has not ended."""
        for hosted in self.hosted:
            if hosted.step():
                self._occurred.append(EPISODE_ENDED)

    def take_events(self) -> list[str]:
        """The ends of episodes since the last call."""
        events, self._occurred = self._occurred, []
        return events

    def close(self) -> None:
        """Close all environments."""
        for hosted in self.hosted:
            hosted.env.close()


def _make(env_id: str) -> gymnasium.Env[Any, Any]:
    """The environment, without rendering and without the checker, which would slow every step."""
    module, colon, name = env_id.partition(":")
    if colon and (not module or ":" in name or "/" in module or module.endswith(".py")):
        raise ConfigurationError(
            f"Gymnasium cannot make {env_id!r}: what stands before the only ':' is the module that registers it",
            hint="for instance --env my_package:MyEnv-v0, or for a file worlds.py in this directory PYTHONPATH=. and "
            "--env worlds:MyEnv-v0",
        )
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        if "mujoco_py" in str(error):
            raise ConfigurationError(
                f"{env_id} needs mujoco_py, which is no longer maintained",
                hint="host a later version of it: Gymnasium's from -v4 on need only the package mujoco",
            ) from None
        raise ConfigurationError(
            f"{env_id} needs a package that is not installed: {error}",
            hint=f"pip install 'gymnasium[{_extra(str(error))}]'",
        ) from None
    except ModuleNotFoundError as error:
        # Gymnasium says in an error of its own what the module of the id could not import.
        missing = error.name or getattr(error.__cause__ or error.__context__, "name", None) or module
        raise ConfigurationError(
            f"{env_id} needs the module {missing}, which is not installed",
            hint=f"pip install {missing}, or have PYTHONPATH name the directory that it is in",
        ) from None
    except gymnasium.error.Error as error:
        raise ConfigurationError(
            f"Gymnasium cannot make {env_id!r}: {error}",
            hint="python -c 'import gymnasium; gymnasium.pprint_registry()' lists what there is"
            + ("" if colon else "; an id of another package begins with its module, as in --env minigrid:ID"),
        ) from None
    except OspBridgeError:
        raise  # of an environment of ours
    except Exception as error:
        raise ConfigurationError(
            f"environment {env_id!r} cannot be made: {_told(error)}",
            hint="make it by itself, with gymnasium.make: its own traceback says more",
        ) from error


def _told(error: Exception) -> str:
    """Its kind and text, if it has one: a bare ``assert`` has none, so that where it stands must tell it."""
    if str(error):
        return f"{type(error).__name__}: {error}"
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{type(error).__name__} in {frame.f_code.co_filename}, line {line}"


def _extra(complaint: str) -> str:
    """Which of Gymnasium's extras the complaint is about."""
    lowered = complaint.lower()
    for word, extra in (
        ("box2d", "box2d"),
        ("mujoco", "mujoco"),
        ("ale", "atari"),
        ("pygame", "classic-control"),
    ):
        if word in lowered:
            return extra
    return "all"
