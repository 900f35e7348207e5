"""The supervisor of a simulator: joins it, listens while nobody plays, gives a lost session up, and joins again.

A step or a reset is run by whoever brings it about: that task sets ``busy_since``, and owns the session then. While
nobody plays, ``run`` listens to the simulator, so that resets by others are acknowledged and an eviction is noticed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    BarrierStuck,
    ConfigurationError,
    OspBridgeError,
    QueryTimeout,
    SessionLost,
    SimulatorNotFound,
    SimulatorNotStarted,
    VersionRefused,
)
from ospbridge.interface import chosen
from ospbridge.observe import logs
from ospbridge.osp.notices import told_by
from ospbridge.osp.timing import RESTART_SETTLES
from ospbridge.session.rebuild import Budget, PortProbe, costs_nothing
from ospbridge.session.trio_session import TrioSession
from ospbridge.task.making import task_maker
from ospbridge.task.vectors import spelled_out, undecided
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from typing import Never

    from ospbridge.daemon.episodes import Stats
    from ospbridge.daemon.launching import SimulatorLauncher
    from ospbridge.daemon.lockstep import LockStep
    from ospbridge.daemon.settings import Settings
    from ospbridge.interface import AgentInterface
    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.task.base import Task

__all__ = ["Connection", "Patience", "Supervisor", "foreign_reset"]

log = logs.get(__name__)
LINGER: Final = 0.002
"""Seconds for which a step waits for its simulator before other tasks have their turn, where there is one simulator
only: the scheduler takes as long as a short step."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds: a simulator that comes back is joined within two."""
LONGEST_PAUSE_FOR_AGENTS: Final = 5.0
"""Seconds: each look at which agents there are is a session of its own, which the simulator opens and closes."""
SHORTEST_TRY: Final = 0.5
"""Seconds for an answer to INIT, however little is left: a real server takes a tenth of one."""
RESTARTS: Final = 3
"""Of the communication at once; one more a minute: two daemons that evict each other come to rest."""
LOOK_EVERY: Final = 5.0
"""Seconds between looks at whether a silent simulator is still there, while nobody plays."""
UNFIT_PAUSE: Final = 1.0
LONGEST_UNFIT_PAUSE: Final = 10.0
"""Seconds until a simulator that came back otherwise is joined again: each try may leave a handler behind, where
sessions that registered for events cannot say goodbye."""
SAID_AGAIN_AFTER: Final = 60.0
"""Seconds until waiting is mentioned a second time; from then on twice as long each time."""
REASONS: Final = 16
"""So many different ones are each said at once: more of them differ in their numbers alone."""


def foreign_reset(session: TrioSession) -> str:
    """Whether somebody else reset the world; takes the session's notices, and logs all others."""
    told = told_by(session.pop_notices())
    for anomaly in told.anomalies:
        log.debug("anomaly", text=anomaly)
    for remark in told.remarks:
        # Sessions say it once.
        log.warning("the simulator is limited", reason=remark)
    return told.reset


class Patience:
    """Pauses become longer, ``first`` to ``longest`` seconds, until ``wait`` seconds are over; None: never.

    ``say(error, waited)`` is called at once for what was not said before, and then ever more rarely.
    """

    def __init__(
        self,
        wait: float | None,
        *,
        first: float,
        longest: float,
        say: Callable[[OspBridgeError, float], None],
    ) -> None:
        self._started = trio.current_time()
        self._wait = wait
        self._pause = first
        self._longest = longest
        self._say = say
        self._said: set[str] = set()
        self._say_at = self._started
        self._silence = SAID_AGAIN_AFTER

    @property
    def left(self) -> float:
        """Seconds for which to go on."""
        return float("inf") if self._wait is None else self._started + self._wait - trio.current_time()

    async def after(self, error: OspBridgeError, *, longest: float | None = None) -> None:
        """Pause, or raise ``error`` where the time is over. ``longest``: for the next pauses, where not the usual."""
        if self.left <= 0:
            raise error.after(trio.current_time() - self._started)
        self._mention(error)
        await trio.sleep(max(0.0, min(self._pause, self.left)))
        self._pause = min(2 * self._pause, self._longest if longest is None else longest)

    def _mention(self, error: OspBridgeError) -> None:
        now = trio.current_time()
        again = now >= self._say_at
        if again:
            self._say_at = now + self._silence
            self._silence *= 2
        if again or (error.message not in self._said and len(self._said) < REASONS):
            self._said.add(error.message)
            self._say(error, round(now - self._started, 1))


