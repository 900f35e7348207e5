"""What the daemon is told of an upstream."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ospbridge.record.spool import DEFAULT_LIMIT, WhenFull
from ospbridge.rllink.framing import LARGEST_TAKEN
from ospbridge.rllink.timing import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.rllink.cutting import BatchMode
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.transport.tls import StreamAddress

__all__ = ["ACTIVATION", "ENV_STEPS", "HEAD_ACTIVATION", "NORMALIZE_ACTIONS", "Mode", "Upstream", "WhileAway"]

ENV_STEPS: Final = 4000
"""Steps of a batch where nobody says how many: RLlib's own default for PPO."""
ACTIVATION: Final = "tanh"
"""The activation of a policy's encoder where nobody says which: RLlib's own default."""
HEAD_ACTIVATION: Final = "relu"
"""That of its head, if it has hidden layers: RLlib's own default."""
NORMALIZE_ACTIONS: Final = True
"""Whether a policy acts within [-1, 1]: RLlib's own default."""


class Mode(StrEnum):
    """What is done for an upstream."""

    DRIVE = "drive"
    """Its policy acts for the agents, and learns from what that brings."""
    OBSERVE = "observe"
    """It is sent what attached environments live through."""


class WhileAway(StrEnum):
    """What the driver does while the upstream is away."""

    HOLD = "hold"
    """The world waits, and after a while the agents rest."""
    CONTINUE = "continue"
    """The latest policy acts on; experience that no longer fits the upstream's weights is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One RLlink server, and how to speak to it. None: found out, or RLlib's default."""

    address: StreamAddress
    mode: Mode = Mode.OBSERVE
    dialect: Dialect | None = None
    agents: tuple[str, ...] = ()
    """Names or globs; none: all of the daemon."""
    env_steps: int | None = None
    """Steps of a batch, where the server does not tell."""
    activation: str | None = None
    """Of the policy's layers, which no weights tell."""
    head_activation: str | None = None
    """Of the hidden layers of its head."""
    read_pickle: bool = False
    """Whether to read what only a server's pickle tells, without executing any of it."""
    batch_mode: BatchMode | None = None
    explore: bool = True
    normalize_actions: bool | None = None
    """Whether the policy acts within [-1, 1], which is stretched to the action space."""
    clip_actions: bool | None = None
    away: WhileAway = WhileAway.HOLD
    hold: float = 600.0
    """Seconds for which the world may be held for new weights; then the driver's agents rest."""
    limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    """Of the actions drawn and of the first reset; None: another one each time."""

    unannotated: bool = False
    """Whether it takes episodes without ``action_logp`` and ``action_dist_inputs``, as no server of RLlib does."""
    spool: Path | None = None
    """The file in which episodes wait; None: one in the state directory, named after the address."""
    spool_limit: int = DEFAULT_LIMIT
    """Bytes."""
    spool_full: WhenFull = WhenFull.DROP_OLDEST

    largest_message: int = LARGEST_TAKEN
    """Bytes of a message that is taken from it."""

    def __str__(self) -> str:
        return f"{self.mode} {self.address}"
