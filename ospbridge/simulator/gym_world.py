"""Gymnasium environments as agents of one world, behind one barrier: actions as inputs, observations as outputs.

Each environment is an agent. The first step after a reset publishes the initial observation and does not advance the
environment, with reward 0 and both flags 0, while simulated time counts it like any other: OSP's reset brings no
observation. An environment that ended stays frozen, its outputs and flags as they are and its reward 0, until the
world is reset. With N iterations per step the environment advances N times.

Seeds: agent k of the world is reset with seed + k, so that agent 0 is the local environment of that seed, bit for bit.

Ranges are announced raw; an infinite bound is legal, and stands for one that no float of 4 bytes holds. Classic
environments get names that say what the numbers mean, all others numbers behind ``/action`` and ``/observation``, with
the keys of a Dict and the places of a Tuple in between.
"""

from __future__ import annotations

import math
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ospbridge.errors import ConfigurationError, OspBridgeError, WorldFailed
from ospbridge.interface import InterfaceValue
from ospbridge.osp.repository import double_variable
from ospbridge.osp.world import WorldAgent
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.osp.world import Variable

__all__ = ["EPISODE_ENDED", "GymWorld", "action_reader", "agent_base_name", "observation_writer"]

EPISODE_ENDED: Final = "/episode/ended"
INFOS: Final = (
    InterfaceValue("/episode/reward", -math.inf, math.inf),
    InterfaceValue("/episode/terminated", 0.0, 1.0),
    InterfaceValue("/episode/truncated", 0.0, 1.0),
)
LARGEST: Final = float(np.finfo(np.float32).max)
WRAP: Final = "change the space with a wrapper, and register what is wrapped under an id of its own"
_NAMES: Final = {
    "CartPole": ("cart", "/cart/push", "/cart/position /cart/velocity /pole/angle /pole/velocity"),
    "Pendulum": ("pendulum", "/pendulum/torque", "/pendulum/x /pendulum/y /pendulum/velocity"),
    "MountainCar": ("car", "/car/push", "/car/position /car/velocity"),
    "MountainCarContinuous": ("car", "/car/push", "/car/position /car/velocity"),
    "Acrobot": (
        "acrobot",
        "/acrobot/torque",
        "/first/cosine /first/sine /second/cosine /second/sine /first/velocity /second/velocity",
    ),
    "LunarLander": (
        "lander",
        "",
        """/lander/x /lander/y /lander/velocity/x /lander/velocity/y /lander/angle /lander/velocity/angle
        /leg/left/contact /leg/right/contact""",
    ),
}
"""Of classic environments: the agent's name, those of inputs, and those of outputs."""


def _names(env_id: str) -> tuple[str, list[str], list[str]]:
    """Names of the agent, its inputs and its outputs, as far as they are known."""
    name = env_id.rpartition("/")[2].rpartition(":")[2]
    base, dash, version = name.rpartition("-v")
    plain = base if dash and version.isdigit() else name
    agent, inputs, outputs = _NAMES.get(plain, (plain.lower(), "", ""))
    return agent, inputs.split(), outputs.split()


def agent_base_name(env_id: str) -> str:
    """What an agent of this environment is called: ``CartPole-v1`` makes "cart"."""
    return _names(env_id)[0]


# --- spaces -----------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """The form of a space in OSP."""

    values: tuple[InterfaceValue, ...]
    convert: Callable[[Any], Any]
    """From float32[n] to an action, or from an observation to float[n]."""


def action_reader(env_id: str, space: spaces.Space[Any]) -> Form:
    """Inputs for an action space. Raises ConfigurationError for a space that has none."""
    bounds: tuple[Any, Any]
    match space:
        case spaces.Box():
            bounds = space.low, space.high
        case spaces.Discrete():
            bounds = space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            bounds = space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            bounds = np.zeros(space.shape), np.ones(space.shape)
        case _:
            raise ConfigurationError(
                f"{env_id}: action space {space} has no form as inputs: "
                "only Box, Discrete, MultiDiscrete and MultiBinary have",
                hint=WRAP,
            )
    low, high = (np.ravel(bound) for bound in bounds)
    shape, dtype = space.shape, space.dtype
    whole = not np.issubdtype(dtype, np.floating)

    def read(values: NDArray[np.float32]) -> Any:
        wanted = np.rint(values) if whole else values
        # Floats of 4 bytes are coarser than bounds of 8: next to 0.1 is one beyond it, next to 2**63 - 1 no int64.
        with np.errstate(invalid="ignore"):
            action = wanted.astype(dtype)
        action = (
            np.where(wanted >= high, high, np.where(wanted <= low, low, action)).astype(dtype).reshape(shape)
        )
        return action[()] if isinstance(space, spaces.Discrete) else action

    known = _names(env_id)[1]
    names = known if len(known) == len(low) else [f"/action/{index}" for index in range(len(low))]
    return Form(_values(names, low, high), read)


