"""The episodes of every attachment, on disk as they end: what its environment was given, and what it did.

A step is recorded once its environment is told of it. An episode that the bridge cuts while its environment is silent
stays open until that one learns of it with its next step, resets, or leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.writing_thread import WritingThread
from ospbridge.hub.messages import RecordingStatus
from ospbridge.interface import DiscreteSpace
from ospbridge.record.collecting import EpisodeCollector, Recorded

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from ospbridge.daemon.attachment import Attachment

__all__ = ["Recording"]

_WHY: Final = {"detached": "closed before its end", "abandoned": "reset before its end"}


class Recording:
    """Records into ``directory`` while its context is open. Raises ConfigurationError where that cannot work.

    ``simulator``: the address that the recording names.
    """

    def __init__(self, directory: str | os.PathLike[str], *, simulator: str) -> None:
        self._thread = WritingThread(directory)
        self._simulator = simulator
        self._collectors: dict[Attachment, EpisodeCollector] = {}
        self._actions: dict[Attachment, bytes] = {}
        """What those who play gave for the step to come."""
        self._untold: dict[Attachment, str] = {}
        """Whose episode was cut, and why, without its environment knowing yet."""

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.turned_away(self._collectors)
        for collector in self._collectors.values():
            collector.end("abandoned", STOPPED)
        self._thread.close()

    @property
    def status(self) -> RecordingStatus:
        """Where to, and how many episodes so far."""
        thread = self._thread
        directory = str(thread.directory).encode("utf-8", "replace").decode()
        return RecordingStatus(directory, thread.recorded, thread.dropped)

    # --- what happens ----------------------------------------------------------------------------------------------

    def began(self, playing: Iterable[Attachment]) -> None:
        """A reset ran for these."""
        for attachment in playing:
            assert attachment.feedback is not None
            collector = self._collectors.get(attachment) or self._collector(attachment)
            collector.begin(attachment.feedback, weights_seq_no=attachment.weights_seq_no)

    def _collector(self, attachment: Attachment) -> EpisodeCollector:
        task = attachment.held.task
        whose = Recorded(
            self._simulator,
            attachment.name,
            task.observation_space,
            task.action_space,
            tuple(task.info_names),
        )
        collector = self._collectors[attachment] = EpisodeCollector(whose, self._thread.put)
        return collector

    def given(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        """Actions as float32 bytes, for the step to come, or answered by the news that the episode had been cut."""
        self._actions.update(moves)
        if self._untold:
            for attachment, action in moves:
                if attachment in self._untold:
                    self._tell(attachment, action)

    def _tell(self, attachment: Attachment, action: bytes) -> None:
        reason = self._untold.pop(attachment)
        if _possible(attachment, action):
            self._step(attachment)
        else:
            self._collectors[attachment].end("truncated", reason)

    def stepped(self, playing: Iterable[Attachment]) -> None:
        """A step ran for these, and their episodes go on."""
        for attachment in playing:
            self._step(attachment)

    def ended(self, attachment: Attachment, how: str, reason: str) -> None:
        """An episode is over, by its last step or by something else."""
        collector = self._collectors[attachment]
        if attachment.cut:
            self._untold[attachment] = reason
        elif how in {"terminated", "truncated"}:
            self._step(attachment)
        elif how == "failed":
            collector.end("lost", reason)
        else:
            collector.end("abandoned", reason or _WHY[how])

    def turned_away(self, attachments: Iterable[Attachment]) -> None:
        """These reset or leave: of an episode that was cut they will not be told any more."""
        for attachment in attachments:
            reason = self._untold.pop(attachment, None)
            if reason is not None:
                self._collectors[attachment].end("truncated", reason)

    def left(self, attachments: Iterable[Attachment]) -> None:
        """These will not play again."""
        self.turned_away(attachments)
        for attachment in attachments:
            self._collectors.pop(attachment, None)
            self._actions.pop(attachment, None)

    def _step(self, attachment: Attachment) -> None:
        feedback = attachment.feedback
        assert feedback is not None
        numbers = np.frombuffer(self._actions[attachment], "<f4")
        discrete = isinstance(attachment.held.task.action_space, DiscreteSpace)
        action: Any = int(numbers[0]) if discrete else numbers
        self._collectors[attachment].step(action, feedback)


def _possible(attachment: Attachment, data: bytes) -> bool:
    """Whether what no step was given is an action at all."""
    space = attachment.held.task.action_space
    if isinstance(space, DiscreteSpace):
        return len(data) == 4 and 0 <= np.frombuffer(data, "<f4")[0] < space.n
    return len(data) == 4 * len(space.low) and bool(np.isfinite(np.frombuffer(data, "<f4")).all())
