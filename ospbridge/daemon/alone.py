"""Steps of those who drive all agents that there are: the actions and their step in one.

There is no barrier to shut then, and as long as no other task can have its turn between the actions and what they
brought, nobody can see a step under way, and nobody need be told that it is. What takes longer, or ends something, is
left to the barrier's ``run``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import OspBridgeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.barrier import StepBarrier
    from ospbridge.daemon.episodes import EpisodeTracker, Stats
    from ospbridge.daemon.holding import Holds
    from ospbridge.daemon.lockstep import LockStep
    from ospbridge.daemon.supervisor import Supervisor
    from ospbridge.osp.fast_path import StepRequest

__all__ = ["Alone"]


class Alone:
    """For the barrier of one simulator. ``channels``: of those who look on."""

    def __init__(
        self,
        barrier: StepBarrier,
        lockstep: LockStep,
        supervisor: Supervisor,
        *,
        holds: Holds,
        tracker: EpisodeTracker,
        channels: Mapping[str, object],
        stats: Stats,
    ) -> None:
        self.begun = False
        """A step was left to the barrier, whose ``run`` must come before any other task has its turn."""
        self._ended: bool | None = None
        self._barrier = barrier
        self._lockstep = lockstep
        self._supervisor = supervisor
        self._holds = holds
        self._tracker = tracker
        self._channels = channels
        self._stats = stats
        self._votes: tuple[StepRequest, ...] = ()
        self._movers: Sequence[Attachment] = ()
        """Whose those votes are, in their order."""

    def may(self, movers: list[Attachment]) -> bool:
        """Nobody else plays, rests, looks on or holds the world, and the session can take steps so.

        ``movers`` must be another list where they are others.
        """
        lockstep, supervisor = self._lockstep, self._supervisor
        session = supervisor.session
        return (
            lockstep.playing == movers
            and lockstep.action_repeat == 1
            and supervisor.busy_since is None
            and supervisor.ready
            and not self._channels
            and not self._holds.held
            and session is not None
            and self._vote(movers, session.requests)
        )

    def _vote(self, movers: list[Attachment], votes: tuple[StepRequest, ...]) -> bool:
        """Whether the votes are just theirs, in the same order."""
        if votes is not self._votes or movers is not self._movers:
            if [vote.name for vote in votes] != [mover.name for mover in movers]:
                return False
            self._votes, self._movers = votes, movers
        return bool(votes)

    def step(
        self,
        moves: Sequence[tuple[Attachment, bytes]],
        inputs: Sequence[NDArray[np.float32] | bytes] | None,
    ) -> bool:
        """One step of those who ``may``; what it brought is in each one's ``feedback``. Raises as ``StepBarrier.act``.

        ``inputs`` may be missing where it is one only. False where the step takes longer, or ends something: they have
        acted, and where it has ``begun`` ``run`` must follow.
        """
        supervisor, lockstep = self._supervisor, self._lockstep
        session = supervisor.session
        assert session is not None
        for attachment, data in moves:
            attachment.action = data
        if inputs is None:
            ((attachment, data),) = moves
            inputs = [self._barrier.read_inputs(attachment, data)]
        clock = session.clock
        began = clock()
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
            self._barrier.steps += 1
            self._stats.stepped(clock() - began)
            ended = lockstep.stepped(outcomes)
            playing = lockstep.playing
            if not ended and not session.machine.notices:
                for attachment in playing:
                    attachment.steps += 1
                if self._tracker.listeners:
                    self._tracker.stepped(playing)
                return True
            for attachment in playing:
                attachment.acted = True
            lockstep.missing = 0
            self._ended = ended
        self.begun = True
        supervisor.busy_since = began
        return False

    def hand_over(self) -> tuple[bool, bool | None]:
        """Whether a step was begun, and whether it ended an episode; None: it is under way, or not begun."""
        begun, self.begun = self.begun, False
        return begun, self._ended if begun else None
