"""What client and server of RLlink say to each other, independent of the dialect on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ospbridge.rllink.fragments import EpisodeFragment
    from ospbridge.rllink.weights import Weights

__all__ = [
    "Episodes",
    "EpisodesAndGetState",
    "GetConfig",
    "GetState",
    "Message",
    "Ping",
    "Pong",
    "SetConfig",
    "SetState",
    "Unknown",
]


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
