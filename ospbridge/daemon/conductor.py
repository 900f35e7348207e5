"""The conductor of a simulator: it owns the session, and moves the attachments through steps and resets.

A step has one straight path: the attachment that brings the last missing action runs the step itself, in its own
task, and the others wait. A session that is lost is rebuilt by ``run``, which also listens to the simulator while
nobody plays, so that resets by others are acknowledged and an eviction is noticed.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.attachment import State
from ospbridge.daemon.episodes import log_episode
from ospbridge.daemon.equipping import equip, unobserved
from ospbridge.daemon.joining import join
from ospbridge.daemon.lockstep import LockStep
from ospbridge.daemon.notices import foreign_reset
from ospbridge.daemon.observers import Observers
from ospbridge.daemon.withheld import waits_for_itself, withheld
from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    OspBridgeError,
    SessionLost,
    SimulatorNotFound,
)
from ospbridge.observe import logs
from ospbridge.session.budget import Budget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Never

    from ospbridge.daemon.attachment import Attachment, Driver
    from ospbridge.daemon.recording import Recording
    from ospbridge.daemon.settings import Settings
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.trio_session import TrioSession

__all__ = ["Conductor"]

log = logs.get(__name__)
LOOK_EVERY: Final = 5.0
"""Seconds between looks at whether a silent simulator is still there, while nobody plays."""
RESET_TRIES: Final = 2
"""A reset that finds the session lost has it rebuilt and tries once more."""
SAME_THREAD_GRACE: Final = 1.0
"""Seconds after which a wait that nobody can end, since one thread drives both sides, is an error."""
LARGEST_SEED: Final = 2**31 - 1


class Conductor:
    """One simulator's agents. ``run`` must be running for anything to happen."""

    def __init__(
        self, settings: Settings, *, trace: TraceWriter | None = None, recording: Recording | None = None
    ) -> None:
        self.settings = settings
        self.recording = recording
        self.lockstep = LockStep(
            policy=settings.reset_policy, quorum=settings.quorum, on_episode=self._episode_over
        )
        self.observers = Observers(self.lockstep)
        self._channels = self.observers.channels
        self.connection = "not joined yet"
        self.steps = 0
        self.resets = 0
        self.rebuilds = 0
        self._trace = trace
        self._session: TrioSession | None = None
        self._broken = ""
        """Why the session must be rebuilt."""
        self._failed_resets = 0
        self._running = False
        """A step or reset is under way: the session belongs to the task that runs it."""
        self._lock = trio.Lock()
        """Whose turn it is to use the session while nobody plays."""
        self._listening: trio.CancelScope | None = None
        self._waiters = trio.lowlevel.ParkingLot()
        self._keeper = trio.lowlevel.ParkingLot()

    @property
    def ready(self) -> bool:
        """The simulator is joined."""
        return self._session is not None and not self._broken

    @property
    def profile(self) -> str:
        return self._session.profile.name if self._session is not None else ""

    @property
    def outputs_normalised(self) -> bool:
        return self._session is not None and self._session.profile.outputs_normalised

    def need_simulator(self) -> None:
        """Raises SimulatorNotFound before it was joined."""
        if not self.ready:
            raise SimulatorNotFound(
                f"the daemon has not joined {self.settings.simulator} ({self._broken or self.connection})",
                hint="start the simulator, then see `ospbridge status --wait 30`",
            )

    # --- attaching -------------------------------------------------------------------------------------------------

    def attach(self, patterns: Sequence[str], driver: Driver) -> list[Attachment]:
        """Take agents. Raises AgentNotFound, AgentTaken, UsageError; SimulatorNotFound before it was joined."""
        self.need_simulator()
        attachments = self.lockstep.attach(patterns, driver)
        log.info("attached", agents=[a.name for a in attachments], driver=str(driver))
        return attachments

    def leave(self, attachments: Sequence[Attachment], reason: str = "") -> None:
        """Give agents back; nobody waits for them any more. ``reason``: why, where their driver did not ask for it."""
        for attachment in attachments:
            self.lockstep.leave(attachment, trio.current_time(), reason)
        if self.recording is not None:
            self.recording.left(attachments)
        if attachments:
            log.info("detached", agents=[a.name for a in attachments], driver=str(attachments[0].driver))
        self._changed()

    # --- steps -----------------------------------------------------------------------------------------------------

    async def step(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        """One step; what it brought is in each attachment's ``feedback``. Raises what kept it from happening."""
        lockstep = self.lockstep
        if len(moves) > 1 and len({attachment.name for attachment, _ in moves}) < len(moves):
            raise LocalProtocolError("an agent is named twice in one step")
        acting = []
        for attachment, data in moves:
            if attachment.state is State.PLAYING:
                acting.append((attachment, attachment.read_inputs(data)))
            elif not attachment.cut:
                raise attachment.not_playing()
        for attachment, _ in moves:
            if attachment.cut:
                attachment.cut_short(attachment.cut, seed=lockstep.seed)
                attachment.cut = ""
        if self.recording is not None:
            self.recording.given(moves)
        for attachment, inputs in acting:
            lockstep.act(attachment, inputs)
        if acting:
            if lockstep.step_due and not self._running:
                await self._run_step()
            else:
                await self._until_stepped([attachment for attachment, _ in acting])
        for attachment, _ in moves:
            if attachment.feedback is None:
                raise attachment.not_playing()

    async def _until_stepped(self, acting: Sequence[Attachment]) -> None:
        limit = self.settings.limits.step
        asked = trio.current_time()
        while any(a.acted for a in acting):
            if self._running:
                await self._waiters.park()
            elif self.lockstep.step_due:
                await self._run_step()
            elif trio.current_time() >= asked + limit:
                self.lockstep.drop_laggards(limit, trio.current_time())
            else:
                with trio.move_on_at(asked + limit):
                    await self._waiters.park()

    async def _run_step(self) -> None:
        session = self._session
        assert session is not None
        self._running = True
        try:
            lockstep = self.lockstep
            ended = False
            # Who leaves meanwhile takes its inputs out of the lock-step, but not out of the step.
            inputs = dict(lockstep.actions) if self._channels else None
            for repeats in range(lockstep.action_repeat):
                outcomes = await session.step(lockstep.actions)
                self.steps += 1
                ended = lockstep.stepped(outcomes, repeats=repeats)
                if ended:
                    break
            lockstep.acted()
            if inputs is not None:
                self.observers.stepped(lockstep.playing, inputs)
            reason = foreign_reset(session) if session.machine.notices else ""
            if ended or reason:
                reason = reason or await self._audit(session)
                self.lockstep.end_episodes(trio.current_time(), reason=reason)
            if inputs is not None:
                self.observers.settled()
            if self.recording is not None:
                self.recording.stepped(lockstep.playing)
        except BarrierStuck as error:
            self.lockstep.fail_all(error, trio.current_time())
            self._break(error)
        except OspBridgeError as error:
            self.lockstep.cut_all(error.message, trio.current_time())
            self._break(error)
        finally:
            self._running = False
            self._changed()

    async def _audit(self, session: TrioSession) -> str:
        """Whether the clock agrees with the steps of the episode that ends."""
        try:
            reason = await session.audit()
        except OspBridgeError as error:
            self._break(error)
            return error.message
        if reason:
            log.warning("steps and clock disagree", reason=reason)
        return reason

    # --- resets ----------------------------------------------------------------------------------------------------

    async def reset(self, attachments: Sequence[Attachment], seed: int, thread: int) -> None:
        """Wait for the reset, and begin to play. Raises BarrierStuck where it does not come about in time."""
        for attachment in attachments:
            if attachment.held.missing:
                raise SessionLost(attachment.held.missing, hint="make the environment anew")
        if self.recording is not None:
            self.recording.turned_away(attachments)
        asked, steps = trio.current_time(), self.steps
        self.lockstep.ask_reset(attachments, seed, thread, asked)
        self._changed()
        until = asked + self.settings.limits.reset
        while any(a.state is State.WAITING for a in attachments):
            now = trio.current_time()
            if self._running:
                await self._waiters.park()
            elif self.ready and self.lockstep.reset_due(now):
                await self._run_reset()
            elif now >= until:
                why = "" if self.ready else self._broken or self.connection
                self._give_up(attachments, withheld(self.lockstep, now - asked, not_joined=why))
            else:
                if now >= asked + SAME_THREAD_GRACE and self.steps == steps:
                    own = waits_for_itself(self.lockstep, attachments)
                    if own is not None:
                        self._give_up(attachments, own)
                with trio.move_on_at(self._wake_at(asked, until, now)):
                    await self._waiters.park()
        for attachment in attachments:
            if attachment.feedback is None:
                raise attachment.not_playing()

    def _wake_at(self, asked: float, until: float, now: float) -> float:
        moments = (asked + SAME_THREAD_GRACE, self.lockstep.grace_ends)
        return min([until, *(moment for moment in moments if moment > now)])

    def _give_up(self, attachments: Sequence[Attachment], error: OspBridgeError) -> Never:
        """They wait no longer."""
        for attachment in attachments:
            if attachment.state is State.WAITING:
                attachment.state = State.ATTACHED
        raise error

    async def _run_reset(self) -> None:
        self._running = True
        lockstep = self.lockstep
        seed, lockstep.wanted_seed = lockstep.wanted_seed or random.randint(1, LARGEST_SEED), 0
        try:
            async with self._turn() as session:
                session.take_notices()
                for name, text in lockstep.start_values(seed).items():
                    await session.set(name, text)
                await session.reset(seed)
                self.resets += 1
                outcomes = unobserved(lockstep.held.values())
                for _ in range(lockstep.settle_steps):
                    outcomes = await session.step(lockstep.actions)
                    self.steps += 1
            lockstep.begin(outcomes, seed, trio.current_time())
            self.observers.began(lockstep.playing)
            if self.recording is not None:
                self.recording.began(lockstep.playing)
            self._failed_resets = 0
            log.debug("reset", seed=seed, playing=[a.name for a in lockstep.playing])
        except OspBridgeError as error:
            self._break(error)
            self._failed_resets += 1
            if isinstance(error, BarrierStuck) or self._failed_resets >= RESET_TRIES:
                self._failed_resets = 0
                lockstep.refuse(error)
            elif not lockstep.wanted_seed:
                lockstep.wanted_seed = seed
        finally:
            self._running = False
            self._changed()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[TrioSession]:
        """The session, for the task that has set ``_running``; ``run`` stops listening to it."""
        if self._listening is not None:
            self._listening.cancel()
        async with self._lock:
            if self._session is None or self._broken:
                raise SessionLost(self._broken or "the session is being rebuilt")
            yield self._session

    # --- the session -----------------------------------------------------------------------------------------------

    def _break(self, error: OspBridgeError) -> None:
        """The session cannot be used any more."""
        if self._broken:
            return
        self._broken = error.message
        foreign = sorted(self._session.machine.foreign) if self._session is not None else []
        risk = {"leaving_may_step": foreign} if foreign and self._vote_outstanding else {}
        log.warning("the session is given up", reason=error.message, **risk)

    @property
    def _vote_outstanding(self) -> bool:
        return self._session is not None and self._session.machine.vote_outstanding

    def _changed(self) -> None:
        """Wake those whose turn may have come."""
        if self._waiters:
            self._waiters.unpark_all()
        if self._keeper and not self._running and (self._broken or not self.lockstep.playing):
            self._keeper.unpark_all()

    async def run(self) -> None:
        """Join, listen, and rebuild what is lost, until cancelled. Raises SessionLost when that happens too often."""
        budget = Budget(trio.current_time())
        first = True
        while True:
            session, interfaces = await join(
                self.settings, first=first, budget=budget, trace=self._trace, report=self._not_joined
            )
            try:
                first = False
                self._joined(session)
                bounded = session.profile.outputs_normalised
                tasks = [self.settings.make_task(interface, bounded=bounded) for interface in interfaces]
                await equip(session, tasks)
                self.lockstep.take_agents(tasks)
                self._changed()
                await self._keep(session)
            finally:
                self._session = None
                await session.aclose()
            self.connection = self._broken
            if not budget.spend(trio.current_time()):
                raise SessionLost(
                    f"the session with {self.settings.simulator} was lost too often "
                    f"({budget.capacity} times, one is forgiven a minute); the last time: {self._broken}",
                    hint="look at the simulator's own log; start the daemon again when it is mended",
                )
            self.rebuilds += 1

    def _not_joined(self, reason: str) -> None:
        self.connection = f"waiting for the simulator: {reason}"

    def _joined(self, session: TrioSession) -> None:
        self._session = session
        self._broken = ""
        self.connection = "joined"

    async def _keep(self, session: TrioSession) -> None:
        """Listen to the simulator while nobody plays; returns when the session is broken and nobody uses it."""
        while True:
            if self._running or (self.lockstep.playing and not self._broken):
                await self._keeper.park()
            elif self._broken:
                return
            else:
                async with self._lock:
                    if not self._running:
                        await self._listen(session)

    async def _listen(self, session: TrioSession) -> None:
        # Only the waiting may be cut short: an interrupted question leaves answers behind that nobody awaits.
        with trio.move_on_after(LOOK_EVERY) as self._listening:
            await session.wait_readable()
        silent = self._listening.cancelled_caught
        self._listening = None
        if silent and not self._running:
            try:
                await session.agents()
            except OspBridgeError as error:
                self._break(error)
        for notice in session.take_notices():
            log.debug("notice", text=notice.text)
        if session.machine.lost is not None:
            self._break(session.machine.lost)

    def _episode_over(self, attachment: Attachment, how: str, reason: str) -> None:
        self.observers.ended(attachment, how, reason)
        if self.recording is not None:
            self.recording.ended(attachment, how, reason)
        log_episode(attachment, how, reason, seed=self.lockstep.seed)
