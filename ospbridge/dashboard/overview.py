"""What the page shows, in small parts: what changed since a browser was last told is found by comparing them.

A browser that reads slowly misses states in between, and never gets an old one: nothing is queued for it. No I/O, no
clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from ospbridge.hub.status import UpstreamStatus
from ospbridge.text import identifier, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ospbridge.hub.status import AgentStatus, LaunchStatus, RecordingStatus, StatusReply
    from ospbridge.observe.recent import Warned

__all__ = ["Agent", "Change", "Daemon", "History", "Overview", "Parts", "Simulator", "Upstream", "changes"]

RATE_OVER: Final = 3.0
"""Seconds that a rate is the mean of."""

Key: TypeAlias = tuple[str, str]
"""What kind of part, and which one."""
Parts: TypeAlias = "dict[Key, Any]"
Change: TypeAlias = tuple[str, str, Any]
"""A key, and the part as it is now; None: it is gone."""


class Daemon(msgspec.Struct, frozen=True):
    """The process. ``began`` in seconds since 1970."""

    version: str
    pid: int
    began: float


class Simulator(msgspec.Struct, frozen=True):
    """One simulator, without its agents. ``rate`` in steps a second, ``step_seconds`` of one step: both lately."""

    name: str
    title: str
    ready: bool
    connection: str
    profile: str
    steps: int
    resets: int
    rebuilds: int
    reasons: dict[str, int]
    clients: int
    sent: int
    received: int
    retries: int
    rate: float
    step_seconds: float | None
    counts: tuple[int, ...]
    """Steps by STEP_BOUNDS."""
    recording: RecordingStatus | None
    launched: LaunchStatus | None = None


class Agent(msgspec.Struct, frozen=True):
    """How an agent stands. ``name``: its ``ospbridge.text.identifier``."""

    simulator: str
    name: str
    state: str
    driver: str
    steps: int
    episodes: int


class History(msgspec.Struct, frozen=True):
    """The latest episodes of an agent that had steps, the newest last; ``episodes`` counts those without steps too."""

    episodes: int
    returns: list[float]
    lengths: list[int]


class Upstream(msgspec.Struct, frozen=True):
    """An upstream, and the names of the simulators whose agents it learns from."""

    simulators: tuple[str, ...]
    status: UpstreamStatus


class _Sample(msgspec.Struct, frozen=True):
    now: float
    steps: int
    counted: int
    seconds: float


class Overview:
    """``parts`` is replaced, never changed, so that whoever holds an old one can be told what is new."""

    def __init__(self) -> None:
        self.parts: Parts = {}
        self._samples: dict[str, deque[_Sample]] = {}
        self._began: dict[int, float] = {}

    def refresh(
        self, statuses: Sequence[StatusReply], warnings: Sequence[Warned], *, now: float, wall: float
    ) -> None:
        """``now`` in seconds of any clock that does not jump, ``wall`` in seconds since 1970."""
        parts: Parts = {}
        for status in statuses:
            began = self._began.setdefault(status.pid, round(wall - status.uptime, 1))
            parts["daemon", ""] = Daemon(status.version, status.pid, began)
            parts["simulator", status.name] = self._simulator(status, now)
            for agent in status.agents:
                key = _id(status.name, identifier(agent.name))
                parts["agent", key] = _agent(status.name, agent)
                parts["history", key] = History(agent.episodes, agent.returns, agent.lengths)
        parts.update(_upstreams(statuses))
        for warned in warnings:
            parts["warning", str(warned.number)] = warned
        known = {status.name for status in statuses}
        self._samples = {name: samples for name, samples in self._samples.items() if name in known}
        self.parts = parts

    def _simulator(self, status: StatusReply, now: float) -> Simulator:
        times = status.step_times
        newest = _Sample(now, status.steps, sum(times.counts), times.seconds)
        samples = self._samples.setdefault(status.name, deque())
        if samples and (samples[-1].steps > newest.steps or now - samples[-1].now >= RATE_OVER):
            samples.clear()  # another daemon, a counter that began anew, or nobody looked for long
        samples.append(newest)
        while len(samples) > 2 and now - samples[1].now >= RATE_OVER:
            samples.popleft()
        oldest = samples[0]
        passed = newest.now - oldest.now
        counted = newest.counted - oldest.counted
        datagrams = status.datagrams
        return Simulator(
            status.name,
            status.simulator,
            status.ready,
            status.connection,
            status.profile,
            status.steps,
            status.resets,
            status.rebuilds,
            status.rebuilds_by_reason,
            status.clients,
            sum(datagrams.sent.values()),
            sum(datagrams.received.values()),
            datagrams.retries,
            _short((newest.steps - oldest.steps) / passed) if passed > 0 else 0.0,
            _short((newest.seconds - oldest.seconds) / counted) if counted > 0 else None,
            times.counts,
            status.recording,
            status.launched,
        )


def changes(told: Mapping[Key, Any], parts: Mapping[Key, Any]) -> list[Change]:
    """What somebody who was told the former must be told to know the latter."""
    if told is parts:
        return []
    found: list[Change] = [(*key, None) for key in told if key not in parts]
    found += [(*key, part) for key, part in parts.items() if told.get(key) != part]
    return found


def _agent(simulator: str, agent: AgentStatus) -> Agent:
    return Agent(
        simulator,
        identifier(agent.name),
        agent.state,
        printable(agent.driver),
        agent.steps,
        agent.episodes,
    )


def _upstreams(statuses: Sequence[StatusReply]) -> Parts:
    """One that learns from several simulators stands in the status of each."""
    learning: dict[str, list[str]] = {}
    found: dict[str, UpstreamStatus] = {}
    for status in statuses:
        for upstream in status.upstreams:
            key = _id(upstream.mode, upstream.address)
            learning.setdefault(key, []).append(status.name)
            found[key] = upstream
    return {("upstream", key): Upstream(tuple(learning[key]), upstream) for key, upstream in found.items()}


def _id(*names: str) -> str:
    """One name for both, that no other two have."""
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


def _short(number: float) -> float:
    """As many digits as anybody reads: what stays the same for the eye is not sent again."""
    return float(f"{number:.4g}")
