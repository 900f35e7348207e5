"""A whole bridge in a storm: a simulator, a daemon, environments at its hub and others that join directly, a sink.

One seed decides all that happens. Each environment takes its steps in episodes, resets after each, and begins anew what
it is told is lost, as a training program does; what it was told stands in its ``Life``.
"""

from __future__ import annotations

import logging
import os
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import greenback
import numpy as np
import structlog
import trio
import trio.testing

import ospbridge.daemon.relay.link
from ospbridge.daemon.relay.link import Upstream
from ospbridge.daemon.service import serve
from ospbridge.daemon.settings import Feeding, Settings
from ospbridge.envs.agent_env import AgentEnv
from ospbridge.errors import BarrierStuck, OspBridgeError, SessionLost
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import PROFILES
from ospbridge.record.reading import read_recording
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.sink.serving import Sink
from ospbridge.sink.store import Store
from ospbridge.task.making import task_maker
from ospbridge.task.reading import read
from ospbridge.transport.tls import StreamAddress
from tests.storm.kernel import Kernel
from tests.storm.lives import HORIZON, INPUTS, OUTPUTS, Episode, Life, Storm, inputs, untrue
from tests.storm.virtual import Signals, Streams, pause, virtual

SIMULATOR: Final = Endpoint("127.0.0.1", 45454)
HUB: Final = Path("/storm/hub.sock")
UPSTREAM: Final = StreamAddress(Endpoint("127.0.0.1", 5555))
SCENARIO: Final = f'name = "storm"\n[[agent]]\n[agent.episode]\nreward = "1"\nmax_steps = {HORIZON}\n'
LONGEST: Final = 48 * 3600.0
"""Virtual seconds after which whoever is not done hangs."""
LOOK_EVERY: Final = 600.0
PATIENT: Final = 2
"""Barriers that stay shut until an environment's user restarts the communication."""


@dataclass
class Work:
    """What came of a storm."""

    storm: Storm
    ledger: list[dict[str, Any]] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    datagrams: int = 0
    seconds: float = 0.0
    """Virtual ones."""
    daemons: int = 0
    """How often the daemon was started."""
    sink: Path = Path()
    unsent: int = 0


class _World:
    """The tasks of one run."""

    def __init__(self, work: Work, nursery: trio.Nursery, directory: Path) -> None:
        self.work = work
        self.storm = work.storm
        self.directory = directory
        self._nursery = nursery
        self._signals = Signals()
        weather = self.storm.weather
        self._simulator = UdpSimulator(
            SyntheticWorld(INPUTS, OUTPUTS, 1, names=[f"agent{at}" for at in range(self.storm.agents)]),
            profile=PROFILES[self.storm.profile],
            faults=FaultPlan(
                drop=weather.drop,
                duplicate=weather.duplicate,
                reorder=weather.reorder,
                delay=weather.delay,
                delay_max=weather.delay_max,
                seed=self.storm.seed,
            ),
            ledger=work.ledger.append,
            spin=False,
        )

    # --- the simulator and the daemon ------------------------------------------------------------------------------

    async def simulate(self) -> None:
        await greenback.ensure_portal()
        self._simulator.run()

    async def bridge(self) -> None:
        """The daemon, started again whenever it gives up, as systemd does."""
        work = self.work
        settings = Settings(
            hub=HUB,
            simulator=SIMULATOR,
            agents=tuple(self.storm.attached),
            make_task=task_maker(read(SCENARIO)),
            spin=False,
        )
        upstream = Upstream(address=UPSTREAM, unannotated=True, spool=self.directory / "spool")
        with (
            Store(work.sink) as store,
            mock.patch.object(ospbridge.daemon.relay.link, "open_stream", self._streams(store).open),
        ):
            ended = False
            while not ended:
                work.daemons += 1
                try:
                    await serve([settings], [Feeding(upstream)], self._signals.receive)
                    ended = True
                except* OspBridgeError:
                    await trio.sleep(1.0)

    def _streams(self, store: Store) -> Streams:
        return Streams(self._nursery, partial(_converse, Sink(store, None, env_steps=100)))

    # --- environments ----------------------------------------------------------------------------------------------

    async def live(self, life: Life, make: Callable[[], AgentEnv]) -> None:
        await greenback.ensure_portal()
        _Player(life, make, self.storm).play()
        if all(each.done for each in self.work.lives if each.agent in self.storm.attached):
            # What waits in the spool is given its time; what is left at the end stays there.
            await trio.sleep(30.0)
            self._signals.end()
        if all(each.done for each in self.work.lives):
            await trio.sleep(40.0)
            self._nursery.cancel_scope.cancel()


async def _converse(sink: Sink, stream: Any) -> None:
    await sink._client(stream, None)


