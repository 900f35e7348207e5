"""A session in memory, used as an environment uses one: episodes, honest ends, and a new session behind each end.

What it believes is kept as in a storm, and held against what the simulator did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

from ospbridge.errors import BarrierStuck, OutputsIncomplete, SessionLost, StepUncertain
from ospbridge.osp.profile import Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair, no_fault
from tests.storm.lives import INPUTS, NEUTRAL, OUTPUTS, Life, Untruth, begin_episode, give, observe, untrue

__all__ = ["TOLD", "Environment"]

TOLD: Final = (StepUncertain, BarrierStuck, SessionLost, OutputsIncomplete)
"""How a step, a reset or an audit says that the episode is over. An audit may return a reason, too."""
REBUILT_AFTER: Final = 0.5
"""Seconds from a session's goodbye to the INIT of the next one."""
LATE: Final = 0.5
"""Seconds before an audit, in which what is late arrives."""
APART: Final = 1000
"""Between the numbers of the inputs of two agents, so that no two are given the same."""


class Environment:
    """All agents of a simulator, and one session after the other. Each step has inputs that no other one has."""

    def __init__(
        self,
        profile: Profile,
        agents: int = 1,
        *,
        stall: Callable[[], bool] | None = None,
        probes: bool = False,
    ) -> None:
        self.profile = profile
        self.names = [f"agent{at}" for at in range(agents)]
        world = SyntheticWorld(INPUTS, OUTPUTS, 1, names=self.names, values=3)
        self.pair = Pair(world, profile, stall=stall)
        self.lives = [Life(name, other=at * APART) for at, name in enumerate(self.names)]
        self.ends: list[str] = []
        """Why sessions were given up."""
        self._probes = probes
        """Its first session is to find out the profile."""
        self._client: Client | None = None
        self._before: Client | None = None
        self._registered = False
        self._playing = False
        self._fresh = True
        """Its session has begun no episode yet."""

    # --- sessions --------------------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        assert self._client is not None, "join first"
        return self._client

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def join(self) -> None:
        self._client = self.pair.client(None if self._probes else self.profile).connect()
        self._fresh = True
        if self._before is not None:
            self._client.inherit(self._before)

    def register(self) -> None:
        self.client.do(self.talk.register(self.names))
        self._registered = True

    def leave(self) -> None:
        """Nothing of the session stays behind."""
        self._before, client = self._client, self.client
        if self.talk.machine.lost is not None:
            # A session that was given up because of a silence still says goodbye, as real ones do.
            (getattr(self.talk, "revive", None) or self.talk.take_heart)()
        with suppress(SessionLost):
            client.do(self.talk.leave())
        client.vanish()
        self._client, self._registered, self._playing = None, False, False

    def ready(self) -> None:
        if self._client is None:
            self.join()
        if not self._registered:
            self.register()

    def _end(self, reason: str) -> None:
        """Leave; the next episode is a new session's."""
        self.ends.append(reason)
        if self._playing:
            for life in self.lives:
                life.episodes[-1].told = reason
        self.leave()
        self.pair.settle(REBUILT_AFTER)

    @contextmanager
    def honest(self) -> Iterator[None]:
        """What is told ends the session."""
        try:
            yield
        except TOLD as error:
            self._end(error.message)

    # --- episodes --------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """The world's own, of which nothing is observed."""
        self.client.do(self.talk.reset(1 + len(self.lives[0].episodes)))

    def first_step(self) -> None:
        """The neutral one, whose observation is that of the reset."""
        after_end = self._before is not None and self._fresh
        outcome = self.client.do(self.talk.step({name: np.array(NEUTRAL, np.float32) for name in self.names}))
        begin_episode(self.lives, outcome, after_end=after_end)
        self._fresh, self._playing = False, True

    def step(self) -> None:
        observe(self.lives, self.client.do(self.talk.step(give(self.lives))))

    def audit(self) -> None:
        """The episode is over, and what is believed of it must be so, unless it is told."""
        for life in self.lives:
            life.episodes[-1].written = len(self.pair.ledger)
        reason = self.client.do(self.talk.audit())
        for life in self.lives:
            life.episodes[-1].ended = True
        if reason:
            self._end(reason)
        self._playing = False

    def begin(self) -> None:
        """An episode, in a new session if need be."""
        self.ready()
        self.reset()
        self.first_step()

    def play(self, steps: int) -> None:
        """The rest of the episode that is under way, or a whole one."""
        with self.honest():
            if not self._playing:
                self.begin()
            for _ in range(steps):
                self.step()
            self.pair.settle(LATE)
            self.audit()

    # --- what happens to its datagrams, and what was true ------------------------------------------------------------

    def meets(self, fate: Callable[[int], Iterable[float]]) -> list[Datagram]:
        """From here on datagrams are numbered from 0, and meet what is said of their number. Returns all that come."""
        first = self.pair.count
        came: list[Datagram] = []

        def fault(datagram: Datagram) -> Iterable[float]:
            came.append(datagram)
            return fate(datagram.number - first)

        self.pair.fault = fault
        return came

    def calm(self) -> None:
        """Nothing more happens to them."""
        self.pair.fault = no_fault

    def verify(self) -> None:
        """What it believes is what ran, and as often."""
        assert [str(untruth) for untruth in self.untruths()] == []

    def untruths(self) -> list[Untruth]:
        return list(untrue(self.lives, self.pair.ledger))
