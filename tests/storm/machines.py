"""The machines alone in a storm: sessions wired to a server in memory, that live as environments do.

Each session joins in the storm too, plays its episodes, is told or not, leaves, and joins anew. Quicker than a whole
bridge, so that there can be many of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from itertools import count
from typing import Any, Final

from ospbridge.errors import AgentTaken, BarrierStuck, OspBridgeError
from ospbridge.osp.client import Exchange
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Fault, Hang, Pair
from tests.storm.lives import DIFFERENT, INPUTS, OUTPUTS, Life, Storm, Weather, begin_episode, give, observe

REORDERED: Final = 1e-3
"""Seconds by which one datagram lets others overtake it, at most."""
LIMITS: Final = Limits()
REBUILT_AFTER: Final = 0.5
"""Seconds from a session's goodbye to the INIT of the next one."""
STOPPED: Final = (0.1, 2.0)
"""Seconds for which the simulator's process is stopped, at least and at most."""
LONGEST: Final = 24 * 3600.0
"""Virtual seconds after which whoever is not done hangs."""
PATIENT: Final = 2
"""Barriers that stay shut, and agents that stay taken, until a user restarts the communication."""


class _Line:
    """What becomes of one datagram after the other, in one direction of one storm."""

    def __init__(self, weather: Weather, draw: random.Random) -> None:
        self._weather = weather
        self._draw = draw

    def __call__(self, _: Datagram) -> Iterable[float]:
        weather, draw = self._weather, self._draw
        copies = 2 if draw.random() < weather.duplicate else 1
        if draw.random() < weather.drop:
            return ()
        return [self._late() for _ in range(copies)]

    def _late(self) -> float:
        weather, draw = self._weather, self._draw
        if draw.random() < weather.delay:
            return draw.random() * weather.delay_max
        return draw.random() * REORDERED if draw.random() < weather.reorder else 0.0


class _Actor:
    """One process with one session after the other. ``program`` yields what it waits for."""

    def __init__(self, pair: Pair, storm: Storm, lives: list[Life]) -> None:
        self.lives = lives
        self.names = [life.agent for life in lives]
        self.wake_at: float | None = None
        self.client: Client | None = None
        self._pair = pair
        self._storm = storm
        self._stuck = 0
        self._ended = False
        """Its session takes the place of one that had ended ..."""
        self._before: Client | None = None
        """... the latest that had joined."""
        self._program = self._live()
        self._waits_for: Exchange[Any] | float | None = None
        self.over = False

    # --- what drives it --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._advance(None, None)

    def go_on(self) -> bool:
        """Take what has come; False where nothing has."""
        waits = self._waits_for
        if self.over:
            return False
        if isinstance(waits, float):
            if self._pair.now < waits:
                return False
            self._advance(None, None)
        elif waits is None:
            client = self.client
            if client is not None and not (client.connected or client.failed):
                return False
            failed = client.failed if client is not None else None
            self._advance(None, failed)
        else:
            assert self.client is not None
            if not self.client.finished:
                return False
            try:
                result = self.client.outcome()
            except OspBridgeError as error:
                self._advance(None, error)
            else:
                self._advance(result, None)
        return True

    def _advance(self, result: Any, error: BaseException | None) -> None:
        """Until it waits again."""
        while True:
            try:
                waits = self._program.throw(error) if error is not None else self._program.send(result)
            except StopIteration:
                self.over = True
                self.client = None
                return
            result = error = None
            self._waits_for = waits
            if isinstance(waits, float):
                self._pair.at(waits, lambda: None)
                return
            if waits is None:
                return
            assert self.client is not None
            try:
                self.client.begin(waits)
            except OspBridgeError as refused:
                error = refused
                continue
            return

    # --- what it does ----------------------------------------------------------------------------------------------

    @property
    def _done(self) -> bool:
        return all(life.enough(self._storm) for life in self.lives)

    def _live(self) -> Generator[Exchange[Any] | float | None, Any, None]:
        while not self._done:
            try:
                yield from self._join()
                assert self.client is not None
                yield self.client.conversation.register(self.names)
                while not self._done:
                    yield from self._episode()
            except OspBridgeError as error:
                self._mind(error)
            yield from self._leave()
            if self._stuck >= PATIENT:
                yield from self._restart()
            if not self._done:
                yield self._pair.now + REBUILT_AFTER

    def _join(self) -> Generator[None, Any, None]:
        before = self._before
        self.client = self._pair.client(PROFILES[self._storm.profile], limits=LIMITS)
        self.client.begin_to_connect()
        yield None
        self._before = self.client
        if before is not None:
            self._ended = True
            self.client.inherit(before)

    def _leave(self) -> Generator[Exchange[Any], Any, None]:
        if self.client is None or not self.client.connected:
            return
        with suppress(OspBridgeError):
            yield self.client.conversation.leave()
        self.client.vanish()

    def _restart(self) -> Generator[Exchange[Any] | None, Any, None]:
        """As a user does at last, whom the message tells so."""
        self._stuck = 0
        with suppress(OspBridgeError):
            yield from self._join()
            assert self.client is not None
            yield self.client.conversation.restart_communication()
        assert self.client is not None
        self.client.vanish()

    def _episode(self) -> Generator[Exchange[Any], Any, None]:
        assert self.client is not None
        talk = self.client.conversation
        talk.pop_notices()
        yield talk.reset(1 + len(self.lives[0].episodes))
        outcome = yield talk.step({name: [0.0] * INPUTS for name in self.names})
        self._stuck = 0
        begin_episode(self.lives, outcome, after_end=self._ended)
        self._ended = False
        for at in range(self._storm.horizon):
            observe(self.lives, (yield talk.step(give(self.lives))))
            if any(isinstance(notice, WorldReset) for notice in talk.pop_notices()):
                self._tell("the world was reset")
                return
            if at + 1 == self._storm.horizon or self._done:
                written = len(self._pair.ledger)
                reason = yield talk.audit()
                for life in self.lives:
                    life.episodes[-1].ended, life.episodes[-1].written = True, written
                if reason:
                    self._tell(reason)
                return

    def _mind(self, error: OspBridgeError) -> None:
        said = f"{type(error).__name__}: {error.message}"
        episodes = self.lives[0].episodes
        if episodes and not episodes[-1].ended and not episodes[-1].told:
            self._tell(said)
        else:
            for life in self.lives:
                life.troubles.append(said)
        self._stuck += isinstance(error, (BarrierStuck, AgentTaken))

    def _tell(self, why: str) -> None:
        for life in self.lives:
            life.episodes[-1].told = why


