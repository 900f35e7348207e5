"""Where the promise of steps that run once ends: which of what is untrue comes of a network that doubles and delays.

OSP numbers nothing. An old completion that arrives in a later step before that step's own looks like it, and an old
request that takes the place of one that was lost is counted as it would have been. Both need a datagram that comes
twice and late, which the log of what happened to datagrams shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import numpy as np

from ospbridge.osp.codes import Code
from ospbridge.osp.wire import INT
from tests.osp.pair import Datagram, Fault, Pair
from tests.storm.lives import INPUTS, NEUTRAL, OUTPUTS, Life, Storm, Untruth, Weather, untrue
from tests.storm.machines import perform

REQUEST_HEAD: Final = 9
"""Bytes before the inputs of a step request ..."""
COMPLETION_HEAD: Final = 21
"""... and before the outputs of a completion."""
BEGIN: Final = 1000.0
"""What a pair's clock shows when it begins."""
BEFORE: Final = 0.1
"""Seconds before a step's first request in which an old one that arrives is counted for it."""


@dataclass(frozen=True)
class _Late:
    """A copy of a request or completion that arrives in doubt: not as the only one, or not at once."""

    agent_id: int
    content: tuple[float, ...]
    """The inputs or outputs."""
    sent: float
    arrives: float


class FateLog:
    """What happened to requests and completions of steps. It stands between a pair and its fault."""

    def __init__(self, pair: Pair, usual: Fault) -> None:
        self.requested: dict[tuple[float, ...], float] = {}
        """When a request with such inputs was sent first."""
        self.requests: list[_Late] = []
        self.completions: dict[tuple[float, ...], list[_Late]] = defaultdict(list)
        """By outputs."""
        self._pair = pair
        self._usual = usual

    def __call__(self, datagram: Datagram) -> Iterable[float]:
        delays = tuple(self._usual(datagram))
        code = datagram.data[0]
        if code == Code.NEXT_SIMULATION_STEP:
            inputs = _floats(datagram.data, REQUEST_HEAD, INPUTS)
            self.requested.setdefault(inputs, self._pair.now)
            self.requests.extend(self._late(datagram, inputs, delays))
        elif code == Code.NEXT_SIMULATION_STEP_COMPLETED:
            outputs = _floats(datagram.data, COMPLETION_HEAD, OUTPUTS)
            self.completions[outputs].extend(self._late(datagram, outputs, delays))
        return delays

    def _late(
        self, datagram: Datagram, content: tuple[float, ...], delays: tuple[float, ...]
    ) -> Iterable[_Late]:
        now = self._pair.now
        (agent_id,) = INT.unpack_from(datagram.data, 1)
        if len(delays) > 1 or any(delays):
            for delay in delays:
                yield _Late(agent_id, content, now, now + delay)

    def explain(self, untruth: Untruth, lives: Sequence[Life]) -> str:
        """What the network did that no client can tell; nothing where it did no such thing."""
        if untruth.surplus:
            return ""
        began, ended = self._step(untruth, next(life for life in lives if life.agent == untruth.agent))
        if untruth.brought:
            if any(
                began <= copy.arrives <= ended and copy.sent < began
                for copy in self.completions[untruth.brought]
            ):
                return "an old completion came in a later step before that step's own"
            return ""
        current = _given(untruth, lives)
        if any(
            began - BEFORE <= copy.arrives <= ended and copy.content not in current and copy.sent < began
            for copy in self.requests
        ):
            return "an old request took the place of one that was lost"
        return ""

    def _step(self, untruth: Untruth, life: Life) -> tuple[float, float]:
        """From when to when it may have been under way."""
        actions = life.episodes[untruth.episode].actions
        times = [self.requested.get(tuple(action), inf) for action in actions]
        began = times[untruth.step - 1] if untruth.step else times[0] - 1.0
        return began, times[untruth.step] if untruth.step < len(times) else began + 60.0


def _given(untruth: Untruth, lives: Sequence[Life]) -> set[tuple[float, ...]]:
    """The inputs of all agents in that step: the copy of such a request is no old one."""
    if not untruth.step:
        return {tuple(NEUTRAL)}
    actions = [
        life.episodes[untruth.episode].actions for life in lives if untruth.episode < len(life.episodes)
    ]
    return {tuple(each[untruth.step - 1]) for each in actions if untruth.step <= len(each)}


def _floats(data: bytes, offset: int, count: int) -> tuple[float, ...]:
    return tuple(np.frombuffer(data, "<f4", count, offset).tolist())


@dataclass(frozen=True)
class Verdict:
    """What came of a storm."""

    storm: Storm
    episodes: int
    told: int
    """Those of them whose end the environment was told."""
    troubles: int
    """Errors outside of an episode: of joining, and of resets."""
    beyond: tuple[str, ...]
    """What was untrue and untold where the promise ends."""
    broken: tuple[str, ...]
    """What was untrue and untold where it does not."""
    steps: int
    seconds: float
    """Virtual ones."""

    @property
    def ends(self) -> int:
        """How often a session was rebuilt."""
        return self.told + self.troubles


def judge(storm: Storm, *, forged: Callable[[list[dict[str, Any]]], object] = lambda _: None) -> Verdict:
    """``forged`` changes what the simulator wrote down. Raises Hang."""
    logs: list[FateLog] = []

    def log(pair: Pair, usual: Fault) -> Fault:
        logs.append(FateLog(pair, usual))
        return logs[0]

    lives, pair = perform(storm, log)
    forged(pair.ledger)
    beyond: list[str] = []
    broken: list[str] = []
    for untruth in untrue(lives, pair.ledger):
        why = logs[0].explain(untruth, lives) if _doubles_and_delays(storm.weather) else ""
        (beyond if why else broken).append(f"{untruth}: {why}" if why else str(untruth))
    # Of the agents of one session the first stands for all.
    crews = [life for life in lives if life is lives[0] or life.agent in storm.direct]
    return Verdict(
        storm,
        episodes=sum(len(life.episodes) for life in crews),
        told=sum(bool(episode.told) for life in crews for episode in life.episodes),
        troubles=sum(len(life.troubles) for life in crews),
        beyond=tuple(beyond),
        broken=tuple(broken),
        steps=sum(life.steps for life in crews),
        seconds=pair.now - BEGIN,
    )


def _doubles_and_delays(weather: Weather) -> bool:
    return weather.duplicate > 0 and (weather.delay > 0 or weather.reorder > 0)
