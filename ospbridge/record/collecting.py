"""Collecting the steps of an episode, row by row, until it ends. Touches no disk and waits for nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.interface import BoxSpace, Space
from ospbridge.record.episode import RecordedEpisode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["EpisodeCollector", "Recorded"]

MEMORY: Final = 64 * 2**20
"""Bytes that the episode under way may take, about; a longer one is handed over in several parts."""
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


class _Columns:
    """Room for the rows of one episode, ``rows`` steps; arrays as in ``RecordedEpisode``."""

    __slots__ = ("actions", "infos", "observations", "rewards", "rows", "terminated", "truncated")

    def __init__(self, whose: Recorded, rows: int) -> None:
        space = whose.action_space
        self.rows = rows
        self.observations = np.zeros((rows + 1, len(whose.observation_space.low)), np.float32)
        self.infos = np.zeros((rows + 1, len(whose.info_names)), np.float64)
        self.actions: NDArray[Any] = (
            np.zeros((rows, *space.low.shape), np.float32)
            if isinstance(space, BoxSpace)
            else np.zeros(rows, np.int64)
        )
        self.rewards = np.zeros(rows, np.float64)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)

    def take(self, other: _Columns, steps: int) -> None:
        """The rows of so many steps."""
        self.observations[: steps + 1] = other.observations[: steps + 1]
        self.infos[: steps + 1] = other.infos[: steps + 1]
        self.actions[:steps] = other.actions[:steps]
        self.rewards[:steps] = other.rewards[:steps]
        self.terminated[:steps] = other.terminated[:steps]
        self.truncated[:steps] = other.truncated[:steps]


class EpisodeCollector:
    """The episodes of one agent. ``finished`` is called with each as it ends, and owns its arrays from then on.

    What ``finished`` raises is raised by whatever ended the episode, which is over all the same.
    """

    def __init__(
        self, whose: Recorded, finished: Callable[[RecordedEpisode], None], *, memory: int = MEMORY
    ) -> None:
        self._whose = whose
        self._finished = finished
        self._pid = os.getpid()
        space = whose.action_space
        row = 4 * len(whose.observation_space.low) + 8 * len(whose.info_names) + 32
        row += 4 * len(space.low) if isinstance(space, BoxSpace) else 8
        self._longest = max(1, memory // row)
        self._columns: _Columns | None = None
        """None where the last episode took its columns along."""
        self._steps = -1
        """Of the episode under way; -1: there is none."""
        self._seed = 0
        self._weights: int | None = None
        self._started = datetime.now(UTC)

    def begin(self, feedback: Feedback, *, weights_seq_no: int | None = None) -> None:
        """A reset brought ``feedback``. The episode before, if it has not ended, is abandoned."""
        self.end("abandoned", "reset before its end")
        self._started = datetime.now(UTC)
        self._seed = feedback.info["osp_seed"]
        self._weights = weights_seq_no
        columns = self._columns or self._fresh()
        columns.observations[0] = feedback.observation
        columns.infos[0] = tuple(feedback.info["infos"].values())
        self._steps = 0

    def step(self, action: Any, feedback: Feedback) -> None:
        """``action`` brought ``feedback``, which may end the episode."""
        at = self._steps
        if at < 0:
            return
        columns = self._columns
        assert columns is not None
        if at == columns.rows:
            columns = self._more_room(columns)
            at = self._steps
        columns.actions[at] = action
        columns.rewards[at] = feedback.reward
        columns.terminated[at] = feedback.terminated
        columns.truncated[at] = feedback.truncated
        columns.observations[at + 1] = feedback.observation
        columns.infos[at + 1] = tuple(feedback.info["infos"].values())
        self._steps = at + 1
        if feedback.terminated or feedback.truncated:
            self.end("terminated" if feedback.terminated else "truncated", feedback.reason)

    def _fresh(self) -> _Columns:
        self._columns = _Columns(self._whose, min(FIRST_ROWS, self._longest))
        return self._columns

    def _more_room(self, full: _Columns) -> _Columns:
        """For one more step at least. Where that is too much, what comes next begins with the last observation."""
        if full.rows < self._longest:
            self._columns = _Columns(self._whose, min(2 * full.rows, self._longest))
            self._columns.take(full, full.rows)
            return self._columns
        observation, infos = full.observations[full.rows].copy(), full.infos[full.rows].copy()
        self.end("continued", f"longer than {full.rows} steps")
        self._started = datetime.now(UTC)
        columns = self._fresh()
        columns.observations[0], columns.infos[0] = observation, infos
        self._steps = 0
        return columns

    def end(self, how: str, reason: str = "") -> None:
        """The episode under way, if any, is over. One without a step is forgotten."""
        steps, self._steps = self._steps, -1
        columns = self._columns
        if steps <= 0 or columns is None or self._pid != os.getpid():
            # In a forked child the episode under way is the parent's.
            return
        if 2 * steps < columns.rows:
            # It would take much room along that it does not fill.
            room, columns = columns, _Columns(self._whose, steps)
            columns.take(room, steps)
        else:
            self._columns = None
        if not (columns.terminated[steps - 1] or columns.truncated[steps - 1]):
            # Whoever learns from it must not take its last step for one that another follows.
            columns.truncated[steps - 1] = True
        whose = self._whose
        self._finished(
            RecordedEpisode(
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
                columns.observations[: steps + 1],
                columns.actions[:steps],
                columns.rewards[:steps],
                columns.terminated[:steps],
                columns.truncated[:steps],
                columns.infos[: steps + 1],
                self._weights,
            )
        )

    def close(self) -> None:
        """What is under way is abandoned. Safe to call again."""
        self.end("abandoned", "closed before its end")
