"""The steps of one simulator's agents: actions are taken, and whoever brings the last one runs the step.

There are two ways to wait for the others. A task waits in ``step``. A ``Waiter`` gives its actions with ``act``, leaves
the rest to others with ``leave``, and is told when the step is over by whoever ran it: that costs no switch of tasks,
and one task may act for many. Only what lasts calls its own task, which then waits with a deadline.

Who drives all agents that there are waits for nobody: ``step_at_once`` takes the actions and their step in one. As long
as no other task can have its turn between the actions and what they brought, nobody can see a step under way, and
nobody need be told that it is. What takes longer, or ends something, is left to ``run``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

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
    from ospbridge.daemon.lockstep import LockStep
    from ospbridge.daemon.observers import Observers
    from ospbridge.daemon.supervisor import Supervisor
    from ospbridge.errors import SessionLost
    from ospbridge.osp.fast_path import StepRequest
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

    def stepped(self) -> None:
        """The step is over, whatever came of it. Must not raise."""
        ...

    def call(self) -> None:
        """Its task must wait itself, with ``StepBarrier.wait``."""
        ...


class StepBarrier:
    """One simulator's."""

    def __init__(
        self,
        lockstep: LockStep,
        supervisor: Supervisor,
        *,
        tracker: EpisodeTracker,
        observers: Observers,
        stats: Stats,
    ) -> None:
        self.waiters = trio.lowlevel.ParkingLot()
        """Tasks whose turn may come when something changes."""
        self.begun = False
        """``step_at_once`` has left its step to ``run``, which must come before any other task has its turn."""
        self._ended: bool | None = None
        """Whether that step ended an episode; None: it is under way."""
        self._lockstep = lockstep
        self._supervisor = supervisor
        self._tracker = tracker
        self._observers = observers
        self._stats = stats
        self._left: list[Waiter] = []
        """Who left the waiting to others, in the order in which they acted."""
        self._minding = trio.lowlevel.ParkingLot()
        self._requests: tuple[StepRequest, ...] = ()
        """The session's, in whose order the ``_movers`` are: they drive all of its agents."""
        self._movers: Sequence[Attachment] = ()

    @property
    def due(self) -> bool:
        """All who play have acted, and nobody runs the step yet."""
        lockstep = self._lockstep
        return not lockstep.missing and bool(lockstep.playing) and self._supervisor.busy_since is None

    @property
    def awaits_watched_only(self) -> bool:
        """Somebody plays, and what is missing for the next step comes from connections that one look reads."""
        playing = self._lockstep.playing
        return (
            bool(playing) and self._supervisor.busy_since is None and all(a.driver.watched for a in playing)
        )

    @property
    def yielded_at(self) -> float:
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
                acting = [attachment]
                lockstep.act(acting, inputs or [self._read(attachment, data)])
                return acting
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
                given.append(self._read(attachment, data))
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

    def _read(self, attachment: Attachment, data: bytes) -> NDArray[np.float32] | bytes:
        """Inputs of its action. Raises TaskError, behind which its episode is over, and LocalProtocolError."""
        try:
            return attachment.held.read_inputs(data)
        except TaskError as error:
            # Its own task fails: the others wait for it no longer.
            self._lockstep.fail(attachment, error, trio.current_time())
            self.changed()
            raise

    async def step(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        """One step; what it brought is in each attachment's ``feedback``. Raises what kept it from happening."""
        acting = self.act(moves)
        if acting:
            if self.due:
                await self.run()
            else:
                await self.wait(acting)
        for attachment, _ in moves:
            if attachment.feedback is None:
                raise attachment.not_playing()

    def leave(self, waiter: Waiter, now: float) -> bool:
        """See to it that it is told once the step is over. False where its own task must wait."""
        if not (self.begun or self.due):
            self._lockstep.await_step(now)
            if self._lockstep.deadlines.suspensions:
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

    async def wait(self, acting: Sequence[Attachment]) -> None:
        """Until the step is over for which these acted; run it if nobody else does."""
        lockstep, now = self._lockstep, trio.current_time()
        self.tell_suspended(acting, now)
        while any(a.acted for a in acting):
            if self._supervisor.busy_since is not None:
                await self.waiters.park()
            elif lockstep.step_due:
                await self.run()
            else:
                lockstep.await_step(now)
                if not lockstep.take_late_steps(now):
                    with trio.move_on_at(lockstep.step_ends(now)):
                        await self.waiters.park()
            now = trio.current_time()

    def tell_suspended(self, attachments: Sequence[Attachment], now: float) -> None:
        """Tell those who begin to wait while deadlines are suspended."""
        deadlines = self._lockstep.deadlines
        seconds = deadlines.left(now)
        if seconds:
            attachments[0].driver.on_held(seconds, deadlines.reason)

    async def mind(self) -> Never:
        """Have those wait themselves whose barrier stays shut, so that each has its deadline."""
        idle = 0
        while True:
            if idle >= REST_AFTER:
                await self._minding.park()
            await trio.sleep(LASTS)
            idle = 0 if self._left else idle + 1
            if self._lockstep.waited(trio.current_time()) >= LASTS:
                self.call_all()

    def call_all(self) -> None:
        """Those who left the waiting to others wait themselves from now on."""
        called, self._left = self._left, []
        for waiter in called:
            waiter.call()

    # --- at once ---------------------------------------------------------------------------------------------------

    def may_step_at_once(self, movers: list[Attachment]) -> bool:
        """Nobody else plays, rests, looks on or suspends deadlines, and the session can take steps so.

        ``movers`` must be another list where they are others.
        """
        lockstep, supervisor = self._lockstep, self._supervisor
        if (
            lockstep.playing != movers
            or lockstep.action_repeat != 1
            or supervisor.busy_since is not None
            or supervisor.loss is not None
            or supervisor.session is None
            or self._observers.channels
            or lockstep.deadlines.suspensions
        ):
            return False
        requests = supervisor.session.requests
        if requests is not self._requests or movers is not self._movers:
            if [request.name for request in requests] != [mover.name for mover in movers]:
                return False
            self._requests, self._movers = requests, movers
        return bool(requests)

    def step_at_once(
        self,
        moves: Sequence[tuple[Attachment, bytes]],
        inputs: Sequence[NDArray[np.float32] | bytes] | None,
        began: float,
    ) -> bool:
        """One step of those who may; what it brought is in each one's ``feedback``. Raises as ``act``.

        ``inputs`` may be missing where it is one only; ``began`` is now. False where the step takes longer, or ends
        something: they have acted, and where it has ``begun`` ``run`` must follow.
        """
        lockstep, session = self._lockstep, self._supervisor.session
        assert session is not None
        for attachment, data in moves:
            attachment.action = data
        if inputs is None:
            ((attachment, data),) = moves
            inputs = [self._read(attachment, data)]
        try:
            outcomes = session.try_step(inputs)
        except OspBridgeError:
            # What is wrong with them is told by the step that is run with them.
            lockstep.act(self._movers, inputs)
            return False
        if outcomes is None:
            lockstep.act(self._movers, inputs)
            self._ended = None
        else:
            self._stats.stepped(session.clock() - began)
            ended = lockstep.stepped(outcomes)
            playing = lockstep.playing
            if not ended and not session.machine.notices:
                for attachment in playing:
                    attachment.episode.steps += 1
                if self._tracker.listeners:
                    self._tracker.stepped(playing)
                return True
            for attachment in playing:
                attachment.acted = True
            lockstep.missing = 0
            self._ended = ended
        self.begun = True
        self._supervisor.busy_since = began
        return False

    # --- running ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The step that is due. Never raises what goes wrong with it: that is told to those who wait."""
        supervisor, lockstep = self._supervisor, self._lockstep
        session = supervisor.session
        begun, self.begun = self.begun, False
        if session is None:
            # It was left in the midst of their episodes, as where the daemon stops.
            lockstep.cut_all(STOPPED, trio.current_time())
            self.changed()
            return
        if not begun:
            supervisor.busy_since = session.clock()
        # Who leaves meanwhile takes its inputs out of the lock-step, but not out of the step.
        inputs = dict(lockstep.actions) if self._observers.channels else None
        try:
            ended, reason = await self._run_steps(session, begun=begun)
            if inputs is not None:
                self._observers.stepped(lockstep.playing, inputs)
            if session.machine.notices:
                reason = foreign_reset(session) or reason
            if ended and not reason:
                # Others have their turn meanwhile, but nobody is told of the step before it is known what it is worth.
                reason = await self._audit(session)
            lockstep.finish_action()
            if ended or reason:
                lockstep.end_episodes(session.clock(), reason=reason)
            if inputs is not None:
                self._observers.settled()
            if self._tracker.listeners:
                self._tracker.stepped(lockstep.playing)
        except BarrierStuck as error:
            lockstep.fail_all(error, session.clock())
            supervisor.give_up(error)
        except OspBridgeError as error:
            await supervisor.explain(error)
            lockstep.cut_all(error.message, session.clock())
            supervisor.give_up(error)
        finally:
            supervisor.busy_since = None
            self.changed()

    async def _run_steps(self, session: TrioSession, *, begun: bool) -> tuple[bool, str]:
        """Those of one action: whether they ended an episode, and why all end, where they do."""
        if begun and self._ended is not None:
            return self._ended, ""
        lockstep, clock = self._lockstep, session.clock
        began = self._supervisor.busy_since
        assert began is not None
        count = lockstep.action_repeat
        if count > 1:
            lockstep.repeating()
        ended, reason = False, ""
        for repeats in range(count):
            outcomes = await (session.finish_step() if begun else session.step(lockstep.actions))
            self._stats.stepped(-began + (began := clock()))
            ended = lockstep.stepped(outcomes, repeats=repeats)
            if repeats + 1 < count and session.machine.notices:
                reason = foreign_reset(session)
            if ended or reason:
                lockstep.cut_actions(count - repeats - 1)
                break
        return ended, reason

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
