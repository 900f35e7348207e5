"""What an environment and the daemon say to each other, as msgpack (the document is DESIGN's section on the hub).

Every request has one reply, which notices that the world is held may precede. Arrays travel as raw little-endian
numbers. One message may speak for many agents. The first request of a connection is ``Hello``; its layout up to
``version`` never changes, so that two releases can at least tell each other that they do not fit.

What this module must not do: read a clock, draw a random number, touch a socket.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import numpy as np

from ospbridge.errors import RemoteProtocolError
from ospbridge.hub.status import AgentStatus, DatagramCounts, RecordingStatus, StepTimes, UpstreamStatus
from ospbridge.interface import AgentInterface, BoxSpace, DiscreteSpace, InterfaceValue, Space

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LONGEST_HOLD",
    "VERSION",
    "Again",
    "AgentDescription",
    "AgentFeedback",
    "AnnotatedStep",
    "Attach",
    "Attached",
    "Detach",
    "Detached",
    "Feedbacks",
    "Held",
    "Hello",
    "HubReply",
    "HubRequest",
    "Kind",
    "LaneOpened",
    "Moment",
    "Moments",
    "MomentsSince",
    "Note",
    "Numbers",
    "Observe",
    "Observing",
    "OpenLane",
    "Refusal",
    "Reset",
    "Status",
    "StatusReply",
    "Step",
    "Welcome",
    "decode_reply",
    "decode_request",
]

VERSION: Final = 4
LONGEST_WAIT: Final = 10.0
"""Seconds for which an observer's question may stay open."""
LONGEST_HOLD: Final = 86_400.0
"""Seconds for which one notice may suspend a client's deadline."""

Seed: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Choices: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""How many choices a discrete action has; 0 where it is not discrete."""
WeightsNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Range: TypeAlias = tuple[str, float, float]
"""Name, min and max of one interface value."""


# --- requests ------------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first request: which version of these messages, and who asks."""

    version: int
    client: str = ""
    """A name for people: the program that attaches."""
    pid: int = 0


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="attach"):
    """Take agents by name or shell glob, one attachment each, all or none; none named: the only free one."""

    agents: list[str] = []
    annotates: bool = False
    """Every step will be an ``AnnotatedStep``."""
    meant: list[tuple[str, str]] = []
    """Where several agents fit, those of one of these names and types, or globs; daemons before these take all."""


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """Wait for the next reset. ``seed`` 0: don't care. ``thread`` identifies the caller's thread within its process.

    ``drawn``: nobody gave that seed; one that another client was given counts.
    """

    agents: list[str]
    seed: Seed = 0
    thread: int = 0
    drawn: bool = False


class Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """One step: (agent, action as float32 bytes). The action is last, so that a sender can fill it in place."""

    moves: list[tuple[str, bytes]]


