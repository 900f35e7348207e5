"""A policy at work: observations of one agent in, decisions out.

What goes upstream is the action as it was drawn, with its log-probability and what it was drawn from. What goes to the
simulator may be another one. RLlib's meaning of the two settings, which are of its ``environment`` configuration:

``normalize_actions`` (its default): the policy acts within [-1, 1], which is stretched to the action space and then
limited to it, if every number of the space has finite bounds. Else the action is sent as it is, without any limit.
``clip_actions``: where actions are not normalised, they are limited to the action space.

Facts: ``NormalizeAndClipActions`` of Ray 2.60.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
import numpy as np

from ospbridge.errors import ConfigurationError, LocalProtocolError
from ospbridge.interface import BoxSpace
from ospbridge.policy.distributions import distribution
from ospbridge.policy.onnx import MOST_WORK, OnnxModule
from ospbridge.policy.rlmodule import NumpyModule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from ospbridge.policy.distributions import ActionSpace

__all__ = ["Decision", "Policy", "Weights"]

Weights: TypeAlias = "Mapping[str, NDArray[Any]] | bytes"
"""The weights of an RLModule by their keys, or an ONNX model."""


class Decision(msgspec.Struct, frozen=True, eq=False):
    """What a policy decided, for one row, or for B of them."""

    action: Any
    """As drawn, for upstream. Choices are an int (int64[B]) or int64[m] (int64[B, m]), numbers float32[a]
    (float32[B, a])."""
    logp: Any
    """A float, or float32[B]: the logarithm of the action's probability, or density."""
    dist_inputs: NDArray[np.float32]
    """float32[k], or float32[B, k]: what the action was drawn from."""
    sent_action: Any
    """For the simulator. It may be the same array as ``action``."""


class Module(Protocol):
    """What computes the numbers of a distribution; the rows of a batch are independent."""

    def forward(self, observations: NDArray[np.float32]) -> NDArray[np.float32]: ...

    def forward_row(self, observation: NDArray[np.float32]) -> NDArray[np.float32]: ...


class Policy:
    """Acts for agents with these spaces. Actions are in a ``BoxSpace``, or choices of a ``DiscreteSpace``.

    ``weights``: what ``read_policy`` returns. ``activation`` and ``head_activation`` are of the server's model
    configuration, because weights do not tell; an ONNX model needs none. ``most_work``: multiplications that
    one of its decisions may take. ``explore=False`` takes the most probable
    action each time; its ``logp`` is what an exploring policy would have given it. ``seed`` is a number or a generator;
    the same seed decides alike on one machine. Raises ConfigurationError for weights that cannot work, with the key
    that is wrong. Not for several threads.
    """

    def __init__(
        self,
        weights: Weights,
        observation_space: BoxSpace,
        action_space: ActionSpace,
        *,
        activation: str = "tanh",
        head_activation: str = "relu",
        normalize_actions: bool = True,
        clip_actions: bool = False,
        explore: bool = True,
        seed: int | np.random.Generator | None = None,
        most_work: int = MOST_WORK,
    ) -> None:
        if observation_space.low.ndim != 1 or not len(observation_space.low):
            raise ConfigurationError(
                f"the observation space has shape {observation_space.low.shape}, expected (n,) with n > 0",
                hint="let the scenario observe at least one output",
            )
        self._observations = len(observation_space.low)
        self._distribution = distribution(action_space)
        self._gaussian = isinstance(action_space, BoxSpace)
        self._activations = (activation, head_activation)
        self._most_work = most_work
        self._send = _sending(action_space, normalize_actions, clip_actions)
        self._generator = np.random.default_rng(seed)
        self.explore = explore
        self._module = self._made(weights)

    def load(self, weights: Weights) -> None:
        """Act from ``weights`` from now on. Raises ConfigurationError; what was there stays in force then."""
        self._module = self._made(weights)

    def act(self, observation: ArrayLike) -> Decision:
        """Decide for float32[n], or for each row of float32[B, n]; all arrays of a decision are the caller's own.

        Raises LocalProtocolError for another shape, ConfigurationError where the policy gives NaN or infinity.
        """
        observation = np.asarray(observation, np.float32)
        # Policies that overflow are told by what they decide, not by numpy's warnings.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if observation.shape == (self._observations,):
                return self._act_row(observation)
            if observation.ndim == 2 and observation.shape[1] == self._observations:
                return self._act_rows(observation)
        raise LocalProtocolError(
            f"an observation of this policy has shape ({self._observations},) or (B, {self._observations}), "
            f"got {observation.shape}",
            hint="give it the observation space of the environment that it acts for",
        )

    def logp(self, dist_inputs: NDArray[np.float32], actions: NDArray[Any]) -> NDArray[np.float32]:
        """float32[B]: how probable ``actions`` were, drawn from float32[B, k]."""
        return self._distribution.logp(dist_inputs, actions)

    def _act_row(self, observation: NDArray[np.float32]) -> Decision:
        inputs = self._module.forward_row(observation).copy()
        action, logp = self._distribution.draw_row(inputs, self._generator if self.explore else None)
        if not math.isfinite(logp):
            raise _not_finite(observation, inputs)
        return Decision(action, logp, inputs, action if self._send is None else self._send(action))

    def _act_rows(self, observations: NDArray[np.float32]) -> Decision:
        inputs = self._module.forward(observations)
        actions, logp = self._distribution.draw(inputs, self._generator if self.explore else None)
        if not np.isfinite(logp).all():
            row = int(np.flatnonzero(~np.isfinite(logp))[0])
            raise _not_finite(observations[row], inputs[row])
        return Decision(actions, logp, inputs, actions if self._send is None else self._send(actions))

    def _made(self, weights: Weights) -> Module:
        inputs, outputs = self._observations, self._distribution.inputs
        if isinstance(weights, bytes):
            return OnnxModule(weights, inputs=inputs, outputs=outputs, most_work=self._most_work)
        return NumpyModule(
            weights,
            inputs=inputs,
            outputs=outputs,
            gaussian=self._gaussian,
            activation=self._activations[0],
            head_activation=self._activations[1],
        )


def _sending(
    space: ActionSpace, normalize: bool, clip: bool
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]] | None:
    """What makes of an action the one that is sent; None: it is sent as it is."""
    if not isinstance(space, BoxSpace):
        return None
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    if not normalize:
        return (lambda action: np.minimum(np.maximum(action, low), high)) if clip else None
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    # The half of each first: the width of the widest range is beyond float32.
    half = high * np.float32(0.5) - low * np.float32(0.5)
    middle = high * np.float32(0.5) + low * np.float32(0.5)

    def stretched(action: NDArray[np.float32]) -> NDArray[np.float32]:
        sent = action * half
        np.add(sent, middle, out=sent)
        np.maximum(sent, low, out=sent)
        return np.minimum(sent, high, out=sent)

    return stretched


def _not_finite(observation: NDArray[np.float32], inputs: NDArray[np.float32]) -> ConfigurationError:
    if not np.isfinite(observation).all():
        at = int(np.flatnonzero(~np.isfinite(observation))[0])
        return ConfigurationError(
            f"number {at} of an observation is {observation[at]}, and so the policy cannot decide",
            hint="let the scenario end the episode, or clip: [agent.observe] out_of_range",
        )
    return ConfigurationError(
        f"the policy's outputs {inputs.tolist()} for the observation {observation.tolist()} give no finite probability",
        hint="the learner may have diverged: look at its loss, and at the scale of the observations",
    )
