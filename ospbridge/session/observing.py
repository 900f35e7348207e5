"""Looking on at an agent of a running daemon, for blocking callers: what happens to it, whoever drives it.

An observer takes no agent and has no vote, so nobody ever waits for it. The daemon keeps the latest moments only; an
observer that is too slow loses the oldest, and is told how many.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from msgspec.structs import asdict

from ospbridge.hub.replies import Kind, Moments
from ospbridge.hub.requests import MomentsSince

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.hub.replies import Moment, Observing
    from ospbridge.interface import AgentInterface, BoxSpace, Space
    from ospbridge.session.hub_client import HubClient

__all__ = ["AgentObserver", "ObservedMoment"]

ASK_FOR: Final = 5.0
"""Seconds for which one question waits at the daemon."""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedMoment:
    """What happened to an agent: a reset, a step, or the end of an episode between two steps.

    ``observation``: float32[n] as the driver got it. ``inputs``: float32[n_inputs] that the simulator was given, and
    ``infos``: float32[n_infos]; empty where there are none. ``step`` counts within ``episode``, ``number`` through all.
    ``dropped`` moments just before this one were lost to this observer.
    """

    kind: Kind
    number: int
    episode: int
    step: int
    inputs: NDArray[np.float32]
    observation: NDArray[np.float32]
    infos: NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool
    reason: str
    seed: int
    dropped: int = 0


class AgentObserver:
    """An endless iterator over an agent's moments. Make one with ``HubClient.observe``; closing the client ends it.

    Its client must not be used by another thread meanwhile. Raises HubLost, and SessionLost when the simulator was
    joined again without that agent.
    """

    def __init__(self, client: HubClient, observing: Observing) -> None:
        agent = observing.agent
        self.interface: AgentInterface = agent.interface()
        self.observation_space: BoxSpace = agent.observation_space()
        self.action_space: Space = agent.action_space()
        self.dropped: int = 0
        """Moments that were lost to this observer, in all."""
        self._client = client
        self._after = observing.latest
        self._ready: deque[ObservedMoment] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ObservedMoment:
        while (moment := self.take(ASK_FOR)) is None:
            pass
        return moment

    def take(self, wait: float = 0.0) -> ObservedMoment | None:
        """The next moment, or None where nothing happens for ``wait`` seconds. Raises as the iterator does."""
        until = monotonic() + wait
        while not self._ready:
            left = min(max(until - monotonic(), 0.0), ASK_FOR)
            request = MomentsSince(self.interface.name, self._after, left)
            self._learn(self._client.ask(request, Moments, self._client.timeout + left))
            if not self._ready and monotonic() >= until:
                return None
        return self._ready.popleft()

    def _learn(self, told: Moments) -> None:
        dropped = told.dropped
        self.dropped += dropped
        for moment in told.moments:
            self._after = moment.number
            self._ready.append(_observed(moment, dropped))
            dropped = 0


def _observed(moment: Moment, dropped: int) -> ObservedMoment:
    told = asdict(moment)
    for name in ("inputs", "observation", "infos"):
        told[name] = np.frombuffer(told[name], "<f4")
    return ObservedMoment(**told, dropped=dropped)
