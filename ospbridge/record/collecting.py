"""Collecting the steps of an episode until it ends. Touches no disk and waits for nothing.

Whoever steps pays for little: a step is kept as it came, many are put together at once, as bytes behind each other, and
the arrays of an episode, which are views of them, are made by whoever wants them.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ospbridge.interface import BoxSpace, Space
from ospbridge.record.episode import RecordedEpisode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["TOGETHER", "Collected", "EpisodeCollector", "Recorded", "at_once"]

MEMORY: Final = 64 * 2**20
"""Bytes that the episode under way may take, about, unless told otherwise; a longer one is handed over in parts."""
TOGETHER: Final = 128
"""Steps that are put together at once, at most."""
FLOAT: Final = np.dtype("<f4")
Kept: TypeAlias = tuple[bytes, bytes, float, "Sequence[float]", float, "bytes | None", "bytes | None"]
"""A step: its action (a choice too, exact below 2**24) and its observation as float32, reward, infos, the logarithm of
the action's probability, what it was drawn from as float32, equally many numbers in all steps, or None in all, and the
action as it was drawn, where it is another then."""
EACH: Final = 7
"""Of those. Kept steps lie flat behind each other, so that a column of them is a slice."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Whose episodes are recorded."""

    simulator: str
    """Its address, or that of the daemon's hub."""
    agent: str
    observation_space: BoxSpace
    action_space: Space
    info_names: tuple[str, ...] = ()
    env_spec: Callable[[], str] = str
    """Tells what the environment was made with, as JSON, and nothing as long as that is not known."""


class _Columns:
    """What the steps of an episode brought, behind each other; the observations and infos begin with the reset's."""

    __slots__ = ("actions", "dist_inputs", "drawn", "infos", "logps", "observations", "rewards")

    def __init__(self, observation: bytes | bytearray, infos: Iterable[float]) -> None:
        self.observations = bytearray(observation)
        self.actions, self.dist_inputs = bytearray(), bytearray()
        self.drawn = bytearray()
        """The actions of all steps as they were drawn; empty where these are the actions themselves."""
        self.rewards, self.infos, self.logps = array("d"), array("d", infos), array("f")

    def add(self, kept: list[Any]) -> None:
        """The steps of ``kept``, one at least."""
        actions = kept[0::EACH]
        drawn = kept[6::EACH]
        if self.drawn or any(drawn):
            if not self.drawn:
                self.drawn += self.actions
            self.drawn += b"".join(one or given for one, given in zip(drawn, actions, strict=True))
        self.actions += b"".join(actions)
        self.observations += b"".join(kept[1::EACH])
        self.rewards.extend(kept[2::EACH])
        if kept[3]:
            self.infos.extend(chain.from_iterable(kept[3::EACH]))
        if kept[5] is not None:
            self.logps.extend(kept[4::EACH])
            self.dist_inputs += b"".join(kept[5::EACH])

    @property
    def nbytes(self) -> int:
        numbers = len(self.rewards) + len(self.infos)
        notes = len(self.dist_inputs) + len(self.drawn) + 4 * len(self.logps)
        return len(self.observations) + len(self.actions) + 8 * numbers + notes