# --- joining ---------------------------------------------------------------------------------------------------------


class _Joiner:
    """Connects and takes the agents, however long that takes. ``report`` is called with what is in the way."""

    def __init__(
        self,
        settings: Settings,
        *,
        trace: TraceWriter | None,
        tally: Tally,
        report: Callable[[OspBridgeError], None],
        launcher: SimulatorLauncher | None,
    ) -> None:
        self.budget = Budget(trio.current_time())
        """Of rebuilds."""
        self._settings = settings
        self._trace = trace
        self._tally = tally
        self._report = report
        self._launcher = launcher
        self._restarts = Budget(trio.current_time(), capacity=RESTARTS)
        self._restart_refused = False
        """A restart was not allowed so soon, and that was said: whoever waits for agents looks often."""

    async def join(self, *, number: int, away: bool) -> tuple[TrioSession, tuple[AgentInterface, ...]]:
        """A session that controls the agents asked for. ``number`` counts sessions from 1.

        Waits for an absent simulator, which costs nothing, and for one without agents: who starts a daemon before the
        simulator has loaded its scene is no worse off than who starts it before the simulator. What cannot be mended
        by waiting is raised, at the first time also what may be a mistake of the user's: an unknown host, fewer agents
        than a quorum, a program that cannot be launched, and, unless the settings say how long to wait, agents that do
        not exist or are taken. The budget is given back what the loss of a session before has cost, where the
        simulator was away; ``away`` says that this has been seen already.
        """
        settings = self._settings
        patience = Patience(settings.wait, first=FIRST_PAUSE, longest=LONGEST_PAUSE, say=self._say)
        first = number == 1
        away = away or first
        while True:
            error: OspBridgeError
            try:
                if self._launcher is not None:
                    await self._launcher.ensure(self.budget)
                session = await self._connected(patience.left)
            except VersionRefused:
                raise
            except SimulatorNotFound as absent:
                error = absent
                if not away:
                    away = True
                    self.budget.give_back()
            except (ConfigurationError, SimulatorNotStarted) as wrong:
                if first:
                    raise
                error = wrong
            else:
                try:
                    if await self._free(session):
                        continue
                    return session, await self._registered(session, number)
                except (AgentNotFound, AgentTaken, ConfigurationError) as unfit:
                    await session.aclose()
                    if first and self._mistaken(unfit, session):
                        raise
                    error = unfit
                except OspBridgeError as broken:
                    await session.aclose()
                    if not self.budget.spend(trio.current_time()):
                        raise SessionLost(
                            f"joining {settings.simulator} failed too often: {broken.message}",
                            hint=broken.hint,
                        ) from None
                    away = False
                    error = broken
                except BaseException:
                    await session.aclose()
                    raise
            self._report(error)
            longest = LONGEST_PAUSE_FOR_AGENTS if _of_agents(error) else LONGEST_PAUSE
            await patience.after(error, longest=longest)

    def _mistaken(self, error: OspBridgeError, session: TrioSession) -> bool:
        """It is likely to be the user's mistake.

        Agents are, where the scene is loaded and nothing says that they are to be waited for: a name may be mistyped.
        """
        return not _of_agents(error) or (self._settings.wait is None and bool(session.core.agents))

    def _say(self, error: OspBridgeError, waited: float) -> None:
        told = {"reason": error.message, "hint": error.hint, "waited": waited}
        if _of_agents(error):
            # It may be that nobody will ever bring them: a name may be mistyped.
            log.warning("waiting for agents", **self._settings.whose, **told)
        else:
            log.info("waiting for the simulator", **self._settings.whose, **told)

    async def _connected(self, left: float) -> TrioSession:
        settings, limits = self._settings, self._settings.limits
        # Without waiting there is one try, which the limit of a try is for.
        if settings.wait and left < limits.connect:
            limits = replace(limits, connect=max(left, SHORTEST_TRY))
        connect = partial(
            TrioSession.connect,
            settings.simulator,
            profile=settings.profile,
            limits=limits,
            spin=settings.spin,
            linger=LINGER if settings.spin else 0.0,
            trace=self._trace,
            tally=self._tally,
        )
        try:
            return await (connect() if self._launcher is None else self._launcher.while_alive(connect))
        except OSError as error:
            # Of this moment, as where no descriptor is left, or an interface has just gone down.
            raise ConfigurationError(
                f"cannot open a socket to {settings.simulator}: {error.strerror or error}",
                hint="see how many descriptors the daemon may have (`ulimit -n`, LimitNOFILE), and the network",
            ) from None

    async def _registered(self, session: TrioSession, number: int) -> tuple[AgentInterface, ...]:
        settings = self._settings
        names = await session.matching(settings.agents)
        if number == 1 and len(names) < settings.quorum:
            raise self._too_few(session, free=names)
        interfaces = await session.register(*names)
        log.info(
            "joined",
            **settings.whose,
            session=number,
            profile=session.profile.name,
            agents=list(session.controlled),
            held_by_others=sorted(session.machine.foreign),
        )
        if settings.meant and not any(match.fits(agent) for match in settings.meant for agent in interfaces):
            # Its reward would be missed only when a policy has learned nothing.
            log.warning(
                "the scenario matches no agent",
                **settings.whose,
                matches=[str(match) for match in settings.meant],
                agents=list(session.controlled),
                hint="`ospbridge check FILE --simulator HOST:PORT` tells what does not fit",
            )
        return interfaces

    def _too_few(self, session: TrioSession, *, free: Sequence[str]) -> OspBridgeError:
        """Fewer agents are free than must wait for the first reset: others may let go of theirs, or have none."""
        settings = self._settings
        there = sorted(entry.name for entry in session.core.agents)
        wanted = chosen(there, settings.agents) if settings.agents else there
        if len(wanted) < settings.quorum:
            return ConfigurationError(
                f"a quorum of {settings.quorum} can never be met: {pluralize(len(wanted), 'agent')}",
                hint="lower --quorum, or take more agents with --agent",
            )
        taken = [name for name in wanted if name not in free]
        return AgentTaken(
            f"a quorum of {settings.quorum} needs more than the "
            f"{pluralize(len(free), 'agent')} of {session.server} that are free; "
            f"controlled by other clients: {listed(taken)}",
            agents=taken,
        )

    # A client that died registered, and left no lease, holds its agents for good on a real server, and its missing
    # request stops the world; there is no other way out than RESET_COMMUNICATION, which disconnects every client, the
    # living ones too. Only where the user allowed it.

    async def _free(self, session: TrioSession) -> bool:
        """Restart the communication where another client holds an agent that is wanted; True: ``session`` is over."""
        if not self._settings.force_restart:
            return False
        agents = await session.agents()
        names = [entry.name for entry in agents]
        patterns = self._settings.agents
        if not all(chosen(names, (pattern,)) for pattern in patterns):
            # Nothing is gained by it before all of them are there.
            return False
        wanted = chosen(names, patterns) if patterns else names
        held = [entry.name for entry in agents if not entry.available and entry.name in wanted]
        return bool(held) and await self.restart(session, held, "they are wanted")

    async def restart(self, session: TrioSession, held: Sequence[str], reason: str) -> bool:
        """Disconnect every client, where that is allowed, and not too often; True: ``session`` is over."""
        if not self._settings.force_restart or session.closed:
            return False
        settings, agents = self._settings, list(held)
        if not self._restarts.spend(trio.current_time()):
            if not self._restart_refused:
                log.warning(
                    "the communication is not restarted again so soon", **settings.whose, agents=agents
                )
            self._restart_refused = True
            return False
        self._restart_refused = False
        log.warning("the communication is restarted", **settings.whose, agents=agents, reason=reason)
        with suppress(OspBridgeError):
            await session.restart_communication()
        await session.aclose()
        await trio.sleep(RESTART_SETTLES)
        return True


