"""What the daemon answers. Notices that the world is held may come before an answer; arrays travel as in requests."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self, TypeAlias

import msgspec

from ospbridge import errors
from ospbridge.errors import FileInvalid, HubError, OspBridgeError, ProtocolError, RemoteProtocolError
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.status import StatusReply

__all__ = [
    "LONGEST_HOLD",
    "AgentFeedback",
    "Attached",
    "Detached",
    "Feedbacks",
    "Held",
    "HubReply",
    "Kind",
    "Moment",
    "Moments",
    "Numbers",
    "Observing",
    "Refusal",
    "Welcome",
]

LONGEST_HOLD: Final = 86_400.0
"""Seconds for which one notice may suspend a client's deadline."""
LONGEST_LIMIT: Final = 500_000.0
"""Seconds of a limit: a few of them are as long as a system call waits."""
_KINDS: Final[dict[str, type[OspBridgeError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if name in errors.__all__
    and kind not in {OspBridgeError, ProtocolError, FileInvalid, RemoteProtocolError}
}
"""All that a message and a hint suffice to make; a RemoteProtocolError is about bytes that are not here."""
Limit: TypeAlias = Annotated[float, msgspec.Meta(gt=0.0, le=LONGEST_LIMIT)]


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The answer to ``Hello``."""

    version: int


class Attached(msgspec.Struct, frozen=True, array_like=True, tag="attached"):
    """The agents taken. The limits are the daemon's, in seconds."""

    agents: list[AgentDescription]
    step_timeout: Limit
    reset_timeout: Limit


class AgentFeedback(msgspec.Struct, frozen=True, array_like=True):
    """What a reset or step brought for one agent. A ``bytearray`` becomes a writeable array without a copy."""

    agent: str
    observation: bytearray
    infos: bytes
    reward: float
    terminated: bool
    truncated: bool
    reason: str
    seed: int
    events: tuple[str, ...]
    values: dict[str, str]
    restored: bool


class Feedbacks(msgspec.Struct, frozen=True, array_like=True, tag="feedback"):
    """The answer to ``Reset`` and to every step, in the order of the request."""

    agents: list[AgentFeedback]


class Numbers(msgspec.Struct, frozen=True, array_like=True, tag="numbers"):
    """The answer to ``Again`` where no episode ended, nothing was read back, and there are no events and no values.

    Of all agents, in the order of the request and behind one another: observations and infos as float32 bytes, rewards
    as float64 bytes.
    """

    seed: int
    observations: bytearray
    infos: bytes
    rewards: bytes


class Held(msgspec.Struct, frozen=True, array_like=True, tag="held"):
    """No answer yet: the world is held still, for ``seconds`` at most, and the answer's time counts from then on.

    May precede the answer to ``Reset`` and ``Step``, several times.
    """

    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_HOLD)]
    reason: str = ""


class Observing(msgspec.Struct, frozen=True, array_like=True, tag="observing"):
    """The agent that is observed, and the number of the latest moment, which is not told any more."""

    agent: AgentDescription
    latest: int


class Kind(StrEnum):
    """What a moment of an agent's episode is."""

    RESET = "reset"
    """An episode began."""
    STEP = "step"
    """The world stepped with the agent's inputs; the episode may have ended."""
    END = "end"
    """The episode ended between two steps: its driver left, was too slow, or the simulator is lost."""


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """What happened to an observed agent. Arrays are float32 bytes.

    ``number`` counts the moments of the agent, ``step`` the steps of its ``episode``. ``inputs`` are those that the
    simulator was given, of a step only. The observation of an end is the last one again, without infos.
    """

    number: int
    kind: Kind
    episode: int
    step: int
    inputs: bytes
    observation: bytes
    infos: bytes
    reward: float
    terminated: bool
    truncated: bool
    reason: str
    seed: int

    def __post_init__(self) -> None:
        """Raises ValueError, which the decoder turns into its own, for what are no float32 bytes."""
        sizes = len(self.inputs), len(self.observation), len(self.infos)
        if any(size % 4 for size in sizes):
            raise ValueError(f"inputs, observation and infos of {sizes} bytes, expected float32")


class Moments(msgspec.Struct, frozen=True, array_like=True, tag="moments"):
    """The answer to ``MomentsSince``: the oldest that are kept. ``dropped`` moments before them are lost."""

    moments: list[Moment]
    dropped: int = 0


class Detached(msgspec.Struct, frozen=True, array_like=True, tag="detached"):
    """The answer to ``Detach``."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """The request failed. ``kind`` is the name of a class of ``ospbridge.errors``."""

    kind: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: OspBridgeError) -> Self:
        """What to answer for ``error``."""
        return cls(type(error).__name__, error.message, error.hint)

    def error(self) -> OspBridgeError:
        """What it stands for, to be raised where the request was made; HubError for a class unknown here."""
        return _KINDS.get(self.kind, HubError)(self.message, hint=self.hint)


HubReply: TypeAlias = (
    Numbers | Feedbacks | Refusal | Held | Welcome | Attached | Detached | Observing | Moments | StatusReply
)
