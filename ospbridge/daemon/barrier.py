"""The steps of one simulator's agents: actions are taken, and whoever brings the last one runs the step.

There are two ways to wait for the others. A task waits in ``step``. A ``Waiter`` gives its actions with ``act``, leaves
the rest to others with ``leave``, and is told when the step is over by whoever ran it: that costs no switch of tasks,
and one task may act for many. Only what lasts calls its own task, which then waits with a deadline.

Who drives all agents that there are waits for nobody, and has a way of its own: ``alone``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from ospbridge.daemon.alone import Alone
from ospbridge.daemon.attachment import State
from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.supervisor import foreign_reset
from ospbridge.errors import BarrierStuck, LocalProtocolError, OspBridgeError, TaskError
from ospbridge.observe import logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never

    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.episodes import EpisodeTracker, Stats
    from ospbridge.daemon.holding import Holds
    from ospbridge.daemon.lockstep import LockStep
    from ospbridge.daemon.observers import Observers
    from ospbridge.daemon.supervisor import Supervisor
    from ospbridge.errors import SessionLost
    from ospbridge.session.trio_session import TrioSession

__all__ = ["StepBarrier", "Waiter"]

log = logs.get(__name__)
LASTS: Final = 0.05
"""Seconds that a barrier may stay shut before those who left it to others wait themselves."""
REST_AFTER: Final = 20
"""Looks in a row at which nobody waited, before they end."""


class Waiter(Protocol):
    """Who has acted, and has no task that waits for the step."""

    acting: Sequence[Attachment]
    """For whom it has acted."""
    asked: float
    """When, if others are waited for."""
    spent: float
    """Seconds that the world had been held until then."""

    def stepped(self) -> None:
        """The step is over, whatever came of it. Must not raise."""
        ...

    def call(self) -> None:
        """Its task must wait itself, with ``StepBarrier.wait``."""
        ...


class StepBarrier:
    """One simulator's. ``limit``: seconds for which those who have acted wait for the others."""

    def __init__(
        self,
        lockstep: LockStep,
        supervisor: Supervisor,
        *,
        holds: Holds,
        tracker: EpisodeTracker,
        observers: Observers,
        stats: Stats,
        limit: float,
    ) -> None:
        self.steps = 0
        """Of the simulator."""
        self.waiters = trio.lowlevel.ParkingLot()
        """Tasks whose turn may come when something changes."""
        self._lockstep = lockstep
        self._supervisor = supervisor
        self._holds = holds
        self._tracker = tracker
        self._observers = observers
        self._channels = observers.channels
        self._stats = stats
        self._limit = limit
        self._left: list[Waiter] = []
        """Who left the waiting to others, in the order in which they acted."""
        self._minding = trio.lowlevel.ParkingLot()
        self.alone = Alone(
            self,
            lockstep,
            supervisor,
            holds=holds,
            tracker=tracker,
            channels=observers.channels,
            stats=stats,
        )

    @property
    def due(self) -> bool:
        """All who play have acted, and nobody runs the step yet."""
        lockstep = self._lockstep
        return not lockstep.missing and bool(lockstep.playing) and self._supervisor.busy_since is None

    @property
    def awaits_watched_only(self) -> bool:
        """Somebody plays, and what is missing for the next step comes from connections that a ``HubWatch`` reads."""
        playing = self._lockstep.playing
        return (
            bool(playing) and self._supervisor.busy_since is None and all(a.driver.watched for a in playing)
        )

    @property
    def gave_way_at(self) -> float:
        """When other tasks had their turn in a step, by trio's clock."""
        session = self._supervisor.session
        return session.yielded_at if session is not None else 0.0

    # --- acting ----------------------------------------------------------------------------------------------------

    def act(
        self,
        moves: Sequence[tuple[Attachment, bytes]],
        inputs: Sequence[NDArray[np.float32] | bytes] | None = None,
    ) -> list[Attachment]:
        """Take the actions of one message. Returns for whom a step is to come; the others have their feedback.

        ``inputs``: those of the actions, where they were read, and all are for different agents that play. Raises what
        keeps it from that; nobody's action was taken then.
        """
        lockstep = self._lockstep
        if len(moves) == 1:
            ((attachment, data),) = moves
            if attachment.state is State.PLAYING:
                attachment.action = data
                if inputs is not None:
                    mine = inputs[0]
                else:
                    try:
                        mine = attachment.read_inputs(data)
                    except TaskError as error:
                        self._failed(attachment, error)
                        raise
                lockstep.act_one(attachment, mine)
                return [attachment]
        if inputs is not None:
            acting = []
            for attachment, data in moves:
                attachment.action = data
                acting.append(attachment)
            lockstep.act(acting, inputs)
            return acting
        if len(moves) > 1 and len({attachment.name for attachment, _ in moves}) < len(moves):
            raise LocalProtocolError("an agent is named twice in one step")
        acting = []
        given = []
        cut = False
        for attachment, data in moves:
            attachment.action = data
            if attachment.state is State.PLAYING:
                given.append(self.read_inputs(attachment, data))
                acting.append(attachment)
            elif not attachment.cut:
                raise attachment.not_playing()
            else:
                cut = True
        if cut:
            for attachment, _ in moves:
                if attachment.cut:
                    attachment.cut_short(attachment.cut)
                    attachment.cut = ""
                    self._tracker.told(attachment)
        lockstep.act(acting, given)
        return acting

    def read_inputs(self, attachment: Attachment, data: bytes) -> NDArray[np.float32] | bytes:
        """Of its action. Raises TaskError, behind which its episode is over, and LocalProtocolError."""
        try:
            return attachment.read_inputs(data)
        except TaskError as error:
            self._failed(attachment, error)
            raise

    def _failed(self, attachment: Attachment, error: TaskError) -> None:
        """Its own task fails: its episode is over, and the others wait for it no longer."""
        self._lockstep.fail(attachment, error, trio.current_time())
        self.changed()

    async def step(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        """One step; what it brought is in each attachment's ``feedback``. Raises what kept it from happening."""
        acting = self.act(moves)
        if acting:
            if self.due:
                await self.run()
            else:
                asked = trio.current_time()
                await self.wait(acting, asked, self._holds.spent(asked))
        for attachment, _ in moves:
            if attachment.feedback is None:
                raise attachment.not_playing()

    def leave(self, waiter: Waiter, now: float) -> bool:
        """See to it that it is told once the step is over. False where its own task must wait."""
        waiter.asked = now
        waiter.spent = self._holds.spent(now)
        if not (self.alone.begun or self.due):
            if self._holds.held:
                return False
            if self._minding:
                self._minding.unpark_all()
        self._left.append(waiter)
        return True

    def summon(self) -> None:
        """Where the step is due have it run by one of those who left it to others."""
        if self._left and self.due:
            # It stays among them, to be told with the others.
            self._left[-1].call()

    async def wait(self, acting: Sequence[Attachment], asked: float, spent: float) -> None:
        """Until the step is over for which these acted at that time; run it if nobody else does.

        ``spent``: seconds that the world had been held until then.
        """
        self.tell_held(acting, trio.current_time())
        while any(a.acted for a in acting):
            now = trio.current_time()
            until = asked + self._limit + self._holds.spent(now) - spent + self._holds.left(now)
            if self._supervisor.busy_since is not None:
                await self.waiters.park()
            elif self._lockstep.step_due:
                await self.run()
            elif now >= until:
                self._lockstep.drop_laggards(self._limit, now)
            else:
                with trio.move_on_at(until):
                    await self.waiters.park()

    def tell_held(self, attachments: Sequence[Attachment], now: float) -> None:
        """Tell those who begin to wait while the world is held."""
        seconds = self._holds.left(now)
        if seconds:
            attachments[0].driver.on_held(seconds, self._holds.reason)

    async def mind(self) -> Never:
        """Have those wait themselves whose barrier stays shut, so that each has its deadline."""
        idle = 0
        while True:
            if idle >= REST_AFTER:
                await self._minding.park()
            await trio.sleep(min(LASTS, self._limit / 4))
            idle = 0 if self._left else idle + 1
            self.call_all(before=trio.current_time() - LASTS)

    def call_all(self, *, before: float = float("inf")) -> None:
        """Those who asked before that time wait themselves from now on."""
        for waiter in tuple(self._left):
            if waiter.asked <= before:
                self._left.remove(waiter)
                waiter.call()

    # --- running ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The step that is due. Never raises what goes wrong with it: that is told to those who wait."""
        supervisor, lockstep = self._supervisor, self._lockstep
        session = supervisor.session
        begun, ended = self.alone.hand_over()
        if session is None:
            # It was left in the midst of their episodes, as where the daemon stops.
            lockstep.cut_all(STOPPED, trio.current_time())
            self.changed()
            return
        clock = session.clock
        if not begun:
            supervisor.busy_since = clock()
        began = supervisor.busy_since
        assert began is not None
        try:
            # Who leaves meanwhile takes its inputs out of the lock-step, but not out of the step.
            inputs = dict(lockstep.actions) if self._channels else None
            most = lockstep.action_repeat if ended is None else 0
            reason = ""
            if most > 1:
                lockstep.repeating()
            for repeats in range(most):
                outcomes = await (session.finish_step() if begun else session.step(lockstep.actions))
                self.steps += 1
                self._stats.stepped(-began + (began := clock()))
                ended = lockstep.stepped(outcomes, repeats=repeats)
                if repeats + 1 < most and session.machine.notices:
                    reason = foreign_reset(session)
                if ended or reason:
                    lockstep.cut_actions(most - repeats - 1)
                    break
            if inputs is not None:
                self._observers.stepped(lockstep.playing, inputs)
            if session.machine.notices:
                reason = foreign_reset(session) or reason
            if ended and not reason:
                # Others have their turn meanwhile, but nobody is told of the step before it is known what it is worth.
                reason = await self._audit(session)
            lockstep.acted()
            if ended or reason:
                lockstep.end_episodes(clock(), reason=reason)
            if inputs is not None:
                self._observers.settled()
            if self._tracker.listeners:
                self._tracker.stepped(lockstep.playing)
        except BarrierStuck as error:
            lockstep.fail_all(error, clock())
            supervisor.give_up(error)
        except OspBridgeError as error:
            await supervisor.explain(error)
            lockstep.cut_all(error.message, clock())
            supervisor.give_up(error)
        finally:
            supervisor.busy_since = None
            self.changed()

    async def _audit(self, session: TrioSession) -> str:
        """Whether the clock agrees with the steps of the episode that ends."""
        try:
            reason = await session.audit()
        except OspBridgeError as error:
            await self._supervisor.explain(error)
            self._supervisor.give_up(error)
            return error.message
        if reason:
            log.warning("steps and clock disagree", reason=reason)
        return reason

    def lose(self, error: SessionLost) -> None:
        """The simulator is gone. A step or reset that is under way notices that itself."""
        supervisor = self._supervisor
        if supervisor.ready and supervisor.busy_since is None:
            self._lockstep.cut_all(error.message, trio.current_time())
            supervisor.give_up(error)
            self.changed()

    def changed(self) -> None:
        """Tell those whose step is over, and wake those whose turn may have come."""
        if self._left:
            self._tell()
        if self.waiters:
            self.waiters.unpark_all()
        self._supervisor.changed()

    def _tell(self) -> None:
        waiting, self._left = self._left, []
        for waiter in waiting:
            for attachment in waiter.acting:
                if attachment.acted:
                    self._left.append(waiter)
                    break
            else:
                waiter.stepped()
        self.summon()
