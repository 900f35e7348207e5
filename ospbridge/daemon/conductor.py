"""The conductor of a simulator: it owns the session, and moves the attachments through steps and resets.

Who waits for whom is decided by ``lockstep``. Its steps are run by the barrier, its resets here. A session that is lost
is rebuilt by ``run``, which also listens to the simulator while nobody plays, so that resets by others are acknowledged
and an eviction is noticed.
"""

from __future__ import annotations

import random
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.attachment import State
from ospbridge.daemon.barrier import StepBarrier
from ospbridge.daemon.episodes import EpisodeTracker, Stats, log_episode
from ospbridge.daemon.lockstep import LockStep
from ospbridge.daemon.observers import Observers
from ospbridge.daemon.supervisor import Supervisor, foreign_reset
from ospbridge.errors import (
    BarrierStuck,
    OspBridgeError,
    SessionLost,
    ValueNotFound,
    ValueRejected,
)
from ospbridge.interface import LARGEST_SEED, unobserved
from ospbridge.observe import logs
from ospbridge.session.rebuild import Attempts
from ospbridge.task.base import HINT, unlike

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Never

    from ospbridge.daemon.attachment import Attachment, Driver
    from ospbridge.daemon.launching import SimulatorLauncher
    from ospbridge.daemon.recording import Recording
    from ospbridge.daemon.settings import Settings
    from ospbridge.interface import Match, StepOutcome
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.trio_session import TrioSession

__all__ = ["Conductor"]

log = logs.get(__name__)
MOST_TOLD: Final = 64
"""So many combinations say enough, where agents come and go for weeks."""


