"""Collecting the steps of an episode, row by row, until it ends. Touches no disk and waits for nothing."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.interface import BoxSpace, Space
from ospbridge.record.episode import RecordedEpisode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["EpisodeCollector", "Recorded"]

MEMORY: Final = 64 * 2**20
"""Bytes that the episode under way may take, about; a longer one is handed over in several parts."""
FIRST_ROWS: Final = 256
LEAST_ROWS: Final = 32


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

    __slots__ = (
        "actions",
        "dist_inputs",
        "infos",
        "logps",
        "observations",
        "rewards",
        "rows",
        "terminated",
        "truncated",
    )

    def __init__(self, whose: Recorded, rows: int, dist_inputs: int) -> None:
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
        self.logps = np.zeros(rows if dist_inputs else 0, np.float32)
        self.dist_inputs = np.zeros((rows if dist_inputs else 0, dist_inputs), np.float32)

    def take(self, other: _Columns, steps: int) -> None:
        """The rows of so many steps."""
        self.observations[: steps + 1] = other.observations[: steps + 1]
        self.infos[: steps + 1] = other.infos[: steps + 1]
        self.actions[:steps] = other.actions[:steps]
        self.rewards[:steps] = other.rewards[:steps]
        self.terminated[:steps] = other.terminated[:steps]
        self.truncated[:steps] = other.truncated[:steps]
        if steps and self.dist_inputs.size:
            self.logps[:steps] = other.logps[:steps]
            self.dist_inputs[:steps] = other.dist_inputs[:steps]


class EpisodeCollector:
    """The episodes of one agent. ``finished`` is called with each as it ends, and owns its arrays from then on.

    What ``finished`` raises is raised by whatever ended the episode, which is over all the same.
    """

    def __init__(
        self, whose: Recorded, finished: Callable[[RecordedEpisode], None], *, memory: int = MEMORY
    ) -> None:
        self.weights_seq_no: int | None = None
        """Which weights act at present, where that is known."""
        self.discrete = not isinstance(whose.action_space, BoxSpace)
        self._whose = whose
        self._has_infos = bool(whose.info_names)
        self._finished = finished
        self._pid = os.getpid()
        space = whose.action_space
        self._memory = memory
        self._row = 4 * len(whose.observation_space.low) + 8 * len(whose.info_names) + 32
        self._row += 4 * len(space.low) if isinstance(space, BoxSpace) else 8
        self._dist_inputs = 0
        """How many numbers each action of this episode is drawn from; 0: nobody says."""
        self._columns: _Columns | None = None
        """None where the last episode took its columns along."""
        self._first_rows = FIRST_ROWS
        """Steps that there is room for when an episode begins."""
        self._steps = -1
        """Of the episode under way; -1: there is none."""
        self._before = 0
        """Its steps that were handed over already."""
        self._id = ""
        self._seed = 0
        self._started = datetime.now(UTC)

    @property
    def _longest(self) -> int:
        """Steps that fit into the memory."""
        notes = 4 + 4 * self._dist_inputs if self._dist_inputs else 0
        return max(1, self._memory // (self._row + notes))

    def begin(self, feedback: Feedback, *, weights_seq_no: int | None = None) -> None:
        """A reset brought ``feedback``. The episode before, if it has not ended, is abandoned."""
        self.end("abandoned", "reset before its end")
        self._started = datetime.now(UTC)
        self._seed = feedback.info["osp_seed"]
        self._id = uuid.uuid4().hex
        self._before = 0
        self.weights_seq_no = weights_seq_no
        columns = self._columns or self._fresh()
        columns.observations[0] = feedback.observation
        columns.infos[0] = tuple(feedback.info["infos"].values())
        self._steps = 0

    def step(
        self,
        action: Any,
        feedback: Feedback,
        *,
        logp: float = 0.0,
        dist_inputs: NDArray[np.float32] | None = None,
    ) -> None:
        """``action`` brought ``feedback``, which may end the episode.

        ``dist_inputs``: float32[j], what the action was drawn from, with probability exp(``logp``); equally many in all
        steps of an episode, or None in all.
        """
        if self._steps < 0:
            return
        columns = self._room(dist_inputs)
        at = self._steps
        columns.actions[at] = action
        columns.rewards[at] = feedback.reward
        columns.observations[at + 1] = feedback.observation
        if self._has_infos:
            columns.infos[at + 1] = tuple(feedback.info["infos"].values())
        if dist_inputs is not None:
            columns.logps[at] = logp
            columns.dist_inputs[at] = dist_inputs
        self._steps = at + 1
        if feedback.terminated or feedback.truncated:
            self.finish(feedback)

    def extend(
        self,
        actions: NDArray[Any],
        observations: NDArray[np.float32],
        *,
        rewards: Sequence[float],
        infos: NDArray[np.float32],
        logps: Sequence[float],
        dist_inputs: Sequence[NDArray[np.float32]],
    ) -> None:
        """As ``step`` for each row in turn, but quicker; none of them ends the episode.

        ``infos`` may have no rows where there are none, ``logps`` and ``dist_inputs`` where nobody says them.
        """
        done, count = 0, len(rewards)
        while self._steps >= 0 and done < count:
            columns = self._room(dist_inputs[done] if dist_inputs else None)
            at = self._steps
            until = min(count, done + columns.rows - at)
            end = at + until - done
            columns.actions[at:end] = actions[done:until]
            columns.rewards[at:end] = rewards[done:until]
            columns.observations[at + 1 : end + 1] = observations[done:until]
            if self._has_infos:
                columns.infos[at + 1 : end + 1] = infos[done:until]
            if dist_inputs:
                columns.logps[at:end] = logps[done:until]
                columns.dist_inputs[at:end] = dist_inputs[done:until]
            self._steps, done = end, until

    def finish(self, feedback: Feedback) -> None:
        """The latest step is the one that ended the episode, as ``feedback`` says."""
        if self._steps > 0 and self._columns is not None:
            self._columns.terminated[self._steps - 1] = feedback.terminated
            self._columns.truncated[self._steps - 1] = feedback.truncated
            self.end("terminated" if feedback.terminated else "truncated", feedback.reason)

    def _room(self, dist_inputs: NDArray[np.float32] | None) -> _Columns:
        """What the next step of the episode under way is written into; it may begin another part of it."""
        columns = self._columns
        assert columns is not None
        if self._steps == 0 and self._dist_inputs != (0 if dist_inputs is None else len(dist_inputs)):
            columns = self._noted(columns, dist_inputs)
        return self._more_room(columns) if self._steps == columns.rows else columns

    def _noted(self, before: _Columns, dist_inputs: NDArray[np.float32] | None) -> _Columns:
        """With room for what the actions of this episode are drawn from."""
        self._dist_inputs = 0 if dist_inputs is None else len(dist_inputs)
        columns = self._fresh()
        columns.take(before, 0)
        return columns

    def _fresh(self) -> _Columns:
        self._columns = _Columns(self._whose, min(self._first_rows, self._longest), self._dist_inputs)
        return self._columns

    def _more_room(self, full: _Columns) -> _Columns:
        """For one more step at least. Where that is too much, what comes next begins with the last observation."""
        if full.rows < self._longest:
            self._columns = _Columns(self._whose, min(2 * full.rows, self._longest), self._dist_inputs)
            self._columns.take(full, full.rows)
            return self._columns
        observation, infos = full.observations[full.rows].copy(), full.infos[full.rows].copy()
        self.end("continued", f"longer than {full.rows} steps")
        self._started = datetime.now(UTC)
        self._before += full.rows
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
            room, columns = columns, _Columns(self._whose, steps, self._dist_inputs)
            columns.take(room, steps)
        self._columns = None
        # The next episode is likely to be as long.
        self._first_rows = min(max(steps, LEAST_ROWS), FIRST_ROWS)
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
                self.weights_seq_no,
                columns.logps[:steps] if self._dist_inputs else None,
                columns.dist_inputs[:steps] if self._dist_inputs else None,
                self._id,
                self._before,
            )
        )

    def close(self) -> None:
        """What is under way is abandoned. Safe to call again."""
        self.end("abandoned", "closed before its end")
