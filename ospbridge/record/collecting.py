"""Collecting the steps of an episode until it ends. Touches no disk and waits for nothing.

Numbers are kept as bytes, behind each other, and an episode's arrays are views of them: what a step costs is little,
and what the end of an episode costs does not grow with its length.
"""

from __future__ import annotations

import os
import uuid
from array import array
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.interface import BoxSpace, Space
from ospbridge.record.episode import RecordedEpisode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["EpisodeCollector", "Recorded"]

MEMORY: Final = 64 * 2**20
"""Bytes that the episode under way may take, about; a longer one is handed over in several parts."""
FLOAT: Final = np.dtype("<f4")


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Whose episodes are recorded."""

    simulator: str
    """Its address, or that of the daemon's hub."""
    agent: str
    observation_space: BoxSpace
    action_space: Space
    info_names: tuple[str, ...] = ()


class EpisodeCollector:
    """The episodes of one agent. ``finished`` is called with each as it ends, and owns its arrays from then on.

    What ``finished`` raises is raised by whatever ended the episode, which is over all the same.
    """

    def __init__(
        self, whose: Recorded, finished: Callable[[RecordedEpisode], None], *, memory: int = MEMORY
    ) -> None:
        self.weights_seq_no: int | None = None
        """Which weights act at present, where that is known."""
        self._whose = whose
        self._has_infos = bool(whose.info_names)
        self._finished = finished
        self._pid = os.getpid()
        space = whose.action_space
        self._memory = memory
        self._row = 4 * len(whose.observation_space.low) + 8 * len(whose.info_names) + 32
        self._row += 4 * len(space.low) if isinstance(space, BoxSpace) else 8
        self._steps = -1
        """Of the episode under way; -1: there is none."""
        self._longest = 0
        """Steps that fit into the memory."""
        self._before = 0
        """Its steps that were handed over already."""
        self._id = ""
        self._seed = 0
        self._started = datetime.now(UTC)
        self._clear()

    def _clear(self) -> None:
        """Nothing of an episode's is here any more."""
        self._observations, self._actions, self._dist_inputs = bytearray(), bytearray(), bytearray()
        self._rewards, self._infos, self._logps = array("d"), array("d"), array("f")

    def begin(self, feedback: Feedback, *, weights_seq_no: int | None = None) -> None:
        """A reset brought ``feedback``. The episode before, if it has not ended, is abandoned."""
        self.end("abandoned", "reset before its end")
        self._started = datetime.now(UTC)
        self._seed = feedback.info["osp_seed"]
        self._id = uuid.uuid4().hex
        self._before = 0
        self.weights_seq_no = weights_seq_no
        self._clear()
        self._observations += _floats(feedback.observation)
        if self._has_infos:
            self._infos.extend(feedback.info["infos"].values())
        self._steps = 0

    def step(
        self,
        action: Any,
        feedback: Feedback,
        *,
        logp: float = 0.0,
        dist_inputs: NDArray[np.float32] | None = None,
    ) -> None:
        """``action`` brought ``feedback``, which may end the episode; the rest as in ``add``."""
        if self._steps >= 0:
            infos = feedback.info["infos"].values() if self._has_infos else ()
            self.add(
                _floats(action),
                _floats(feedback.observation),
                feedback.reward,
                infos,
                logp=logp,
                dist_inputs=dist_inputs,
            )
            self.finish(feedback)

    def add(
        self,
        action: bytes,
        observation: bytes,
        reward: float,
        infos: Iterable[float],
        *,
        logp: float = 0.0,
        dist_inputs: NDArray[np.float32] | None = None,
    ) -> None:
        """A step of the episode under way, if there is one: what was done as float32, and what it brought.

        ``dist_inputs``: float32[j], what the action was drawn from, with probability exp(``logp``); equally many in all
        steps of an episode, or None in all.
        """
        at = self._steps
        if at < 0:
            return
        if at == 0:
            # Nobody knows before how many numbers an action is drawn from.
            notes = 0 if dist_inputs is None else 4 + 4 * len(dist_inputs)
            self._longest = max(1, self._memory // (self._row + notes))
        elif at == self._longest:
            self._go_on()
            at = 0
        self._actions += action
        self._observations += observation
        self._rewards.append(reward)
        if self._has_infos:
            self._infos.extend(infos)
        if dist_inputs is not None:
            self._logps.append(logp)
            self._dist_inputs += dist_inputs.tobytes()
        self._steps = at + 1

    def finish(self, feedback: Feedback) -> None:
        """The latest step brought ``feedback``, which may end the episode."""
        if feedback.terminated or feedback.truncated:
            self._end(
                "terminated" if feedback.terminated else "truncated",
                feedback.reason,
                terminated=feedback.terminated,
                truncated=feedback.truncated,
            )

    def _go_on(self) -> None:
        """What was collected is handed over; what comes next begins with the last observation."""
        wide, infos = 4 * len(self._whose.observation_space.low), len(self._whose.info_names)
        observation, last = self._observations[-wide:], self._infos[len(self._infos) - infos :]
        steps = self._steps
        self._end("continued", f"longer than {steps} steps")
        self._started = datetime.now(UTC)
        self._before += steps
        self._observations += observation
        self._infos += last
        self._steps = 0

    def end(self, how: str, reason: str = "") -> None:
        """The episode under way, if any, is over. One without a step is forgotten."""
        # Whoever learns from it must not take its last step for one that another follows.
        self._end(how, reason)

    def _end(self, how: str, reason: str, *, terminated: bool = False, truncated: bool = True) -> None:
        steps, self._steps = self._steps, -1
        if steps <= 0 or self._pid != os.getpid():
            # In a forked child the episode under way is the parent's.
            return
        whose = self._whose
        actions = np.frombuffer(self._actions, FLOAT)
        logps = np.frombuffer(self._logps, np.float32) if self._logps else None
        noted = np.frombuffer(self._dist_inputs, FLOAT).reshape(steps, -1) if self._logps else None
        flags = np.zeros((2, steps), np.bool_)
        flags[:, -1] = terminated, truncated
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
            np.frombuffer(self._observations, FLOAT).reshape(steps + 1, -1),
            actions.reshape(steps, -1)
            if isinstance(whose.action_space, BoxSpace)
            else actions.astype(np.int64),
            np.frombuffer(self._rewards, np.float64),
            flags[0],
            flags[1],
            np.frombuffer(self._infos, np.float64).reshape(steps + 1, len(whose.info_names)),
            self.weights_seq_no,
            logps,
            noted,
            self._id,
            self._before,
        )
        # The arrays are views of what was collected, which is the episode's own from now on.
        self._clear()
        self._finished(episode)

    def close(self) -> None:
        """What is under way is abandoned. Safe to call again."""
        self.end("abandoned", "closed before its end")


def _floats(values: Any) -> bytes:
    return np.asarray(values, FLOAT).tobytes()