def observation_writer(env_id: str, space: spaces.Space[Any]) -> Form:
    """Outputs for an observation space. Raises ConfigurationError for a space of no fixed size."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        numbers = _values(["/observation/0"], [start], [start + int(space.n) - 1])
        return Form(numbers, lambda seen: (float(seen),))
    try:
        flat: Any = spaces.utils.flatten_space(space)
    except (NotImplementedError, ValueError):
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ConfigurationError(
            f"{env_id} has an observation without a fixed count of numbers: {space}", hint=WRAP
        )
    known = _names(env_id)[2]
    names = known if len(known) == len(flat.low) else _observed_names(space, "/observation")
    return Form(
        _values(names, flat.low, flat.high), lambda seen: np.asarray(spaces.utils.flatten(space, seen))
    )


def _observed_names(space: spaces.Space[Any], prefix: str) -> list[str]:
    """Names of the numbers that the space is flattened to, in their order."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [name for key, part in parts for name in _observed_names(part, f"{prefix}/{key}")]
    return [f"{prefix}/{index}" for index in range(spaces.utils.flatdim(space))]


def _values(names: Sequence[str], low: Iterable[Any], high: Iterable[Any]) -> tuple[InterfaceValue, ...]:
    limits = ([_limit(bound) for bound in bounds] for bounds in (low, high))
    return tuple(map(InterfaceValue, names, *limits))


def _limit(bound: Any) -> float:
    """A bound, infinite where OSP's floats of 4 bytes do not reach it."""
    limit = float(bound)
    return limit if abs(limit) <= LARGEST else math.copysign(math.inf, limit)


# --- environments -----------------------------------------------------------------------------------------------------


class HostedEnv:
    """One environment, driven through its agent's arrays."""

    def __init__(self, name: str, env_id: str) -> None:
        self.env_id = env_id
        self.env = _make(env_id)
        inputs, self._action = action_reader(env_id, self.env.action_space)
        outputs, self._written = observation_writer(env_id, self.env.observation_space)
        self.agent = WorldAgent(name, inputs, outputs, INFOS, type=env_id)
        self._first: Any = None
        """The first observation of an episode, until it is published."""
        self._frozen = False

    def reset(self, seed: int | None) -> None:
        """Start an episode; its first observation is published by the next step."""
        try:
            observation, _ = self.env.reset(seed=seed)
            self._first = self._fitting(observation)
        except Exception as error:
            raise self._failed("reset", error) from error
        self._frozen = False
        self.agent.infos[:] = 0.0

    def step(self) -> bool:
        """Advance, unless fresh or frozen; True if the episode ended in this step."""
        agent = self.agent
        if self._first is not None:
            agent.outputs[:], self._first = self._first, None
            return False
        if self._frozen:
            agent.infos[0] = 0.0
            return False
        # Engines written in C++ abort on NaN; a motor that is given no number rests.
        inputs = np.where(np.isnan(agent.inputs), agent.neutral, agent.inputs)
        try:
            observation, reward, terminated, truncated, _ = self.env.step(self._action(inputs))
            agent.outputs[:] = self._fitting(observation)
            agent.infos[:] = float(reward), terminated, truncated
            self._frozen = bool(terminated or truncated)
        except Exception as error:
            raise self._failed("step", error) from error
        return self._frozen

    def _fitting(self, observation: Any) -> Any:
        """As outputs. Raises ValueError for an observation of another size than its space has."""
        written = self._written(observation)
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
        total, count = Counter(map(agent_base_name, env_ids)), Counter[str]()
        self.hosted: list[HostedEnv] = []
        for env_id in env_ids:
            base = agent_base_name(env_id)
            count[base] += 1
            self.hosted.append(HostedEnv(f"{base}{count[base]}" if total[base] > 1 else base, env_id))
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
        self._occurred += [EPISODE_ENDED for hosted in self.hosted if hosted.step()]

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
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigurationError(
            f"{env_id} needs a package that is not installed: {error}",
            hint="install it; of environments that need mujoco_py host a later version, which needs mujoco",
        ) from None
    except ModuleNotFoundError as error:
        # Gymnasium says in an error of its own what the module of the id could not import.
        missing = error.name or getattr(error.__cause__ or error.__context__, "name", None) or env_id
        raise ConfigurationError(
            f"{env_id} needs the module {missing}, which is not installed",
            hint=f"pip install {missing}, or have PYTHONPATH name the directory that it is in: PYTHONPATH=. and "
            "--env worlds:MyEnv-v0 for a file worlds.py in this one",
        ) from None
    except gymnasium.error.Error as error:
        raise ConfigurationError(
            f"Gymnasium cannot make {env_id!r}: {error}",
            hint="python -c 'import gymnasium; gymnasium.pprint_registry()' lists what there is; an id of another "
            "package begins with its module, as in --env minigrid:ID",
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
