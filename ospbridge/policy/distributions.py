"""What actions are drawn from: the distributions that RLlib makes of a module's outputs.

Each takes ``inputs`` numbers a row, as RLlib calls them ``action_dist_inputs``, and gives actions with the logarithm
of their probability (of their density, for a Gaussian). ``random`` is None for the greedy action: the most probable
choice, the mean. Rows are drawn in order, so that one batch draws what its rows would draw one after the other.

Facts: ``TorchCategorical``, ``TorchMultiCategorical`` and ``TorchDiagGaussian`` of Ray 2.60.0.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, DiscreteSpace

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ActionSpace",
    "Categorical",
    "DiagGaussian",
    "Distribution",
    "MultiCategorical",
    "MultiDiscreteSpace",
    "distribution",
]

_FEW: Final = 256
"""Up to so many logits plain numbers are several times quicker than arrays."""
_LOG_SQRT_TWO_PI: Final = math.log(math.sqrt(2.0 * math.pi))


@dataclass(frozen=True, slots=True)
class MultiDiscreteSpace:
    """Several choices at once, each one of so many, counted from 0."""

    sizes: tuple[int, ...]


ActionSpace: TypeAlias = BoxSpace | DiscreteSpace | MultiDiscreteSpace
"""What a policy can choose from."""


class Distribution(Protocol):
    """Drawing, and how probable what was drawn is."""

    inputs: int
    """Numbers that a row is made from."""

    def draw(
        self, inputs: NDArray[np.float32], random: np.random.Generator | None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Actions and float32[B] for float32[B, inputs]."""

    def draw_row(self, inputs: NDArray[np.float32], random: np.random.Generator | None) -> tuple[Any, float]:
        """The same for float32[inputs]; quicker."""

    def logp(self, inputs: NDArray[np.float32], actions: NDArray[Any]) -> NDArray[np.float32]:
        """float32[B] for actions that were drawn before."""