class Conductor:
    """One simulator's agents. ``run`` must be running for anything to happen."""

    def __init__(
        self,
        settings: Settings,
        *,
        trace: TraceWriter | None = None,
        recording: Recording | None = None,
        launcher: SimulatorLauncher | None = None,
    ) -> None:
        self.settings = settings
        self.launcher = launcher
        """None: somebody else starts the simulator."""
        self.recording = recording
        self.tracker = EpisodeTracker(simulator=str(settings.simulator))
        if recording is not None:
            self.tracker.listeners.append(recording)
        self.lockstep = LockStep(
            policy=settings.reset_policy,
            quorum=settings.quorum,
            limits=settings.limits,
            on_episode=self._episode_over,
        )
        self.observers = Observers(self.lockstep)
        self.resets = 0
        self.stats = Stats()
        self.supervisor = Supervisor(
            settings,
            self.lockstep,
            trace=trace,
            joined=self._changed,
            stats=self.stats,
            launcher=launcher,
        )
        self._attempts = Attempts()
        """Of the reset under way."""
        self._paces_told: set[tuple[tuple[str, int], ...]] = set()
        """Combinations of agents whose tasks repeat an action unlike often, each told once."""
        self.barrier = StepBarrier(
            self.lockstep,
            self.supervisor,
            tracker=self.tracker,
            observers=self.observers,
            stats=self.stats,
        )

    @property
    def ready(self) -> bool:
        """The simulator is joined."""
        return self.supervisor.ready

    @property
    def rebuilds(self) -> int:
        return self.stats.rebuilds.total()

    def logging(self) -> AbstractContextManager[object]:
        """Within it, what this task logs says which simulator it is about, where there are several."""
        name = self.settings.name
        return logs.bound(simulator=name) if name else nullcontext()

    # --- attaching -------------------------------------------------------------------------------------------------

    def attach(
        self,
        patterns: Sequence[str],
        driver: Driver,
        *,
        annotates: bool | None = None,
        meant: Sequence[Match] = (),
    ) -> list[Attachment]:
        """Take agents. Raises AgentNotFound, AgentTaken, UsageError; SimulatorNotFound before it was joined.

        ``annotates`` is what an environment says of itself; None: it is none. ``meant``: where several fit, only these.
        """
        self.supervisor.need_simulator()
        session = self.supervisor.session
        foreign = session.machine.foreign if session is not None else ()
        attachments = self.lockstep.attach(patterns, driver, meant, foreign)
        if annotates is not None:
            self._admit(attachments, annotates=annotates)
        log.info("attached", agents=[a.name for a in attachments], driver=str(driver))
        return attachments

    def _admit(self, attachments: Sequence[Attachment], *, annotates: bool) -> None:
        """Raises UsageError where an upstream cannot use what these environments will play; they are not attached."""
        try:
            for attachment in attachments:
                attachment.policy.annotates = annotates
            self.tracker.admit(attachments)
        except BaseException:
            for attachment in attachments:
                self.lockstep.leave(attachment, trio.current_time())
            raise

    def leave(self, attachments: Sequence[Attachment], reason: str = "") -> None:
        """Give agents back; nobody waits for them any more. ``reason``: why, where their driver did not ask for it."""
        for attachment in attachments:
            self.lockstep.leave(attachment, trio.current_time(), reason)
        self.tracker.left(attachments)
        if attachments:
            log.info("detached", agents=[a.name for a in attachments], driver=str(attachments[0].driver))
        self._changed()

    # --- steps -----------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Of the simulator, since the daemon began."""
        return self.lockstep.steps

    async def step(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        """One step; what it brought is in each attachment's ``feedback``. Raises what kept it from happening."""
        await self.barrier.step(moves)

    # --- resets ----------------------------------------------------------------------------------------------------

    async def reset(self, attachments: Sequence[Attachment], seed: int, thread: int) -> None:
        """Wait for the reset, and begin to play. Raises BarrierStuck where it does not come about in time."""
        for attachment in attachments:
            if attachment.held.missing:
                raise SessionLost(attachment.held.missing, hint=attachment.held.remedy)
        lockstep, supervisor, now = self.lockstep, self.supervisor, trio.current_time()
        self.tracker.turned_away(attachments)
        lockstep.ask_reset(attachments, seed, thread, now)
        self._changed()
        self.barrier.tell_suspended(attachments, now)
        while any(a.state is State.WAITING for a in attachments):
            if supervisor.busy_since is not None:
                await self.barrier.waiters.park()
            elif self.ready and lockstep.reset_due(now):
                await self._run_reset()
            else:
                away = "" if self.ready else supervisor.broken or supervisor.connection.text
                if lockstep.refuse_late_resets(now, away=away, given_up_hint=supervisor.given_up_hint):
                    self._changed()
                else:
                    with trio.move_on_at(lockstep.wakes_at(now)):
                        await self.barrier.waiters.park()
            now = trio.current_time()
        for attachment in attachments:
            if attachment.feedback is None:
                raise attachment.not_playing()

    async def _run_reset(self) -> None:
        lockstep, supervisor = self.lockstep, self.supervisor
        supervisor.busy_since = trio.current_time()
        seed = int(lockstep.next_reset.wanted_seed) or random.randint(1, LARGEST_SEED)
        try:
            asked, outcomes = await self._reset_session(seed)
            if not asked or (lockstep.waiting and all(a.gone for a in asked)):
                # All who asked for it have left, and whoever has come since may want another seed and other values.
                return
            lockstep.begin(outcomes, seed, trio.current_time())
            self._tell_paces()
            self.observers.began(lockstep.playing)
            self.tracker.began(lockstep.playing)
            self._attempts = Attempts()
            log.debug("reset", seed=seed, playing=[a.name for a in lockstep.playing])
        except (ValueNotFound, ValueRejected) as error:
            # A start value that the simulator does not take: no other session would change that.
            self._attempts = Attempts()
            lockstep.refuse(error)
        except OspBridgeError as error:
            await supervisor.explain(error)
            supervisor.give_up(error)
            if isinstance(error, BarrierStuck) or not self._attempts.again(free=supervisor.free):
                self._attempts = Attempts()
                lockstep.refuse(error)
        finally:
            supervisor.busy_since = None
            self._changed()

    async def _reset_session(self, seed: int) -> tuple[list[Attachment], dict[str, StepOutcome]]:
        """For whom, and what the neutral steps brought; nothing is done where nobody's task can begin."""
        lockstep = self.lockstep
        async with self.supervisor.turn() as session:
            await self._look_back(session)
            # What others did before this reset concerns no episode of ours.
            foreign_reset(session)
            values = lockstep.start_values(seed)
            outcomes = {name: unobserved(held.interface) for name, held in lockstep.held.items()}
            asked = lockstep.waiting
            if asked:
                for name, text in values.items():
                    await session.set(name, text)
                await session.reset(seed)
                self.resets += 1
                for _ in range(lockstep.settle_steps):
                    outcomes = await session.step(lockstep.actions)
                    lockstep.steps += 1
        return asked, outcomes

    def _tell_paces(self) -> None:
        """In the log, that agents begin to play together although their tasks repeat an action unlike often."""
        repeats = unlike(attachment.held.task for attachment in self.lockstep.playing)
        combination = tuple(sorted(repeats.items()))
        if not repeats or combination in self._paces_told or len(self._paces_told) >= MOST_TOLD:
            return
        self._paces_told.add(combination)
        log.warning(
            "actions of agents differ in length",
            action_repeat=repeats,
            taken=max(repeats.values()),
            hint=HINT,
        )

    async def _look_back(self, session: TrioSession) -> None:
        """At the steps of an episode that the reset to come abandons, which no audit has ended."""
        doubt = await session.audit_previous()
        if doubt:
            self.lockstep.next_reset.doubt = doubt
            log.warning("an abandoned episode is in doubt", reason=doubt)

    # --- suspending deadlines --------------------------------------------------------------------------------------

    @contextmanager
    def holding(self, driver: Driver, seconds: float, reason: str) -> Iterator[None]:
        """Whoever waits for ``driver`` loses no time meanwhile, for ``seconds`` at most."""
        now, deadlines = trio.current_time(), self.lockstep.deadlines
        deadlines.suspend(driver, now, seconds, reason)
        # Somebody else may have suspended them for longer, and what is told last counts.
        left, why = deadlines.left(now), deadlines.reason
        for other in {a.driver for a in self.lockstep.attachments if a.acted or a.state is State.WAITING}:
            if other is not driver:
                other.on_held(left, why)
        self._changed()
        try:
            yield
        finally:
            deadlines.resume(driver, trio.current_time())
            self._changed()

    def rest(self, attachments: Iterable[Attachment], reason: str) -> None:
        """They play no more until their next reset, and nobody waits for them."""
        for attachment in attachments:
            self.lockstep.rest(attachment, trio.current_time(), reason)
        self._changed()

    # --- the session -----------------------------------------------------------------------------------------------

    async def run(self) -> Never:
        """Keep the session until cancelled. Raises SessionLost when it is lost too often, and what joining raises.

        After SessionLost it may run again: one more rebuild each minute is left.
        """
        try:
            await self.supervisor.run()
        except OspBridgeError as error:
            self.supervisor.ended(error)
            self._changed()
            if self.launcher is not None:
                await self.launcher.stop()
            raise

    async def look_after_simulator(self) -> None:
        """Notice the end of a launched one while no step is under way; until cancelled, and then stop it."""
        if self.launcher is not None:
            await self.launcher.run(self.barrier.lose)

    def _changed(self) -> None:
        self.barrier.changed()

    def _episode_over(self, attachment: Attachment, how: str, reason: str) -> None:
        self.observers.ended(attachment, how, reason)
        self.tracker.ended(attachment, how, reason)
        attachment.held.ended(attachment.episode)
        self.stats.episodes[attachment.name, how] += 1
        log_episode(attachment, how, reason, seed=self.lockstep.seed, session=self.supervisor.number)
