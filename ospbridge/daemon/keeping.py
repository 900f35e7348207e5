"""Keeping a session with the simulator: joining, listening while nobody plays, giving up what is lost, and again.

While nobody plays, ``run`` listens to the simulator, so that resets by others are acknowledged and an eviction is
noticed. A step or a reset is run by whoever brings it about: that task sets ``busy``, and owns the session then.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.forcing import Forcing
from ospbridge.daemon.joining import awaited, join
from ospbridge.daemon.notices import foreign_reset
from ospbridge.daemon.patience import Patience
from ospbridge.errors import BarrierStuck, OspBridgeError, QueryTimeout, SessionLost, SimulatorNotFound
from ospbridge.observe import logs
from ospbridge.session.rebuild import Budget, PortProbe, costs_nothing
from ospbridge.task.making import task_maker
from ospbridge.task.vectors import spelled_out, undecided

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from typing import Never

    from ospbridge.daemon.launching import SimulatorLauncher
    from ospbridge.daemon.lockstep import LockStep
    from ospbridge.daemon.measures import Measures
    from ospbridge.daemon.settings import Settings
    from ospbridge.interface import AgentInterface
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.trio_session import TrioSession
    from ospbridge.task.base import Task

__all__ = ["SessionKeeper"]

log = logs.get(__name__)
LOOK_EVERY: Final = 5.0
"""Seconds between looks at whether a silent simulator is still there, while nobody plays."""
UNFIT_PAUSE: Final = 1.0
LONGEST_UNFIT_PAUSE: Final = 10.0
"""Seconds until a simulator that came back otherwise is joined again: each try may leave a handler behind, where
sessions that registered for events cannot say goodbye."""


class SessionKeeper:
    """The session with one simulator. ``run`` must be running; ``joined`` is called whenever there is a new session."""

    def __init__(
        self,
        settings: Settings,
        lockstep: LockStep,
        *,
        trace: TraceWriter | None,
        joined: Callable[[], None],
        measures: Measures,
        launcher: SimulatorLauncher | None = None,
    ) -> None:
        self.session: TrioSession | None = None
        self.broken = ""
        """Why the session must be rebuilt."""
        self.connection = "not joined yet"
        self.hint = ""
        """What to do where it is not joined; empty where that is not known, and where it is."""
        self.number = 0
        """Of the latest session; the log tells them apart by it."""
        self.busy = False
        """A step or reset is under way: the session belongs to the task that runs it."""
        self.busy_since = 0.0
        self._settings = settings
        self._lockstep = lockstep
        self._trace = trace
        self._joined = joined
        self._measures = measures
        self._launcher = launcher
        self._ended = False
        """It is not tried any more."""
        self.free = False
        """Rebuilding the session that was given up costs nothing."""
        self._lost_to: OspBridgeError | None = None
        """What the session was given up for."""
        self._lock = trio.Lock()
        """Whose turn it is to use the session while nobody plays."""
        self._stuck = False
        """The session was given up because others did not vote."""
        self._absence: PortProbe | None = None
        """Of the simulator, where the session was over when it was given up."""
        self._budget: Budget | None = None
        """Of rebuilds; None before the first run."""
        self._fitted = False
        """The simulator had what the tasks want."""
        self._listening: trio.CancelScope | None = None
        self._idle = trio.lowlevel.ParkingLot()

    @property
    def ready(self) -> bool:
        """The simulator is joined."""
        return self.session is not None and not self.broken

    @property
    def given_up_hint(self) -> str:
        """What to do where it is not tried any more; empty where it is."""
        return (self.hint or "see its log for why") if self._ended else ""

    def need_simulator(self) -> None:
        """Raises SimulatorNotFound before it was joined."""
        if not self.ready:
            hint = self.hint or "see its log for why"
            raise SimulatorNotFound(
                f"the daemon has not joined {self._settings.simulator} ({self.broken or self.connection})",
                hint=hint if self._ended else f"`ospbridge status --wait 30` tells when it has; else {hint}",
            )

    def ended(self, error: OspBridgeError) -> None:
        """``run`` has: the simulator is not joined any more, though others may be."""
        self._ended = True
        self.broken = ""
        self.connection, self.hint = f"given up: {error.message}", error.hint

    def tried_again_after(self, seconds: float) -> None:
        """Another ``run`` begins then, so that nobody need start anything."""
        self.hint = f"look at the simulator's own log; it is joined again within {seconds:g} s"

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[TrioSession]:
        """The session, for the task that has set ``busy``; ``run`` stops listening to it. Raises SessionLost."""
        if self._listening is not None:
            self._listening.cancel()
        async with self._lock:
            if self.session is None or self.broken:
                raise SessionLost(self.broken or "the session is being rebuilt")
            yield self.session

    async def explain(self, error: OspBridgeError) -> None:
        """Where a session is over because the launched simulator ended, the error is to say so."""
        if self._launcher is not None and self.session is not None and self.session.over:
            await self._launcher.explain(error)

    def give_up(self, error: OspBridgeError) -> None:
        """The session cannot be used any more."""
        if self.broken:
            return
        self.broken = error.message
        self._lost_to = error
        self._stuck = isinstance(error, BarrierStuck)
        if self.session is not None:
            self.free = costs_nothing(error, self.session.machine)
            if self.session.over:
                self._absence = PortProbe(self.session.server)
        foreign = sorted(self.session.machine.foreign) if self.session is not None else []
        risk = {"leaving_may_step": foreign} if foreign and self._vote_outstanding else {}
        if self._listening is not None:
            # There is nothing to listen to any more.
            self._listening.cancel()
        log.warning("the session is given up", session=self.number, reason=error.message, **risk)

    @property
    def _vote_outstanding(self) -> bool:
        return self.session is not None and self.session.machine.episode.request_outstanding

    def changed(self) -> None:
        """Somebody came, went, ended an episode, or gave up the session: it may be time to listen, or to rebuild."""
        if self._idle and not self.busy and (self.broken or not self._lockstep.playing):
            self._idle.unpark_all()

    async def run(self) -> Never:
        """Join, listen, and rebuild what is lost, until cancelled.

        Raises SessionLost when that happens too often, and at first what the tasks want in vain; a simulator that comes
        back without it is left alone for a while, and tried again. May run again after SessionLost.
        """
        if self._ended:
            self._ended = False
            self.connection, self.hint = "joining again", ""
        try:
            await self._stay_joined()
        finally:
            absence, self._absence = self._absence, None
            if absence is not None:
                absence.close()

    async def _stay_joined(self) -> Never:
        settings = self._settings
        budget = self._budget = self._budget or Budget(trio.current_time())
        forcing = Forcing(settings)
        patience: Patience | None = None
        previous: TrioSession | None = None
        away = False
        while True:
            unfit: OspBridgeError | None = None
            session, interfaces = await join(
                settings,
                number=self.number + 1,
                away=away,
                budget=budget,
                forcing=forcing,
                trace=self._trace,
                tally=self._measures.tally,
                report=self._not_joined,
                launcher=self._launcher,
            )
            if previous is not None:
                session.inherit(previous)
            previous = session
            try:
                self.number += 1
                bounded = session.profile.outputs_normalised
                make_task = await self._task_maker(session, interfaces)
                tasks = [make_task(interface, bounded=bounded) for interface in interfaces]
                for task in tasks:
                    # Who is told of a step is told them as numbers.
                    task.name_no_infos()
                await session.subscribe(tasks)
                foreign = session.machine.foreign
                missing = self._lockstep.take_agents(tasks, foreign)
                if missing:
                    theirs = [name for name in missing if name in foreign]
                    log.warning("agents are missing", **settings.whose, agents=missing, held_by_others=theirs)
                self._fitted = True
                patience = None
                # Only now: whoever finds it joined may attach.
                self.session = session
                self.broken = ""
                self.connection, self.hint = "joined", ""
                self._joined()
                await self._keep(session)
                if self._stuck and session.machine.foreign:
                    await forcing.restart(session, sorted(session.machine.foreign), self.broken)
            except (SessionLost, QueryTimeout) as error:
                if self.session is not None:
                    raise
                self.broken = error.message
                self._lost_to = error
                if session.over:
                    self._absence = PortProbe(session.server)
            except OspBridgeError as error:
                # At first it may be a mistake of the user's.
                if self.session is not None or not self._fitted:
                    raise
                self.broken = error.message
                unfit = error
            finally:
                self.session = None
                self._measures.left(session.machine.retries)
                await session.aclose()
            self.connection, self.hint = self.broken, "" if unfit is None else unfit.hint
            if unfit is not None:
                patience = patience or self._patience()
                await patience.after(unfit)
                # It costs no rebuild, so that none is to be given back.
                away = True
                continue
            absence, self._absence = self._absence, None
            free, self.free = self.free, False
            away = (
                (absence is not None and await trio.to_thread.run_sync(absence.was_away))
                or free
                # What that costs is counted where it is started again.
                or (self._launcher is not None and not self._launcher.alive)
            )
            if not away and not budget.spend(trio.current_time()):
                raise SessionLost(
                    f"the session with {settings.simulator} was lost too often "
                    f"({budget.capacity} times, one is forgiven a minute); the last time: {self.broken}",
                    hint="look at the simulator's own log; start the daemon again when it is mended",
                )
            assert self._lost_to is not None
            self._measures.rebuilt(self._lost_to)

    async def _task_maker(
        self, session: TrioSession, interfaces: Sequence[AgentInterface]
    ) -> Callable[..., Task]:
        """For agents of this simulator, which tells how many components its vectors have."""
        scenario = self._settings.scenario
        if scenario is None:
            return self._settings.make_task
        tables = filter(None, map(scenario.for_agent, interfaces))
        return task_maker(spelled_out(scenario, await session.components(undecided(tables))))

    def _patience(self) -> Patience:
        """With a simulator that came back without what the tasks were made for, as with the wrong scene."""

        def say(error: OspBridgeError, _waited: float) -> None:
            whose = self._settings.whose
            log.warning("the simulator came back otherwise", **whose, reason=error.message, hint=error.hint)

        return Patience(self._settings.wait, first=UNFIT_PAUSE, longest=LONGEST_UNFIT_PAUSE, say=say)

    def _not_joined(self, error: OspBridgeError) -> None:
        self.connection = f"waiting for {awaited(error)}: {error.message}"
        # What it says of a lost session is for whoever has an environment already.
        self.hint = "" if isinstance(error, SessionLost) else error.hint

    async def _keep(self, session: TrioSession) -> None:
        """Listen to the simulator while nobody plays; returns when the session is broken and nobody uses it."""
        while True:
            if self.busy or (self._lockstep.playing and not self.broken):
                await self._idle.park()
            elif self.broken:
                return
            else:
                async with self._lock:
                    if not self.busy:
                        await self._listen(session)

    async def _listen(self, session: TrioSession) -> None:
        # Only the waiting may be cut short: an interrupted question leaves answers behind that nobody awaits.
        with trio.move_on_after(LOOK_EVERY) as self._listening:
            await session.wait_readable()
        silent = self._listening.cancelled_caught
        self._listening = None
        if silent and not self.busy and not self.broken:
            try:
                await session.agents()
            except OspBridgeError as error:
                await self.explain(error)
                self.give_up(error)
        reset = foreign_reset(session)
        if reset:
            log.debug("notice", text=reset)
        if session.machine.lost is not None:
            self.give_up(session.machine.lost)