class Categorical:
    """One of ``n`` choices, by their logits. Actions are an int, or int64[B]."""

    def __init__(self, n: int) -> None:
        self.inputs = n

    def draw(
        self, inputs: NDArray[np.float32], random: np.random.Generator | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return self.draw_at(inputs, None if random is None else random.random(len(inputs)))

    def draw_at(
        self, inputs: NDArray[np.float32], places: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """What stands at ``places``, float64[B] within [0, 1), when the choices share this range.

        None: the most probable ones.
        """
        if inputs.size <= _FEW:
            at: list[float | None] = [None] * len(inputs) if places is None else places.tolist()
            drawn = [_pick(logits, place) for logits, place in zip(inputs.tolist(), at, strict=True)]
            pairs = np.array(drawn, np.float64).reshape(-1, 2)
            return pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.float32)
        below = _below_zero(inputs)
        sums = np.cumsum(np.exp(below), axis=1)
        if places is None:
            actions = inputs.argmax(1)
        else:
            actions = (sums <= places[:, None] * sums[:, -1:]).sum(1)
        chosen = np.take_along_axis(below, np.minimum(actions, self.inputs - 1)[:, None], 1)[:, 0]
        return actions, (chosen - np.log(sums[:, -1])).astype(np.float32)

    def draw_row(self, inputs: NDArray[np.float32], random: np.random.Generator | None) -> tuple[int, float]:
        return _pick(inputs.tolist(), None if random is None else random.random())

    def logp(self, inputs: NDArray[np.float32], actions: NDArray[Any]) -> NDArray[np.float32]:
        below = _below_zero(inputs)
        chosen = np.take_along_axis(below, actions[:, None], 1)[:, 0]
        logp: NDArray[np.float64] = chosen - np.log(np.exp(below).sum(1))
        return logp.astype(np.float32)


class MultiCategorical:
    """Several choices at once. Actions are int64[m], or int64[B, m]; the logits of all choices stand in one row."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.inputs = sum(sizes)
        self._parts = [
            (Categorical(size), slice(sum(sizes[:at]), sum(sizes[: at + 1]))) for at, size in enumerate(sizes)
        ]

    def draw(
        self, inputs: NDArray[np.float32], random: np.random.Generator | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        places = None if random is None else random.random((len(inputs), len(self._parts)))
        drawn = [
            part.draw_at(inputs[:, columns], None if places is None else places[:, at])
            for at, (part, columns) in enumerate(self._parts)
        ]
        actions = np.stack([chosen for chosen, _ in drawn], axis=1)
        return actions, _added([logp for _, logp in drawn])

    def draw_row(
        self, inputs: NDArray[np.float32], random: np.random.Generator | None
    ) -> tuple[NDArray[np.int64], float]:
        logits: list[float] = inputs.tolist()
        drawn = [
            _pick(logits[columns], None if random is None else random.random()) for _, columns in self._parts
        ]
        return np.array([chosen for chosen, _ in drawn]), sum(logp for _, logp in drawn)

    def logp(self, inputs: NDArray[np.float32], actions: NDArray[Any]) -> NDArray[np.float32]:
        parts = [
            part.logp(inputs[:, columns], actions[:, at]) for at, (part, columns) in enumerate(self._parts)
        ]
        return _added(parts)


class DiagGaussian:
    """``size`` independent numbers, by their means and then the logarithms of their standard deviations.

    Actions are float32[size], or float32[B, size], unbounded. Their density is that of the rounded action, as a
    learner computes it again.
    """

    def __init__(self, size: int) -> None:
        self.inputs = 2 * size
        self._size = size
        self._constant = size * _LOG_SQRT_TWO_PI
        self._ones = np.ones(size, np.float32)
        self._deviation = np.empty(size, np.float32)
        self._away = np.empty(size, np.float32)

    def draw(
        self, inputs: NDArray[np.float32], random: np.random.Generator | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        means = inputs[:, : self._size]
        if random is None:
            actions = means.copy()
        else:
            actions = random.standard_normal(means.shape, np.float32)
            actions *= np.exp(inputs[:, self._size :])
            actions += means
        return actions, self.logp(inputs, actions)

    def draw_row(
        self, inputs: NDArray[np.float32], random: np.random.Generator | None
    ) -> tuple[NDArray[np.float32], float]:
        mean, log_deviation = inputs[: self._size], inputs[self._size :]
        deviation, away = self._deviation, self._away
        np.exp(log_deviation, deviation)
        if random is None:
            action = mean.copy()
        else:
            action = random.standard_normal(self._size, np.float32)
            np.multiply(action, deviation, action)
            np.add(action, mean, action)
        np.subtract(action, mean, away)
        np.divide(away, deviation, away)
        # Products with ones add up quicker than sums do.
        logp = -0.5 * float(np.dot(away, away)) - float(np.dot(log_deviation, self._ones)) - self._constant
        return action, logp

    def logp(self, inputs: NDArray[np.float32], actions: NDArray[Any]) -> NDArray[np.float32]:
        log_deviations = inputs[:, self._size :]
        away = (actions - inputs[:, : self._size]) / np.exp(log_deviations)
        logp: NDArray[np.float32] = -0.5 * (away * away).sum(1) - log_deviations.sum(1) - self._constant
        return logp.astype(np.float32, copy=False)


def distribution(space: ActionSpace) -> Distribution:
    """What actions of ``space`` are drawn from. Raises ConfigurationError where there is nothing to choose."""
    if not isinstance(space, BoxSpace | DiscreteSpace | MultiDiscreteSpace):
        raise ConfigurationError(
            f"the action space is {space!r}, expected one of ospbridge",
            hint="make one of gymnasium's Box BoxSpace(space.low, space.high), of its Discrete DiscreteSpace(space.n)",
        )
    if isinstance(space, BoxSpace):
        if space.low.ndim != 1 or not len(space.low):
            raise ConfigurationError(
                f"the action space has shape {space.low.shape}, expected (n,) with n > 0",
                hint="choose an agent that has inputs; `ospbridge describe` lists them",
            )
        return DiagGaussian(len(space.low))
    sizes = (space.n,) if isinstance(space, DiscreteSpace) else space.sizes
    if not sizes or min(sizes) < 1:
        raise ConfigurationError(
            f"the action space has {list(sizes)} choices, expected at least one each",
            hint="give the scenario's action its choices",
        )
    return Categorical(sizes[0]) if isinstance(space, DiscreteSpace) else MultiCategorical(sizes)


def _added(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """float32[B]: the sum of several float32[B]."""
    total: NDArray[np.float32] = np.sum(parts, axis=0, dtype=np.float32)
    return total


def _below_zero(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """float64[B, n]: shifted so that the largest of each row is 0, and no exponential overflows."""
    wide = logits.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    return wide


def _pick(logits: list[float], place: float | None) -> tuple[int, float]:
    """The choice at ``place`` within [0, 1), or the most probable one, with the logarithm of its probability.

    NaN for the latter where logits are NaN or infinite.
    """
    top = max(logits)
    sums: list[float] = []
    total = 0.0
    for logit in logits:
        total += math.exp(logit - top)
        sums.append(total)
    if math.isnan(total):
        return 0, math.nan
    if place is None:
        chosen = logits.index(top)
    else:
        chosen = bisect_right(sums, place * total)
    return chosen, logits[chosen] - top - math.log(total)