def _of_agents(error: OspBridgeError) -> bool:
    """It is agents that are waited for, not the simulator."""
    return isinstance(error, (AgentNotFound, AgentTaken))


# --- keeping ---------------------------------------------------------------------------------------------------------


class Connection(NamedTuple):
    """How it stands with the simulator."""

    text: str
    """``joined``, or what keeps it from that."""
    hint: str = ""
    """What to do where it is not joined; empty where that is not known, and where it is."""
    given_up: bool = False
    """It is not tried any more, or not for a while."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """Why a session cannot be used any more."""

    error: OspBridgeError
    free: bool = False
    """Rebuilding it costs nothing."""
    absence: PortProbe | None = None
    """Of the simulator, where the session was over when it was given up."""


class Supervisor:
    """The session with one simulator. ``run`` must be running; ``joined`` is called whenever there is a new session."""

    def __init__(
        self,
        settings: Settings,
        lockstep: LockStep,
        *,
        trace: TraceWriter | None,
        joined: Callable[[], None],
        stats: Stats,
        launcher: SimulatorLauncher | None = None,
    ) -> None:
        self.session: TrioSession | None = None
        self.number = 0
        """Of the latest session; the log tells them apart by it."""
        self._connection = Connection("not joined yet")
        self.busy_since: float | None = None
        """When the step or reset under way began, whose task has the session; None: nothing is under way."""
        self._settings = settings
        self._lockstep = lockstep
        self._trace = trace
        self._joined = joined
        self._stats = stats
        self._launcher = launcher
        self.loss: _Loss | None = None
        """Why the session must be rebuilt."""
        self._joiner: _Joiner | None = None
        """None before the first run."""
        self._lock = trio.Lock()
        """Whose turn it is to use the session while nobody plays."""
        self._listening: trio.CancelScope | None = None
        self._idle = trio.lowlevel.ParkingLot()

    @property
    def connection(self) -> Connection:
        """How it stands with the simulator now."""
        launcher = self._launcher
        if launcher is not None and launcher.starting:
            return self._connection._replace(text=f"launching {launcher.name}")
        return self._connection

    @property
    def broken(self) -> str:
        """Why the session must be rebuilt; empty where there is none to be, or it is sound."""
        return self.loss.error.message if self.loss is not None else ""

    @property
    def free(self) -> bool:
        """Rebuilding the session that was given up costs nothing."""
        return self.loss is not None and self.loss.free

    @property
    def ready(self) -> bool:
        """The simulator is joined."""
        return self.session is not None and self.loss is None

    @property
    def given_up_hint(self) -> str:
        """What to do where it is not tried any more; empty where it is."""
        return (self.connection.hint or "see its log for why") if self.connection.given_up else ""

    def need_simulator(self) -> None:
        """Raises SimulatorNotFound before it was joined."""
        if not self.ready:
            hint = self.connection.hint or "see its log for why"
            raise SimulatorNotFound(
                f"the daemon has not joined {self._settings.simulator} ({self.broken or self.connection.text})",
                hint=self.given_up_hint or f"`ospbridge status --wait 30` tells when it has; else {hint}",
            )

    def ended(self, error: OspBridgeError) -> None:
        """``run`` has: the simulator is not joined any more, though others may be."""
        self.loss = None
        self._connection = Connection(f"given up: {error.message}", error.hint, given_up=True)

    def tried_again_after(self, seconds: float) -> None:
        """Another ``run`` begins then, so that nobody need start anything."""
        hint = f"look at the simulator's own log; it is joined again within {seconds:g} s"
        self._connection = self._connection._replace(hint=hint)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[TrioSession]:
        """The session, for the task that has set ``busy_since``: ``run`` listens no longer. Raises SessionLost."""
        if self._listening is not None:
            self._listening.cancel()
        async with self._lock:
            if self.session is None or self.loss is not None:
                raise SessionLost(self.broken or "the session is being rebuilt")
            yield self.session

    async def explain(self, error: OspBridgeError) -> None:
        """Where a session is over because the launched simulator ended, the error is to say so."""
        if self._launcher is not None and self.session is not None and self.session.over:
            await self._launcher.explain(error)

    def give_up(self, error: OspBridgeError) -> None:
        """The session cannot be used any more."""
        if self.loss is not None:
            return
        session = self.session
        risk = {}
        if session is None:
            self.loss = _Loss(error)
        else:
            absence = PortProbe(session.server) if session.over else None
            self.loss = _Loss(error, costs_nothing(error, session.machine), absence)
            if session.machine.foreign and session.machine.episode.request_outstanding:
                risk = {"leaving_may_step": sorted(session.machine.foreign)}
        if self._listening is not None:
            # There is nothing to listen to any more.
            self._listening.cancel()
        log.warning("the session is given up", session=self.number, reason=error.message, **risk)

    def changed(self) -> None:
        """Somebody came, went, ended an episode, or gave up the session: it may be time to listen, or to rebuild."""
        if self._idle and self.busy_since is None and (self.loss is not None or not self._lockstep.playing):
            self._idle.unpark_all()

    async def run(self) -> Never:
        """Join, listen, and rebuild what is lost, until cancelled.

        Raises SessionLost when that happens too often, and at first what the tasks want in vain; a simulator that comes
        back without it is left alone for a while, and tried again. May run again after SessionLost.
        """
        if self.connection.given_up:
            self._connection = Connection("joining again")
        try:
            await self._stay_joined()
        finally:
            if self.loss is not None and self.loss.absence is not None:
                self.loss.absence.close()

    async def _stay_joined(self) -> Never:
        if self._joiner is None:
            self._joiner = _Joiner(
                self._settings,
                trace=self._trace,
                tally=self._stats.tally,
                report=self._not_joined,
                launcher=self._launcher,
            )
        joiner = self._joiner
        patience: Patience | None = None
        previous: TrioSession | None = None
        away = False
        while True:
            session, interfaces = await joiner.join(number=self.number + 1, away=away)
            if previous is not None:
                session.machine.succeed(previous.machine)
            previous = session
            unfit = await self._keep(session, interfaces, joiner)
            loss = self.loss
            assert loss is not None
            self._connection = Connection(loss.error.message, "" if unfit is None else unfit.hint)
            if unfit is None:
                patience = None
                away = await self._was_away(loss)
                if not away and not joiner.budget.spend(trio.current_time()):
                    raise SessionLost(
                        f"the session with {self._settings.simulator} was lost too often "
                        f"({joiner.budget.capacity} times, one is forgiven a minute); the last time: {self.broken}",
                        hint="look at the simulator's own log; start the daemon again when it is mended",
                    )
                self._stats.rebuilt(loss.error)
            else:
                patience = patience or self._patience()
                await patience.after(unfit)
                # It costs no rebuild, so that none is to be given back.
                away = True

    async def _keep(
        self, session: TrioSession, interfaces: Sequence[AgentInterface], joiner: _Joiner
    ) -> OspBridgeError | None:
        """Until the session is lost, and nobody uses it. Returns why the tasks cannot use it, where that is so."""
        unfit = None
        try:
            self.number += 1
            await self._take_agents(session, interfaces)
            # Only now: whoever finds it joined may attach.
            self.session = session
            self.loss = None
            self._connection = Connection("joined")
            self._joined()
            await self._listen_until_broken(session)
            if (
                self.loss is not None
                and isinstance(self.loss.error, BarrierStuck)
                and session.machine.foreign
            ):
                await joiner.restart(session, sorted(session.machine.foreign), self.broken)
        except (SessionLost, QueryTimeout) as error:
            if self.session is not None:
                raise
            self.loss = _Loss(error, absence=PortProbe(session.server) if session.over else None)
        except OspBridgeError as error:
            # At first, before any agents were taken, it may be a mistake of the user's.
            if self.session is not None or not self._lockstep.held:
                raise
            self.loss = _Loss(error)
            unfit = error
        finally:
            self.session = None
            self._stats.left(session.machine.retries)
            await session.aclose()
        return unfit

    async def _was_away(self, loss: _Loss) -> bool:
        """The simulator was, so that rebuilding costs nothing; or it does not for another reason."""
        absence = loss.absence
        return (
            (absence is not None and await trio.to_thread.run_sync(absence.was_away))
            or loss.free
            # What that costs is counted where it is started again.
            or (self._launcher is not None and not self._launcher.alive)
        )

    async def _take_agents(self, session: TrioSession, interfaces: Sequence[AgentInterface]) -> None:
        bounded = session.profile.outputs_normalised
        make_task = await self._task_maker(session, interfaces)
        tasks = [make_task(interface, bounded=bounded) for interface in interfaces]
        for task in tasks:
            # Who is told of a step is told them as numbers.
            task.share_plain_info()
        await session.subscribe(tasks)
        foreign = session.machine.foreign
        missing = self._lockstep.take_agents(tasks, foreign)
        if missing:
            theirs = [name for name in missing if name in foreign]
            log.warning("agents are missing", **self._settings.whose, agents=missing, held_by_others=theirs)

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
        awaited = "agents" if _of_agents(error) else "the simulator"
        # What it says of a lost session is for whoever has an environment already.
        hint = "" if isinstance(error, SessionLost) else error.hint
        self._connection = Connection(f"waiting for {awaited}: {error.message}", hint)

    async def _listen_until_broken(self, session: TrioSession) -> None:
        """Listen to the simulator while nobody plays; returns when the session is broken and nobody uses it."""
        while True:
            if self.busy_since is not None or (self._lockstep.playing and self.loss is None):
                await self._idle.park()
            elif self.loss is not None:
                return
            else:
                async with self._lock:
                    if self.busy_since is None:
                        await self._listen(session)

    async def _listen(self, session: TrioSession) -> None:
        # Only the waiting may be cut short: an interrupted question leaves answers behind that nobody awaits.
        with trio.move_on_after(LOOK_EVERY) as self._listening:
            await session.wait_readable()
        silent = self._listening.cancelled_caught
        self._listening = None
        if silent and self.busy_since is None and self.loss is None:
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