@dataclass(slots=True, eq=False)
class Collected:
    """An episode that is over. What there is to do for its arrays is done by whoever wants them, in any thread."""

    whose: Recorded
    id: str
    seed: int
    started: float
    ended: float
    """Both in seconds, as ``time.time`` has them."""
    how: str
    reason: str
    terminated: bool
    truncated: bool
    """Whether its last step was."""
    before: int
    """How many of its steps are in the parts before."""
    weights_seq_no: int | None
    columns: _Columns
    kept: list[Any]
    """Its last steps, which are not in the columns yet, flat."""
    env_spec: str = ""
    _making: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        """Steps."""
        return len(self.columns.rewards) + len(self.kept) // EACH

    @property
    def nbytes(self) -> int:
        """Bytes of what its steps brought, about."""
        size = self.columns.nbytes
        if self.kept:
            action, observation, _, _, _, noted, drawn = self.kept[:EACH]
            each = len(action) + len(observation) + 8 * (1 + len(self.whose.info_names))
            each += (0 if noted is None else 4 + len(noted)) + len(drawn or b"")
            size += each * (len(self.kept) // EACH)
        return size

    def episode(self) -> RecordedEpisode:
        """The episode; its arrays are views of what was collected, and nobody else changes them."""
        whose, columns = self.whose, self._whole()
        steps = len(columns.rewards)
        actions = np.frombuffer(columns.actions, FLOAT)
        noted = bool(columns.logps)
        flags = np.zeros((2, steps), np.bool_)
        flags[:, -1] = self.terminated, self.truncated
        return RecordedEpisode(
            whose.simulator,
            whose.agent,
            self.seed,
            datetime.fromtimestamp(self.started, UTC),
            datetime.fromtimestamp(self.ended, UTC),
            self.how,
            self.reason,
            whose.observation_space,
            whose.action_space,
            whose.info_names,
            np.frombuffer(columns.observations, FLOAT).reshape(steps + 1, -1),
            actions.reshape(steps, -1)
            if isinstance(whose.action_space, BoxSpace)
            else actions.astype(np.int64),
            np.frombuffer(columns.rewards, np.float64),
            flags[0],
            flags[1],
            np.frombuffer(columns.infos, np.float64).reshape(steps + 1, len(whose.info_names)),
            self.weights_seq_no,
            np.frombuffer(columns.logps, np.float32) if noted else None,
            np.frombuffer(columns.dist_inputs, FLOAT).reshape(steps, -1) if noted else None,
            self.id,
            self.before,
            np.frombuffer(columns.drawn, FLOAT).reshape(steps, -1) if columns.drawn else None,
            self.env_spec,
        )

    def _whole(self) -> _Columns:
        """With the last steps; several may want them at once."""
        with self._making:
            if self.kept:
                self.columns.add(self.kept)
                self.kept = []
            return self.columns


def at_once(take: Callable[[RecordedEpisode], None]) -> Callable[[Collected], None]:
    """For a collector whose episodes are wanted as soon as they end."""
    return lambda collected: take(collected.episode())


class EpisodeCollector:
    """The episodes of one agent. ``finished`` is called with each as it ends, and owns its arrays from then on.

    One that would take more than ``memory`` bytes is handed over in parts, each of as many steps as fit, and of one at
    least. What ``finished`` raises is raised by whatever ended the episode, which is over all the same. But what is no
    Exception, as Ctrl-C, only interrupts it: it is called with the same again when the next part, the next episode or
    this one ends, when the next one begins, or with ``close``; the rest of an episode in parts is not lost then.
    """

    def __init__(
        self, whose: Recorded, finished: Callable[[Collected], None], *, memory: int = MEMORY
    ) -> None:
        self.has_infos = bool(whose.info_names)
        self.weights_seq_no: int | None = None
        """Which weights act at present, where that is known."""
        self._whose = whose
        self._finished = finished
        self._pid = os.getpid()
        space = whose.action_space
        self._memory = memory
        self._row = 4 * len(whose.observation_space.low) + 8 * len(whose.info_names) + 32
        self._row += 4 * len(space.low) if isinstance(space, BoxSpace) else 8
        self._kept: list[Any] = []
        """The latest steps, which are not in the columns yet, flat."""
        self._columns: _Columns | None = None
        """Of the episode under way; None: there is none."""
        self._interrupted: Collected | None = None
        """An episode that is over, and may not have been taken."""
        self._before = 0
        """Its steps that were handed over already."""
        self._id = ""
        self._seed = 0
        self._started = 0.0
        self._env_spec = ""

    def begin(self, feedback: Feedback, *, weights_seq_no: int | None = None) -> None:
        """A reset brought ``feedback``. The episode before, if it has not ended, is abandoned."""
        self.end("abandoned", "reset before its end")
        self._started = time()
        self._seed = feedback.info["osp_seed"]
        self._id = os.urandom(16).hex()
        self._before = 0
        # Who closes with an episode under way may not be able to tell any more.
        self._env_spec = self._env_spec or self._whose.env_spec()
        self.weights_seq_no = weights_seq_no
        infos = feedback.info["infos"].values() if self.has_infos else ()
        self._columns = _Columns(_floats(feedback.observation), infos)

    def step(
        self,
        action: Any,
        feedback: Feedback,
        *,
        logp: float = 0.0,
        dist_inputs: NDArray[np.float32] | None = None,
        drawn: NDArray[np.float32] | None = None,
    ) -> None:
        """``action`` brought ``feedback``, which may end the episode.

        ``dist_inputs``: float32[j], what the action was drawn from, with probability exp(``logp``); equally many in all
        steps of an episode, or None in all. ``drawn``: float32[m], the action as it was drawn, where that is another.
        """
        infos = tuple(feedback.info["infos"].values()) if self.has_infos else ()
        noted, whole = (None if each is None else _floats(each) for each in (dist_inputs, drawn))
        self.add((_floats(action), _floats(feedback.observation), feedback.reward, infos, logp, noted, whole))
        if feedback.terminated or feedback.truncated:
            self.finish(feedback)

    def add(self, step: Kept) -> None:
        """A step that does not end the episode, or one behind which ``finish`` is called."""
        kept = self._kept
        kept += step
        if len(kept) >= TOGETHER * EACH:
            self._settle()

    def _settle(self) -> None:
        """Put the kept steps together, if an episode is under way. One that is too long goes on in another part."""
        while self._kept and self._columns is not None:
            room = self._room
            if room > 0:
                self._columns.add(self._kept[: room * EACH])
                del self._kept[: room * EACH]
            else:
                self._go_on()
        self._kept.clear()

    @property
    def _room(self) -> int:
        """For so many steps; one has been kept at least."""
        assert self._columns is not None
        noted, drawn = self._kept[5], self._kept[6]
        # Nobody knows before how many numbers an action is drawn from.
        each = self._row + (0 if noted is None else 4 + len(noted)) + len(drawn or b"")
        # There is one observation more than there are steps, and it may be most of a row.
        return max(1, self._memory // each - 1) - len(self._columns.rewards)

    def _go_on(self) -> None:
        """What was collected is handed over; what comes next begins with the last observation."""
        if self._interrupted is not None:
            self._take_part(self._interrupted)
        columns = self._columns
        assert columns is not None
        steps = len(columns.rewards)
        wide, infos = 4 * len(self._whose.observation_space.low), len(self._whose.info_names)
        last = _Columns(columns.observations[-wide:], columns.infos[len(columns.infos) - infos :])
        part = self._collected(columns, [], "continued", f"longer than {steps} steps")
        self._columns = last
        self._started = time()
        self._before += steps
        self._take_part(part)

    def _take_part(self, part: Collected) -> None:
        """What only interrupts it leaves the rest of the episode to come."""
        try:
            self._take(part)
        except Exception:
            self._columns = None
            raise

    def finish(self, feedback: Feedback) -> None:
        """The latest step brought ``feedback``, which ends the episode."""
        how = "terminated" if feedback.terminated else "truncated"
        self.end(how, feedback.reason, terminated=feedback.terminated, truncated=feedback.truncated)

    def end(self, how: str, reason: str = "", *, terminated: bool = False, truncated: bool = True) -> None:
        """The episode under way, if any, is over. One without a step is forgotten.

        Where something else than its last step ends it, that step counts as truncated: whoever learns from it must not
        take it for one that another follows.
        """
        if self._interrupted is not None:
            try:
                self._take(self._interrupted)
            except Exception:
                self.end(how, reason, terminated=terminated, truncated=truncated)
                raise
        if self._columns is not None and self._kept and len(self._kept) > self._room * EACH:
            self._settle()
        columns, self._columns = self._columns, None
        kept, self._kept = self._kept, []
        if columns is not None and (kept or columns.rewards):
            self._take(
                self._collected(columns, kept, how, reason, terminated=terminated, truncated=truncated)
            )

    def _collected(
        self,
        columns: _Columns,
        kept: list[Any],
        how: str,
        reason: str,
        *,
        terminated: bool = False,
        truncated: bool = True,
    ) -> Collected:
        return Collected(
            self._whose,
            self._id,
            self._seed,
            self._started,
            time(),
            how,
            reason,
            terminated,
            truncated,
            self._before,
            self.weights_seq_no,
            columns,
            kept,
            self._env_spec,
        )

    def _take(self, collected: Collected) -> None:
        self._interrupted = collected
        try:
            # In a forked child what was collected until then is the parent's.
            if self._pid == os.getpid():
                self._finished(collected)
        except Exception:
            self._interrupted = None
            raise
        self._interrupted = None

    def close(self) -> None:
        """What is under way is abandoned. Safe to call again."""
        self.end("abandoned", "closed before its end")


def _floats(values: Any) -> bytes:
    return np.asarray(values, FLOAT).tobytes()
