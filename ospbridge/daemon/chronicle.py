"""The episodes of attachments, step by step: what each environment was given, and what it did.

A step counts once its environment is told of it, and is written down behind that with others, while the environment
thinks. An episode that the bridge cuts while its environment is silent stays open until that one learns of it with its
next step, resets, or leaves. Who listens is handed each episode as it ends; all of them the same arrays, which do not
change any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ospbridge.daemon.episodes import STOPPED
from ospbridge.interface import DiscreteSpace
from ospbridge.record.collecting import EpisodeCollector, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.record.episode import RecordedEpisode

__all__ = ["Chronicle", "Listener"]

FLOAT: Final = np.dtype("<f4")
TOGETHER: Final = 128
"""So many steps are left for later, of all attachments: many at once cost less each."""
_WHY: Final = {"detached": "closed before its end", "abandoned": "reset before its end"}


class Listener(Protocol):
    """Who wants episodes."""

    def admit(self, attachment: Attachment) -> None:
        """An environment takes an agent. Raises UsageError where its episodes would be of no use."""
        ...

    def wants(self, attachment: Attachment) -> bool:
        """Whether its episodes are wanted; the same for as long as it is attached."""
        ...

    def finished(self, attachment: Attachment, episode: RecordedEpisode) -> None:
        """An episode has ended. Must not wait."""
        ...


class _Writer:
    """One attachment's episodes, and those of its steps that are still to be written down.

    Of each step its numbers are kept, not the objects that they came in: the next step takes their memory again, which
    is still in the processor's cache.
    """

    __slots__ = (
        "_actions",
        "_attachment",
        "_dist_inputs",
        "_has_infos",
        "_infos",
        "_logps",
        "_observations",
        "_rewards",
        "collector",
    )

    def __init__(self, attachment: Attachment, collector: EpisodeCollector) -> None:
        self.collector = collector
        self._attachment = attachment
        self._has_infos = len(attachment.infos) > 0
        self._clear()

    def _clear(self) -> None:
        self._actions, self._observations, self._infos = bytearray(), bytearray(), bytearray()
        self._rewards: list[float] = []
        self._logps: list[float] = []
        self._dist_inputs: list[NDArray[np.float32]] = []

    def keep(self) -> None:
        """What the next request may replace, of a step that ends nothing."""
        attachment = self._attachment
        feedback = attachment.feedback
        assert feedback is not None
        if attachment.weights_seq_no != self.collector.weights_seq_no:
            self.write()
            self.collector.weights_seq_no = attachment.weights_seq_no
        self._actions += attachment.action
        self._observations += feedback.observation.tobytes()
        self._rewards.append(feedback.reward)
        if self._has_infos:
            self._infos += attachment.infos.tobytes()
        if attachment.dist_inputs is not None:
            self._logps.append(attachment.logp)
            self._dist_inputs.append(attachment.dist_inputs)

    def write(self) -> None:
        """Write down what was kept."""
        count = len(self._rewards)
        if count:
            self.collector.extend(
                self._read(self._actions, count),
                np.frombuffer(self._observations, FLOAT).reshape(count, -1),
                rewards=self._rewards,
                infos=np.frombuffer(self._infos, FLOAT).reshape(count, -1),
                logps=self._logps,
                dist_inputs=self._dist_inputs,
            )
            self._clear()

    def finish(self) -> None:
        """Write down what was kept, and the step that ended the episode."""
        self.keep()
        self.write()
        assert self._attachment.feedback is not None
        self.collector.finish(self._attachment.feedback)

    def _read(self, actions: bytes | bytearray, count: int) -> NDArray[np.float32]:
        """A row for each, or a number where actions are discrete."""
        numbers = np.frombuffer(actions, FLOAT)
        return numbers if self.collector.discrete else numbers.reshape(count, -1)


class Chronicle:
    """``simulator``: the address that episodes name. Does nothing while nobody listens."""

    def __init__(self, *, simulator: str) -> None:
        self.listeners: list[Listener] = []
        self._simulator = simulator
        self._writers: dict[Attachment, _Writer] = {}
        self._untold: dict[Attachment, str] = {}
        """Whose episode was cut, and why, without its environment knowing yet."""
        self._unwritten = 0
        """Steps of episodes that go on."""

    def admit(self, attachments: Iterable[Attachment]) -> None:
        """Environments take agents. Raises UsageError where somebody who listens cannot use what they will play."""
        for listener in self.listeners:
            for attachment in attachments:
                listener.admit(attachment)

    # --- what happens ----------------------------------------------------------------------------------------------

    def began(self, playing: Iterable[Attachment]) -> None:
        """A reset ran for these."""
        self._write()
        for attachment in playing:
            writer = self._writers.get(attachment) or self._writer(attachment)
            if writer is not None:
                assert attachment.feedback is not None
                writer.collector.begin(attachment.feedback, weights_seq_no=attachment.weights_seq_no)

    def _writer(self, attachment: Attachment) -> _Writer | None:
        """None where nobody wants its episodes."""
        listeners = [listener for listener in self.listeners if listener.wants(attachment)]
        if not listeners:
            return None
        task = attachment.held.task
        whose = Recorded(
            self._simulator,
            attachment.name,
            task.observation_space,
            task.action_space,
            tuple(task.info_names),
        )

        def finished(episode: RecordedEpisode) -> None:
            for listener in listeners:
                listener.finished(attachment, episode)

        writer = self._writers[attachment] = _Writer(attachment, EpisodeCollector(whose, finished))
        return writer

    def given(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        """Actions as float32 bytes, for the step to come, or answered by the news that the episode had been cut."""
        for attachment, action in moves:
            attachment.action = action
            if self._untold and attachment in self._untold:
                self._tell(attachment)

    def _tell(self, attachment: Attachment) -> None:
        reason = self._untold.pop(attachment)
        if _possible(attachment):
            self._step(attachment)
        else:
            self._writers[attachment].collector.end("truncated", reason)

    def stepped(self, playing: Iterable[Attachment]) -> None:
        """A step ran for these, and their episodes go on. It is written down by ``settle``, or by what comes next."""
        for attachment in playing:
            writer = self._writers.get(attachment)
            if writer is not None:
                writer.keep()
                self._unwritten += 1

    def settle(self) -> None:
        """Write down what was left for later, once that is much. To be called when somebody was answered."""
        if self._unwritten >= TOGETHER:
            self._write()

    def _write(self) -> None:
        if self._unwritten:
            self._unwritten = 0
            for writer in self._writers.values():
                writer.write()

    def ended(self, attachment: Attachment, how: str, reason: str) -> None:
        """An episode is over, by its last step or by something else."""
        self._write()
        writer = self._writers.get(attachment)
        if writer is None:
            return
        if attachment.cut:
            self._untold[attachment] = reason
        elif how in {"terminated", "truncated"}:
            self._step(attachment)
        elif how == "failed":
            writer.collector.end("lost", reason)
        else:
            writer.collector.end("abandoned", reason or _WHY[how])

    def turned_away(self, attachments: Iterable[Attachment]) -> None:
        """These reset or leave: of an episode that was cut they will not be told any more."""
        self._write()
        for attachment in attachments:
            reason = self._untold.pop(attachment, None)
            if reason is not None:
                self._writers[attachment].collector.end("truncated", reason)

    def left(self, attachments: Iterable[Attachment]) -> None:
        """These will not play again."""
        self.turned_away(attachments)
        for attachment in attachments:
            self._writers.pop(attachment, None)

    def close(self) -> None:
        """The daemon is stopped: what is under way ends here."""
        self.turned_away(self._writers)
        for writer in self._writers.values():
            writer.collector.end("abandoned", STOPPED)

    def _step(self, attachment: Attachment) -> None:
        writer = self._writers.get(attachment)
        if writer is not None:
            writer.finish()


def _possible(attachment: Attachment) -> bool:
    """Whether what no step was given is an action at all."""
    data = attachment.action
    space = attachment.held.task.action_space
    if isinstance(space, DiscreteSpace):
        return len(data) == 4 and 0 <= np.frombuffer(data, "<f4")[0] < space.n
    return len(data) == 4 * len(space.low) and bool(np.isfinite(np.frombuffer(data, "<f4")).all())
