"""Experience that came, as recordings: each fragment once, and on disk before the client is told that it was read."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.writing import SUFFIX, EpisodeWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from ospbridge.interface import Space
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["Store"]

_MARK: Final = re.compile(r"-id-(?P<mark>[A-Za-z0-9_.]+-\d{8,})" + re.escape(SUFFIX) + r"\Z")
"""The end of a file's name: which fragment it holds."""
LONGEST_ID: Final = 100


class Store:
    """Recordings in ``directory``. Raises ConfigurationError where it cannot be written to, also later."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._writer = EpisodeWriter(directory)
        self.written = 0
        self.again = 0
        """Fragments that had come before."""
        self._known = {
            found["mark"] for path in self._writer.directory.iterdir() if (found := _MARK.search(path.name))
        }

    @property
    def directory(self) -> str:
        return str(self._writer.directory)

    def add(self, fragments: Iterable[EpisodeFragment], *, client: str, named: bool) -> None:
        """Write those that are new; all, where the client's dialect gives them no names. Waits for the disk."""
        for fragment in fragments:
            name = re.sub(r"[^A-Za-z0-9_.]", "_", fragment.id)[:LONGEST_ID] if named else uuid.uuid4().hex
            mark = f"{name}-{fragment.t_started:08}"
            if mark in self._known:
                self.again += 1
                continue
            now = datetime.now(UTC)
            self._writer.write(_episode(fragment, client, now), name=f"{now:%Y%m%dT%H%M%S.%fZ}-id-{mark}")
            self._known.add(mark)
            self.written += 1


def _episode(fragment: EpisodeFragment, client: str, now: datetime) -> RecordedEpisode:
    steps = fragment.steps
    terminated, truncated = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_)
    terminated[-1] = fragment.terminated
    # Whoever learns from it must not take its last step for one that another follows.
    truncated[-1] = not fragment.terminated
    how = "terminated" if fragment.terminated else "truncated" if fragment.truncated else "continued"
    return RecordedEpisode(
        simulator=client,
        agent="agent",
        seed=0,
        started=now,
        ended=now,
        how=how,
        reason="" if fragment.done else "its next steps were sent later",
        observation_space=_unbounded(fragment.observations.shape[1]),
        action_space=_action_space(fragment),
        info_names=(),
        observations=fragment.observations,
        actions=fragment.actions,
        rewards=fragment.rewards.astype(np.float64),
        terminated=terminated,
        truncated=truncated,
        infos=np.zeros((steps + 1, 0), np.float64),
        weights_seq_no=fragment.weights_seq_no,
    )


def _unbounded(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32))


def _action_space(fragment: EpisodeFragment) -> Space:
    """As far as experience tells: RLlink names no spaces."""
    if fragment.actions.dtype.kind == "f":
        return _unbounded(fragment.actions.shape[1])
    if fragment.action_dist_inputs is not None:
        return DiscreteSpace(fragment.action_dist_inputs.shape[1])
    return DiscreteSpace(int(fragment.actions.max()) + 1)
