"""How Gymnasium spaces become interface values: actions as inputs, observations as outputs, with names.

Ranges are announced raw; an infinite bound is legal, and stands for one that no float of 4 bytes holds. Classic
environments get names that say what the numbers mean, all others numbers behind ``/action`` and ``/observation``, with
the keys of a Dict and the places of a Tuple in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gymnasium import spaces

from ospbridge.errors import ConfigurationError
from ospbridge.interface import InterfaceValue
from ospbridge.simulator.hosting import LARGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["ActionReader", "ObservationWriter", "action_reader", "agent_base_name", "observation_writer"]


FLOAT: Final = 4
"""Bytes of a number of OSP."""
WRAP: Final = "change the space with a wrapper, and register what is wrapped under an id of its own"


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
    given: tuple[str, ...], low: Iterable[Any], high: Iterable[Any], others: Callable[[int], Sequence[str]]
) -> tuple[InterfaceValue, ...]:
    """``others``: the names of so many values, where those that are ``given`` are not as many."""
    ranges = [(_limit(bottom), _limit(top)) for bottom, top in zip(low, high, strict=True)]
    names = given if len(given) == len(ranges) else others(len(ranges))
    return tuple(InterfaceValue(name, *bounds) for name, bounds in zip(names, ranges, strict=True))


def _limit(bound: Any) -> float:
    """A bound, infinite where OSP's floats of 4 bytes do not reach it."""
    limit = float(bound)
    return limit if abs(limit) <= LARGEST else math.copysign(math.inf, limit)


def _numbered(prefix: str) -> Callable[[int], list[str]]:
    return lambda count: [f"{prefix}/{index}" for index in range(count)]


def _parts(space: spaces.Space[Any]) -> list[tuple[Any, spaces.Space[Any]]] | None:
    """What the space consists of, by key or place; None if it is one thing."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return None


def _observed_names(space: spaces.Space[Any], prefix: str) -> list[str]:
    """Names of the numbers that the space is flattened to, in their order."""
    parts = _parts(space)
    if parts is None:
        return _numbered(prefix)(spaces.utils.flatdim(space))
    return [name for key, part in parts for name in _observed_names(part, f"{prefix}/{key}")]


def _unfit(space: spaces.Space[Any], place: str) -> list[str]:
    """What of an observation space is not flattened to a fixed count of numbers."""
    parts = _parts(space)
    if parts is not None:
        found = [each for key, part in parts for each in _unfit(part, f"{place}[{key!r}]")]
        return found if parts else [f"{place} is empty"]
    try:
        fits = isinstance(spaces.utils.flatten_space(space), spaces.Box)
    except (NotImplementedError, ValueError):
        fits = False
    return [] if fits else [f"{place} is a {type(space).__name__}"]


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
        return _interface_values(given, low, high, _numbered("/action"))

    if isinstance(space, spaces.Box):
        return _box(space, inputs)
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
        f"{env_id}: action space {space} has no form as inputs: only Box, Discrete, MultiDiscrete and MultiBinary have",
        hint=WRAP,
    )


def _box(space: spaces.Box, inputs: Any) -> ActionReader:
    shape, dtype = space.shape, space.dtype
    low, high = space.low.ravel(), space.high.ravel()
    whole = not np.issubdtype(dtype, np.floating)

    def read(values: NDArray[np.float32]) -> Any:
        return values.astype(dtype).reshape(shape)

    def read_within(values: NDArray[np.float32]) -> Any:
        wanted = np.rint(values) if whole else values
        # Floats of 4 bytes are coarser than bounds of 8: next to 0.1 is one beyond it, next to 2**63 - 1 no int64.
        with np.errstate(invalid="ignore"):
            action = wanted.astype(dtype)
        return np.where(wanted >= high, high, np.where(wanted <= low, low, action)).reshape(shape)

    return ActionReader(inputs(low, high), read_within if whole or dtype.itemsize > FLOAT else read)


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
        return _interface_values(given, low, high, lambda _: _observed_names(space, "/observation"))

    if isinstance(space, spaces.Box):
        return ObservationWriter(outputs(space.low.ravel(), space.high.ravel()), np.ravel)
    if isinstance(space, spaces.Discrete):
        return ObservationWriter(
            _interface_values(
                given, [int(space.start)], [int(space.start + space.n - 1)], _numbered("/observation")
            ),
            lambda seen: (float(seen),),
        )
    if unfit := _unfit(space, "the observation"):
        raise ConfigurationError(
            f"{env_id} has an observation without a fixed count of numbers: {', '.join(unfit)}", hint=WRAP
        )
    flat: Any = spaces.utils.flatten_space(space)
    return ObservationWriter(
        outputs(flat.low, flat.high), lambda seen: np.asarray(spaces.utils.flatten(space, seen))
    )
