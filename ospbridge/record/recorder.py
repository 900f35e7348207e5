"""Writing episodes as they end, each into a file of its own, so that a crash costs at most the one under way.

A file is written under a temporary name, brought to disk, and only then given its own name.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, Space
from ospbridge.record.episode import RecordedEpisode, write_episode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["SUFFIX", "EpisodeRecorder", "Recorded"]

SUFFIX: Final = ".npz"
MEMORY: Final = 64 * 2**20
"""Bytes that the episode under way may take, about; a longer one is written in several files."""
FIRST_ROWS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Whose episodes are recorded."""

    simulator: str
    """Its address, or that of the daemon's hub."""
    agent: str
    observation_space: BoxSpace
    action_space: Space
    info_names: tuple[str, ...] = ()


class EpisodeRecorder:
    """Writes the episodes of one agent into ``directory``, which is made where it does not exist.

    Raises ConfigurationError where the directory cannot be written to, also later, when an episode ends.
    """

    def __init__(self, directory: str | os.PathLike[str], whose: Recorded, *, memory: int = MEMORY) -> None:
        self.directory = Path(directory)
        self.written = 0
        """Files so far."""
        self._whose = whose
        self._pid = os.getpid()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._cannot_write(error) from None
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise self._cannot_write(PermissionError(0, "permission denied"))
        space = whose.action_space
        box = isinstance(space, BoxSpace)
        self._action_shape: tuple[int, ...] = space.low.shape if isinstance(space, BoxSpace) else ()
        self._action_type: type[Any] = np.float32 if box else np.int64
        row = 4 * len(whose.observation_space.low) + 8 * len(whose.info_names) + 32
        row += 4 * self._action_shape[0] if box else 8
        self._longest = max(1, memory // row)
        self._steps = -1
        """Of the episode under way; -1: there is none."""
        self._seed = 0
        self._weights: int | None = None
        self._started = datetime.now(UTC)
        self._allot(min(FIRST_ROWS, self._longest))

    def _allot(self, rows: int) -> None:
        """Room for so many steps."""
        whose = self._whose
        self._rows = rows
        self._observations = np.zeros((rows + 1, len(whose.observation_space.low)), np.float32)
        self._infos = np.zeros((rows + 1, len(whose.info_names)), np.float64)
        self._actions: NDArray[Any] = np.zeros((rows, *self._action_shape), self._action_type)
        self._rewards = np.zeros(rows, np.float64)
        self._flags = np.zeros((rows, 2), np.bool_)

    def _grow(self) -> None:
        before = (self._observations, self._infos, self._actions, self._rewards, self._flags)
        self._allot(min(2 * self._rows, self._longest))
        after = (self._observations, self._infos, self._actions, self._rewards, self._flags)
        for old, new in zip(before, after, strict=True):
            new[: len(old)] = old

    # --- an episode --------------------------------------------------------------------------------------------------

    def begin(self, feedback: Feedback, *, weights_seq_no: int | None = None) -> None:
        """A reset brought ``feedback``. The episode before, if it has not ended, is written as abandoned."""
        self.end("abandoned", "reset before its end")
        self._started = datetime.now(UTC)
        self._seed = feedback.info["osp_seed"]
        self._weights = weights_seq_no
        self._observe(0, feedback)
        self._steps = 0

    def step(self, action: Any, feedback: Feedback) -> None:
        """``action`` brought ``feedback``. Writes the file where it ends the episode."""
        at = self._steps
        if at < 0:
            return
        if at == self._rows:
            if self._rows < self._longest:
                self._grow()
            else:
                at = self._continue()
        self._actions[at] = action
        self._rewards[at] = feedback.reward
        self._flags[at] = feedback.terminated, feedback.truncated
        self._observe(at + 1, feedback)
        self._steps = at + 1
        if feedback.terminated or feedback.truncated:
            self.end("terminated" if feedback.terminated else "truncated", feedback.reason)

    def _observe(self, at: int, feedback: Feedback) -> None:
        self._observations[at] = feedback.observation
        if self._whose.info_names:
            self._infos[at] = list(feedback.info["infos"].values())

    def _continue(self) -> int:
        """The file is full: what comes next begins with its last observation."""
        observation, infos = self._observations[self._steps].copy(), self._infos[self._steps].copy()
        self.end("continued", f"longer than {self._steps} steps")
        self._started = datetime.now(UTC)
        self._observations[0], self._infos[0] = observation, infos
        self._steps = 0
        return 0

    def end(self, how: str, reason: str = "") -> None:
        """The episode under way, if any, is over: write it. One without a step is forgotten."""
        steps, self._steps = self._steps, -1
        if steps <= 0 or self._pid != os.getpid():
            # In a forked child the episode under way is the parent's.
            return
        if not self._flags[steps - 1].any():
            # Whoever learns from it must not take its last step for one that another follows.
            self._flags[steps - 1, 1] = True
        whose = self._whose
        episode = RecordedEpisode(
            whose.simulator,
            whose.agent,
            self._seed,
            self._started,
            datetime.now(UTC),
            how,
            reason,
            whose.observation_space,
            whose.action_space,
            whose.info_names,
            self._observations[: steps + 1],
            self._actions[:steps],
            self._rewards[:steps],
            self._flags[:steps, 0],
            self._flags[:steps, 1],
            self._infos[: steps + 1],
            self._weights,
        )
        try:
            self._write(episode)
        except OSError as error:
            raise self._cannot_write(error) from None
        self.written += 1

    def close(self) -> None:
        """Write what is under way, as abandoned. Safe to call again."""
        self.end("abandoned", "closed before its end")

    # --- files -------------------------------------------------------------------------------------------------------

    def _write(self, episode: RecordedEpisode) -> None:
        # The time sorts, the process and the count tell recorders of one directory apart.
        name = "-".join(
            [
                f"{episode.started:%Y%m%dT%H%M%S.%fZ}",
                re.sub(r"[^A-Za-z0-9_.]+", "_", episode.agent)[:80],
                f"{os.getpid()}",
                f"{self.written:06}",
            ]
        )
        temporary = self.directory / f".{name}.part"
        try:
            with temporary.open("wb") as file:
                write_episode(file, episode)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.directory / (name + SUFFIX))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _cannot_write(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"episodes cannot be recorded in {self.directory}: {error.strerror or error}",
            hint="name a directory that can be written to, with room on its disk",
        )
