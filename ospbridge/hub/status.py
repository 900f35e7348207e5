"""What a daemon tells of itself: its agents, what it records, and how its upstreams stand."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "RETURNS_KEPT",
    "STEP_BOUNDS",
    "AgentStatus",
    "DatagramCounts",
    "LaunchStatus",
    "RecordingStatus",
    "SpoolStatus",
    "StatusReply",
    "StepTimes",
    "UpstreamStatus",
]

STEP_BOUNDS: Final = (
    20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0
)  # fmt: skip
"""Seconds that steps are counted by."""
RETURNS_KEPT: Final = 64
"""Returns of the latest episodes of an agent that are told."""


class AgentStatus(msgspec.Struct, frozen=True):
    """One agent of the daemon: what drives it, and how that one stands."""

    name: str
    state: str
    """``free``, or the attachment's: ``attached``, ``waiting for reset``, ``playing``, ``done``."""
    driver: str = ""
    """Which program drives it; empty where none does."""
    steps: int = 0
    """Steps of the current episode."""
    episodes: int = 0
    """That have ended since the daemon began."""
    returns: list[float] = []
    """Of its latest episodes, the newest last: sums of rewards, at most RETURNS_KEPT."""
    lengths: list[int] = []
    """Steps of the same episodes."""


class StepTimes(msgspec.Struct, frozen=True):
    """How long the simulator's steps took, from the last step request to the outcome."""

    counts: tuple[int, ...] = (0,) * (len(STEP_BOUNDS) + 1)
    """Steps that took longer than the bound before and at most STEP_BOUNDS[i] seconds; the last: longer than all."""
    seconds: float = 0.0
    """Of all of them together."""


class DatagramCounts(msgspec.Struct, frozen=True):
    """What went over the line to and from a simulator since the daemon began, by the name of its code."""

    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    retries: int = 0
    """Datagrams that were sent again because nothing had come."""


class RecordingStatus(msgspec.Struct, frozen=True):
    """What the daemon writes down."""

    directory: str
    recorded: int = 0
    """Episodes on disk since the daemon began."""
    dropped: int = 0
    """Episodes that could not be written."""


class LaunchStatus(msgspec.Struct, frozen=True):
    """A simulator that the daemon launched."""

    program: str
    pid: int | None = None
    """None: it does not run."""
    restarts: int = 0
    """How often it was started again since the daemon began."""
    log: str = ""
    """The file that its output goes to."""
    batch: bool = False
    """It runs under SCHED_BATCH."""
    core: int | None = None
    """The one that it runs on; None: wherever the system likes."""


class SpoolStatus(msgspec.Struct, frozen=True):
    """Episodes on their way to an upstream that observes."""

    file: str
    entries: int = 0
    """Episodes, or pieces of long ones, on disk."""
    bytes: int = 0
    unwritten: int = 0
    """Entries that are not on disk yet."""
    dropped: int = 0
    """Entries that were lost since the daemon began."""
    trouble: str = ""
    """Why nothing can be written; empty where it can."""


class UpstreamStatus(msgspec.Struct, frozen=True):
    """One upstream of the daemon, and how its relay stands."""

    address: str
    mode: str
    trouble: str = ""
    """Why it is not connected, or nothing comes of that; empty where all is well."""
    dialect: str = ""
    weights_seq_no: int | None = None
    """Of the weights that act."""
    batches: int = 0
    """That were learned from."""
    steps: int = 0
    """Of those batches."""
    discarded: int = 0
    """Steps that nobody could learn from any more, or that could not be sent."""
    delivered: int = 0
    """Steps that are proven to have arrived, of an upstream that observes."""
    spool: SpoolStatus | None = None
    """What waits for it."""


class StatusReply(msgspec.Struct, frozen=True, array_like=True, tag="status"):
    """What a daemon does, of one simulator: the answer to ``requests.Status``."""

    ready: bool
    """The simulator is joined, and the agents can be attached to."""
    simulator: str
    """Its address."""
    connection: str
    """``joined``, or what keeps it from that."""
    profile: str
    """``document`` or ``nerd``; empty until it is known."""
    agents: list[AgentStatus]
    """Those of the daemon; none until the simulator is joined."""
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
    hint: str = ""
    """What to do where the simulator is not joined; empty where that is not known, and where it is joined."""
    launched: LaunchStatus | None = None
    """None: somebody else starts the simulator."""