class _Player:
    """One environment and its program: plain blocking code."""

    def __init__(self, life: Life, make: Callable[[], AgentEnv], storm: Storm) -> None:
        self._life = life
        self._make = make
        self._storm = storm
        self._stuck = 0

    def play(self) -> None:
        life = self._life
        env: AgentEnv | None = None
        while not life.enough(self._storm):
            try:
                if env is None:
                    env = self._make()
                self._episode(env)
            except OspBridgeError as error:
                self._mind(error)
                if isinstance(error, BarrierStuck) and self._stuck < PATIENT:
                    continue
                if env is not None:
                    env.close()
                    env = None
                if self._stuck >= PATIENT:
                    self._restart()
                pause(5.0)
        if env is not None:
            env.close()
        life.done = True

    def _episode(self, env: AgentEnv) -> None:
        life = self._life
        observation, _ = env.reset(seed=1 + len(life.episodes))
        self._stuck = 0
        # Whether its session is a new one is not for an environment to know.
        episode = Episode(observations=[observation.tolist()], after_end=True)
        life.episodes.append(episode)
        while not episode.ended:
            if self._storm.thinks:
                pause(self._storm.thinks)
            action = inputs(life.steps)
            life.steps += 1
            episode.actions.append(action)
            observation, _, terminated, truncated, info = env.step(np.array(action, np.float32))
            episode.observations.append(observation.tolist())
            episode.ended = terminated or truncated
            episode.told = info["reason"]

    def _mind(self, error: OspBridgeError) -> None:
        said = f"{type(error).__name__}: {error.message}"
        episodes = self._life.episodes
        if episodes and not episodes[-1].ended and not episodes[-1].told:
            episodes[-1].told = said
        else:
            self._life.troubles.append(said)
        self._stuck += isinstance(error, (BarrierStuck, SessionLost))

    def _restart(self) -> None:
        """As a user does at last, whom the message tells so."""
        self._stuck = 0
        with suppress(OspBridgeError):
            session = BlockingSession.connect(SIMULATOR, spin=False)
            try:
                session.restart_communication()
            finally:
                session.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """A storm is loud."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _look_on(look: Callable[[Kernel, Work], None], kernel: Kernel, work: Work) -> None:
    while True:
        await trio.sleep(LOOK_EVERY)
        look(kernel, work)


class Hang(AssertionError):
    """Somebody was not done within the longest virtual time there is."""


def run(storm: Storm, directory: Path, look: Callable[[Kernel, Work], None] | None = None) -> Work:
    """Play the storm; ``directory`` is empty, and the run's own. Raises Hang.

    ``look`` is called every ten virtual minutes.
    """
    work = Work(storm, sink=directory / "sink")
    work.lives = [Life(name) for name in (*storm.attached, *storm.direct)]
    with mock.patch.dict(os.environ, {"RUNTIME_DIRECTORY": str(directory / "run")}), _quiet():
        trio.run(_main, work, directory, look, clock=trio.testing.MockClock(autojump_threshold=0.0))
    waiting = [life.agent for life in work.lives if not life.done]
    if waiting:
        raise Hang(f"{', '.join(waiting)} were not done after {LONGEST:g} virtual seconds")
    return work


async def _main(work: Work, directory: Path, look: Callable[[Kernel, Work], None] | None) -> None:
    storm = work.storm
    scenario = directory / "storm.toml"
    scenario.write_text(SCENARIO)
    attached = partial(AgentEnv, bridge=f"unix:{HUB}", spin=False, scenario=str(scenario), wait=120.0)
    direct = partial(AgentEnv, simulator=str(SIMULATOR), spin=False, scenario=str(scenario), wait=120.0)
    async with virtual(storm.seed) as kernel:
        with trio.move_on_after(LONGEST):
            async with trio.open_nursery() as nursery:
                world = _World(work, nursery, directory)
                nursery.start_soon(world.simulate)
                nursery.start_soon(world.bridge)
                if look is not None:
                    nursery.start_soon(_look_on, look, kernel, work)
                for life in work.lives:
                    make = attached if life.agent in storm.attached else direct
                    nursery.start_soon(world.live, life, partial(make, agent=life.agent))
        work.datagrams = kernel.carried
        work.seconds = trio.current_time()


# --- what must hold behind it -----------------------------------------------------------------------------------------


def played(storm: Storm) -> tuple[Work, list[str]]:
    """What came of a storm over a whole bridge, and what did not hold."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            work = run(storm, Path(directory))
        except Exception as error:  # noqa: BLE001  # told with its seed
            return Work(storm), ["".join(traceback.format_exception(error))]
        return work, [*map(str, untrue(work.lives, work.ledger)), *_not_arrived(work)]


def _not_arrived(work: Work) -> Iterator[str]:
    """Episodes of environments at the hub that are not in the sink exactly once, as they were."""
    arrived = {}
    times: Counter[tuple[str, float]] = Counter()
    for kept in read_recording(work.sink):
        key = kept.agent, float(kept.actions[0][0])
        times[key] += 1
        arrived[key] = kept
    for key, count in times.items():
        if count > 1:
            yield f"an episode of {key[0]} arrived {count} times"
    for life in work.lives:
        if life.agent not in work.storm.attached:
            continue
        for number, episode in enumerate(life.episodes):
            key = life.agent, episode.actions[0][0]
            if key not in arrived:
                if episode.ended:
                    yield f"{life.agent}, episode {number} ended and never arrived"
                continue
            kept = arrived[key]
            count = len(episode.observations) - 1
            if kept.actions.tolist()[:count] != episode.actions[:count]:
                yield f"{life.agent}, episode {number} arrived with other actions"
            if kept.observations.tolist()[: count + 1] != episode.observations:
                yield f"{life.agent}, episode {number} arrived with other observations"