class Again(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    """One step more of the agents of the latest ``Step`` of this connection: their actions behind one another.

    As float32 bytes, in the order and sizes of that step. No reset, and nothing that takes agents or gives them back,
    may lie in between.
    """

    actions: bytes


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What an action was drawn from: float32 bytes, the logarithm of its probability, which weights acted.

    ``drawn``: the action as it was drawn, float32 bytes, where the one that is given was made of it; else empty.
    """

    dist_inputs: bytes
    logp: float
    weights_seq_no: WeightsNumber | None = None
    drawn: bytes = b""


class AnnotatedStep(msgspec.Struct, frozen=True, array_like=True, tag="noted"):
    """One step of environments that annotate: (agent, action as float32 bytes, what it was drawn from)."""

    moves: list[tuple[str, bytes, Note]]


class Detach(msgspec.Struct, frozen=True, array_like=True, tag="detach"):
    """Give agents back; none named: all of this connection."""

    agents: list[str] = []


class OpenLane(msgspec.Struct, frozen=True, array_like=True, tag="lane"):
    """Share memory for steps, where both are on one host."""


class Observe(msgspec.Struct, frozen=True, array_like=True, tag="observe"):
    """Look on at an agent from now on, without a vote, whoever drives it."""

    agent: str


class MomentsSince(msgspec.Struct, frozen=True, array_like=True, tag="since"):
    """What happened to an observed agent after the moment of that number? Asks for ``wait`` seconds if nothing did."""

    agent: str
    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    wait: Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_WAIT)] = 0.0


class Status(msgspec.Struct, frozen=True, array_like=True, tag="status"):
    """What does the daemon do?"""


# --- replies -------------------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The answer to ``Hello``."""

    version: int
    software: str
    pid: int


class AgentDescription(msgspec.Struct, frozen=True, array_like=True):
    """An agent's interface, without the local id, and the spaces of the task that the daemon runs for it.

    ``observation`` and ``action`` are low and high as float32 bytes; a discrete action has ``choices`` instead, and
    travels as one float32.
    """

    name: str
    type: str
    inputs: list[Range]
    outputs: list[Range]
    infos: list[Range]
    observation: tuple[bytes, bytes]
    action: tuple[bytes, bytes]
    choices: Choices = 0
    observation_names: list[str] = []
    """What the numbers of an observation are; none: the outputs, in order."""
    action_names: list[str] = []
    """What the numbers of an action are; none: the inputs, in order."""

    def __post_init__(self) -> None:
        """Raises ValueError, which the decoder turns into its own, for bounds that are no float32 bytes."""
        for low, high in (self.observation, self.action):
            if len(low) != len(high) or len(low) % 4:
                raise ValueError(f"bounds of {len(low)} and {len(high)} bytes, expected as many float32 each")

    @classmethod
    def of(
        cls,
        agent: AgentInterface,
        observation: BoxSpace,
        action: Space,
        *,
        observation_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
    ) -> AgentDescription:
        inputs, outputs, infos = (
            [(value.name, value.min, value.max) for value in values]
            for values in (agent.inputs, agent.outputs, agent.infos)
        )
        return cls(
            agent.name,
            agent.type,
            inputs,
            outputs,
            infos,
            _bounds(observation),
            *_told(action),
            [] if list(observation_names) == [name for name, _, _ in outputs] else list(observation_names),
            [] if list(action_names) == [name for name, _, _ in inputs] else list(action_names),
        )

    def interface(self) -> AgentInterface:
        """As the rest of the package knows it. Local ids belong to the daemon's session, so the id is 0."""
        inputs, outputs, infos = (
            tuple(InterfaceValue(*value) for value in values)
            for values in (self.inputs, self.outputs, self.infos)
        )
        return AgentInterface(0, self.name, inputs, outputs, infos, self.type)

    def observation_space(self) -> BoxSpace:
        return _box(self.observation)

    def action_space(self) -> Space:
        return DiscreteSpace(self.choices) if self.choices else _box(self.action)


def _bounds(space: BoxSpace) -> tuple[bytes, bytes]:
    return space.low.astype("<f4").tobytes(), space.high.astype("<f4").tobytes()


def _told(space: Space) -> tuple[tuple[bytes, bytes], int]:
    return (_bounds(space), 0) if isinstance(space, BoxSpace) else ((b"", b""), space.n)


def _box(bounds: tuple[bytes, bytes]) -> BoxSpace:
    return BoxSpace(np.frombuffer(bounds[0], "<f4"), np.frombuffer(bounds[1], "<f4"))


class Attached(msgspec.Struct, frozen=True, array_like=True, tag="attached"):
    """The agents taken. The limits are the daemon's, in seconds."""

    agents: list[AgentDescription]
    profile: str
    outputs_normalised: bool
    step_timeout: float
    reset_timeout: float


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

    May precede the answer to ``Reset`` and ``Step``, several times. ``request``: the number of the step in shared
    memory that it is about, whose answer may be seen before it; 0: it is about what was asked on the stream.
    """

    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_HOLD)]
    reason: str = ""
    request: Annotated[int, msgspec.Meta(ge=0)] = 0


class Observing(msgspec.Struct, frozen=True, array_like=True, tag="observing"):
    """The agent that is observed, and the number of the latest moment, which is not told any more."""

    agent: AgentDescription
    latest: int


class Kind(StrEnum):
    """What a moment of an agent's episode is."""

    RESET = "reset"
    STEP = "step"
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


class Moments(msgspec.Struct, frozen=True, array_like=True, tag="moments"):
    """The answer to ``MomentsSince``: the oldest that are kept. ``dropped`` moments before them are lost."""

    moments: list[Moment]
    dropped: int = 0


class Detached(msgspec.Struct, frozen=True, array_like=True, tag="detached"):
    """The answer to ``Detach``."""


class LaneOpened(msgspec.Struct, frozen=True, array_like=True, tag="lane"):
    """The answer to ``OpenLane``, with the descriptors of ``transport.lane``; without any there is no lane.

    From then on a request may be written to the lane instead of the stream; where it was, its answer is too, unless it
    is too long. Notices are always on the stream.
    """


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """The request failed. ``kind`` is the name of a class of ``ospbridge.errors``."""

    kind: str
    message: str
    hint: str = ""


class StatusReply(msgspec.Struct, frozen=True, array_like=True, tag="status"):
    """The answer to ``Status``; ``ready``: the simulator is joined and the agents can be attached to."""

    ready: bool
    simulator: str
    connection: str
    """``joined``, or what keeps it from that."""
    profile: str
    agents: list[AgentStatus]
    steps: int
    resets: int
    rebuilds: int
    uptime: float
    version: str
    pid: int
    recording: RecordingStatus | None = None
    """None: the daemon does not record."""
    upstreams: list[UpstreamStatus] = []
    step_times: StepTimes = StepTimes()
    datagrams: DatagramCounts = DatagramCounts()
    rebuilds_by_reason: dict[str, int] = {}
    """``rebuilds``, by what the session was lost to: the names of errors, such as ``SessionEvicted``."""
    clients: int = 0
    """Connections to the hub."""
    name: str = ""
    """What the simulator is called where the daemon has several."""


HubRequest: TypeAlias = (
    Again
    | Step
    | AnnotatedStep
    | Reset
    | Hello
    | Attach
    | Detach
    | OpenLane
    | Observe
    | MomentsSince
    | Status
)
HubReply: TypeAlias = (
    Numbers
    | Feedbacks
    | Refusal
    | Held
    | Welcome
    | Attached
    | Detached
    | LaneOpened
    | Observing
    | Moments
    | StatusReply
)
_requests: Final[msgspec.msgpack.Decoder[HubRequest]] = msgspec.msgpack.Decoder(HubRequest)
_replies: Final[msgspec.msgpack.Decoder[HubReply]] = msgspec.msgpack.Decoder(HubReply)


def decode_request(data: bytes | bytearray | memoryview) -> HubRequest:
    """A client's message. Raises RemoteProtocolError for anything else."""
    try:
        return _requests.decode(data)
    except (ValueError, RecursionError) as error:
        raise _wrong("a request", data, error) from None


def decode_reply(data: bytes | bytearray | memoryview) -> HubReply:
    """The daemon's message. Raises RemoteProtocolError for anything else."""
    try:
        return _replies.decode(data)
    except (ValueError, RecursionError) as error:
        raise _wrong("a reply", data, error) from None


def _wrong(what: str, data: bytes | bytearray | memoryview, error: Exception) -> RemoteProtocolError:
    """A decoder of msgspec names the place within the message, but rarely the byte."""
    return RemoteProtocolError(
        f"expected {what} of the hub, version {VERSION}: {error}",
        data=bytes(data),
        offset=0,
        hint="only environments of ospbridge speak to a hub; use the same version on both sides",
    )
