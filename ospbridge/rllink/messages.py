"""What client and server of RLlink say to each other, whatever the dialect: messages, pieces of episodes, weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ospbridge.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "EpisodeFragment",
    "Episodes",
    "EpisodesAndGetState",
    "GetConfig",
    "GetState",
    "Message",
    "ModuleWeights",
    "OnnxWeights",
    "Ping",
    "Pong",
    "SetConfig",
    "SetState",
    "Unknown",
    "Weights",
    "sendable",
]


def sendable(name: str) -> str:
    """A name that a simulator gave, as UTF-8 can carry it."""
    return name.encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeFragment:
    """N consecutive steps of one episode, as whole arrays.

    The arrays are brought into the form below, without a copy where they have it: C-contiguous, native float32 or
    int64. Raises LocalProtocolError for what cannot be brought into it; whether lengths and values fit each other is
    ``check_fragment``'s question.
    """

    id: str
    """The same for all pieces of an episode, and for no other episode."""
    observations: NDArray[np.float32]
    """float32[N+1, d]: the first is what the first action was chosen on, the last what the last action led to."""
    actions: NDArray[Any]
    """int64[N] of a discrete space, int64[N, k] of several, float32[N, m] as sampled: neither clipped nor scaled."""
    rewards: NDArray[np.float32]
    """float32[N]."""
    terminated: bool = False
    truncated: bool = False
    action_dist_inputs: NDArray[np.float32] | None = None
    """float32[N, k]: what the policy put out."""
    action_logp: NDArray[np.float32] | None = None
    """float32[N]: the logarithm of the probability of each action."""
    t_started: int = 0
    """How many steps of the episode were before."""
    weights_seq_no: int | None = None
    """The number of the weights that acted, where known."""
    agent: str = ""
    """Whose episode it is, where known."""
    simulator: str = ""
    """Where that agent lives, where known."""
    choices: int | None = None
    """Of how many a discrete action is one, where known."""
    written: bytes | None = field(default=None, init=False, repr=False)
    """The fragment in a message of the dialect msgpack, once it was written; a copy has none."""

    def __post_init__(self) -> None:
        self._shape("observations", (2,), _floats)
        self._shape("rewards", (1,), _floats)
        self._shape("actions", (1, 2), _actions)
        if self.action_dist_inputs is not None:
            self._shape("action_dist_inputs", (2,), _floats)
        if self.action_logp is not None:
            self._shape("action_logp", (1,), _floats)

    def _shape(self, name: str, dimensions: tuple[int, ...], convert: Callable[[Any], Any]) -> None:
        given = getattr(self, name)
        try:
            array = convert(given)
        except (TypeError, ValueError, OverflowError) as error:
            raise LocalProtocolError(f"episode {self.id!r}: {name} are no numbers: {error}") from None
        if array.ndim not in dimensions:
            wanted = " or ".join(str(each) for each in dimensions)
            raise LocalProtocolError(
                f"episode {self.id!r}: {name} must have {wanted} dimensions, the shape is {array.shape}"
            )
        if array is not given:
            object.__setattr__(self, name, array)

    def keep_written(self, written: bytes) -> None:
        """It is not written again. Its arrays must not change any more."""
        object.__setattr__(self, "written", written)

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def t(self) -> int:
        """How many steps of the episode are behind its last one: where the next piece starts."""
        return self.t_started + self.steps

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


_NUMBERS: Final = "fiu"
FLOAT: Final = np.dtype(np.float32)


def _floats(values: Any) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.dtype == FLOAT and array.flags.c_contiguous:
        return array
    if array.dtype.kind not in _NUMBERS and array.size:
        raise TypeError(f"expected floats, got {array.dtype}")
    # What is too large for float32 becomes infinite, and is found by the check of the values.
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32, order="C")


def _actions(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return _floats(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"expected integers or floats, got {array.dtype}")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise OverflowError("an action does not fit 64 bits with a sign")
    return np.asarray(array, np.int64, order="C")


@dataclass(frozen=True, slots=True)
class OnnxWeights:
    """A model file, as Ray 2.47 and 2.48 send it. ``seq_no`` counts the updates of the policy.

    One that came as ``mlir_file``, which a published text names and no known server sends, is refused as no ONNX file.
    """

    model: bytes
    seq_no: int

    @property
    def policy(self) -> bytes:
        """As a policy takes them."""
        return self.model


@dataclass(frozen=True, slots=True, eq=False)
class ModuleWeights:
    """The state of an RLModule, as Ray 2.49 and later send it: float32 arrays of any shape by their torch names."""

    arrays: dict[str, NDArray[np.float32]]
    seq_no: int

    @property
    def policy(self) -> dict[str, NDArray[np.float32]]:
        return self.arrays


Weights: TypeAlias = OnnxWeights | ModuleWeights


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? Always the first message of a client."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to PING, and the only proof of a connection."""


@dataclass(frozen=True, slots=True)
class GetConfig:
    """What do you need?"""


@dataclass(frozen=True, slots=True)
class SetConfig:
    """The answer to GET_CONFIG: two numbers from Ray 2.47 and 2.48, a pickle from later ones."""

    env_steps_per_sample: int | None = None
    """How many steps a batch should have."""
    force_on_policy: bool | None = None
    """Whether to wait for new weights after each batch."""
    pickled: bytes | None = None
    """Never unpickled; ``pickled_config.config_in`` can read it without executing anything."""
    server: str | None = None
    """What the server calls itself, where it does: those of Ray do not."""


@dataclass(frozen=True, slots=True)
class GetState:
    """Which weights are the current ones?"""


@dataclass(frozen=True, slots=True)
class SetState:
    """The current weights: the answer to GET_STATE and EPISODES_AND_GET_STATE."""

    weights: Weights


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Experience. There is no answer."""

    fragments: tuple[EpisodeFragment, ...]
    weights_seq_no: int | None = None
    """Named by a published text, ignored by real servers, not sent."""

    @property
    def env_steps(self) -> int:
        return sum(fragment.steps for fragment in self.fragments)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodesAndGetState(Episodes):
    """Experience, and a wish for the weights that were learned from it. The answer comes when they are."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message of a type that this release does not know."""

    type: str
    keys: tuple[str, ...] = ()


Message: TypeAlias = Ping | Pong | GetConfig | SetConfig | GetState | SetState | Episodes | Unknown
"""EpisodesAndGetState is an Episodes."""