def _pauses(pair: Pair, runs: float, draw: random.Random) -> None:
    """Stop the simulator's process each time that it ran for about so long."""

    def stop() -> None:
        stopped = draw.uniform(*STOPPED)
        pair.pause(stopped)
        pair.at(pair.now + stopped + draw.uniform(0.5, 1.5) * runs, stop)

    pair.at(pair.now + draw.uniform(0.5, 1.5) * runs, stop)


def perform(storm: Storm, log: Callable[[Pair, Fault], Fault] | None = None) -> tuple[list[Life], Pair]:
    """What came of it. ``log``: is told of each datagram's fate. Raises Hang."""
    world = SyntheticWorld(INPUTS, OUTPUTS, 1, names=[f"agent{at}" for at in range(storm.agents)])
    draw = random.Random(f"{storm.profile}/{storm.seed}/{storm.agents}/{storm.clients}")
    stalls = random.Random(f"{storm.seed}/stall")
    pair = Pair(
        world,
        PROFILES[storm.profile],
        fault=_Line(storm.weather, draw),
        stall=(lambda: stalls.random() < storm.stall) if storm.stall else None,
    )
    if log is not None:
        pair.fault = log(pair, pair.fault)
    if storm.runs:
        _pauses(pair, storm.runs, random.Random(f"{storm.seed}/pauses"))
    crews = [storm.attached, *([name] for name in storm.direct)]
    others = count(step=DIFFERENT // storm.agents)
    actors = [_Actor(pair, storm, [Life(name, other=next(others)) for name in names]) for names in crews]
    for actor in actors:
        actor.begin()
    until = pair.now + LONGEST
    while not all(actor.over for actor in actors):
        try:
            pair.advance(until=until)
        except Hang:
            waiting = [", ".join(actor.names) for actor in actors if not actor.over]
            raise Hang(f"{'; '.join(waiting)} were not done after {LONGEST:g} virtual seconds") from None
        while any(actor.go_on() for actor in actors):
            pass
        pair.sent.clear()
    return [life for actor in actors for life in actor.lives], pair
