"""How Gymnasium spaces become interface values: actions as inputs, observations as outputs, with names.

Ranges are announced raw; an infinite bound is legal. Classic environments get names that say what the numbers mean,
all others numbers behind ``/action`` and ``/observation``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gymnasium import spaces

from ospbridge.errors import ConfigurationError
from ospbridge.interface import InterfaceValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = ["ActionReader", "ObservationWriter", "action_reader", "agent_base_name", "observation_writer"]


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one classic environment's agent and interface values."""

    agent: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


_MOUNTAIN_CAR: Final = Names("car", ("/car/push",), ("/car/position", "/car/velocity"))

_NAMES: Final[dict[str, Names]] = {
    "CartPole": Names(
        "cart", ("/cart/push",), ("/cart/position", "/cart/velocity", "/pole/angle", "/pole/velocity")
    ),
    "Pendulum": Names(
        "pendulum", ("/pendulum/torque",), ("/pendulum/x", "/pendulum/y", "/pendulum/velocity")
    ),
    "MountainCar": _MOUNTAIN_CAR,
    "MountainCarContinuous": _MOUNTAIN_CAR,
    "Acrobot": Names(
        "acrobot",
        ("/acrobot/torque",),
        (
            "/first/cosine",
            "/first/sine",
            "/second/cosine",
            "/second/sine",
            "/first/velocity",
            "/second/velocity",
        ),
    ),
    "LunarLander": Names(
        "lander",
        (),
        (
            "/lander/x",
            "/lander/y",
            "/lander/velocity/x",
            "/lander/velocity/y",
            "/lander/angle",
            "/lander/velocity/angle",
            "/leg/left/contact",
            "/leg/right/contact",
        ),
    ),
}


def agent_base_name(env_id: str) -> str:
    """What an agent of this environment is called: ``CartPole-v1`` makes "cart"."""
    plain = _plain(env_id)
    return _NAMES[plain].agent if plain in _NAMES else plain.lower()


def _plain(env_id: str) -> str:
    """The id without namespace, module and version."""
    name = env_id.rpartition("/")[2].rpartition(":")[2]
    base, dash, version = name.rpartition("-v")
    return base if dash and version.isdigit() else name


def _interface_values(
    given: tuple[str, ...], low: Iterable[Any], high: Iterable[Any], prefix: str
) -> tuple[InterfaceValue, ...]:
    ranges = [(float(bottom), float(top)) for bottom, top in zip(low, high, strict=True)]
    names = given if len(given) == len(ranges) else [f"{prefix}/{index}" for index in range(len(ranges))]
    return tuple(InterfaceValue(name, *bounds) for name, bounds in zip(names, ranges, strict=True))


@dataclass(frozen=True, slots=True)
class ActionReader:
    """An action space as inputs: float32[n] -> an action of the space."""

    inputs: tuple[InterfaceValue, ...]
    read: Callable[[NDArray[np.float32]], Any]


@dataclass(frozen=True, slots=True)
class ObservationWriter:
    """An observation space as outputs: an observation -> float32[n]."""

    outputs: tuple[InterfaceValue, ...]
    write: Callable[[Any], Any]


def action_reader(env_id: str, space: spaces.Space[Any]) -> ActionReader:
    """Inputs for an action space. Raises ConfigurationError for a space that has none."""
    given = _NAMES[_plain(env_id)].inputs if _plain(env_id) in _NAMES else ()

    def inputs(low: Iterable[Any], high: Iterable[Any]) -> tuple[InterfaceValue, ...]:
        return _interface_values(given, low, high, "/action")

    if isinstance(space, spaces.Box):
        if not np.issubdtype(space.dtype, np.floating):
            return _integer_box(space, inputs)
        shape, dtype = space.shape, space.dtype
        return ActionReader(
            inputs(space.low.ravel(), space.high.ravel()), lambda values: values.astype(dtype).reshape(shape)
        )
    if isinstance(space, spaces.Discrete):
        start, last = int(space.start), int(space.start + space.n - 1)
        kind = type(space.start)

        def choose(values: NDArray[np.float32]) -> Any:
            return kind(min(max(round(float(values[0])), start), last))

        return ActionReader(inputs([start], [last]), choose)
    if isinstance(space, spaces.MultiDiscrete):
        return _multi_discrete(space, inputs)
    if isinstance(space, spaces.MultiBinary):
        shape, kind_ = space.shape, space.dtype
        ones = np.ones(int(np.prod(shape)))
        return ActionReader(
            inputs(0 * ones, ones), lambda values: np.rint(values).astype(kind_).reshape(shape)
        )
    raise ConfigurationError(
        f"{env_id}: action space {space} has no form as inputs",
        hint="Box, Discrete, MultiDiscrete and MultiBinary can be hosted; flatten others with a wrapper",
    )


def _integer_box(space: spaces.Box, inputs: Any) -> ActionReader:
    shape, dtype = space.shape, space.dtype
    low, high = space.low.ravel(), space.high.ravel()
    return ActionReader(
        inputs(low, high), lambda values: np.clip(np.rint(values), low, high).astype(dtype).reshape(shape)
    )


def _multi_discrete(space: spaces.MultiDiscrete, inputs: Any) -> ActionReader:
    shape, dtype = space.shape, space.dtype
    start = np.asarray(space.start).ravel()
    last = start + np.asarray(space.nvec).ravel() - 1
    return ActionReader(
        inputs(start, last), lambda values: np.clip(np.rint(values), start, last).astype(dtype).reshape(shape)
    )


def observation_writer(env_id: str, space: spaces.Space[Any]) -> ObservationWriter:
    """Outputs for an observation space. Raises ConfigurationError for a space of no fixed size."""
    given = _NAMES[_plain(env_id)].outputs if _plain(env_id) in _NAMES else ()

    def outputs(low: Iterable[Any], high: Iterable[Any]) -> tuple[InterfaceValue, ...]:
        return _interface_values(given, low, high, "/observation")

    if isinstance(space, spaces.Box):
        return ObservationWriter(outputs(space.low.ravel(), space.high.ravel()), np.ravel)
    if isinstance(space, spaces.Discrete):
        return ObservationWriter(
            outputs([int(space.start)], [int(space.start + space.n - 1)]), lambda seen: (float(seen),)
        )
    try:
        flat = spaces.utils.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ConfigurationError(
            f"{env_id}: observation space {space} has no fixed size",
            hint="host an environment whose observations can be flattened into a Box, or wrap it",
        )
    return ObservationWriter(
        outputs(flat.low, flat.high), lambda seen: np.asarray(spaces.utils.flatten(space, seen))
    )
