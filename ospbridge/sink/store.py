"""Experience that came, as recordings: each fragment once, and on disk before the client is told that it was read.

Which fragment a file holds stands in its name, so that a sink that was killed knows them all when it starts anew. What
has no id, as episodes from clients of the dialect json that give none, is taken for new each time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.writing import SUFFIX, EpisodeWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.interface import Space
    from ospbridge.rllink.messages import EpisodeFragment

__all__ = ["Store"]

_MARK: Final = re.compile(r"-id-(?P<mark>[A-Za-z0-9_.]+-\d{8,})" + re.escape(SUFFIX) + r"\Z")
"""The end of a file's name: which fragment it holds."""
LOCK: Final = ".sink.lock"
_UNFINISHED: Final = re.compile(r"\..+-id-[A-Za-z0-9_.]+-\d{8,}\.part\Z")
"""A file that a sink was killed over."""
MOST_CHOICES: Final = 2**24
"""Up to which a float32, as which a choice travels, is exact."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.]{1,100}")
"""Ids that may stand in a file's name as they are."""


class Store:
    """Recordings in ``directory``, which is this store's alone until ``close``.

    Raises ConfigurationError where it is another's, or cannot be written to, also later.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._writer = EpisodeWriter(directory)
        self._lock: int | None = self._locked()
        self.written = 0
        self.again = 0
        """Fragments that had come before."""
        self._known = set()
        for path in self._writer.directory.iterdir():
            if found := _MARK.search(path.name):
                self._known.add(found["mark"])
            elif _UNFINISHED.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()

    def _locked(self) -> int | None:
        """None where files cannot be locked."""
        try:
            lock = os.open(self._writer.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigurationError(
                f"another sink records in {self.directory}", hint="give each sink a directory of its own"
            ) from None
        except OSError:
            os.close(lock)
            return None
        return lock

    @property
    def directory(self) -> str:
        return str(self._writer.directory)

    def close(self) -> None:
        """Let another have the directory. Safe to call again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, fragments: Iterable[EpisodeFragment], *, client: str) -> list[EpisodeFragment]:
        """Write those that are new, and return the others; what has no id counts as new. Waits for the disk.

        Where it raises, some of them may be written all the same, and are known when they come again.
        """
        known = []
        for fragment in fragments:
            mark = f"{_name(fragment.id)}-{fragment.t_started:08}"
            if mark in self._known:
                self.again += 1
                known.append(fragment)
                continue
            now = datetime.now(UTC)
            self._writer.put(_episode(fragment, client, now), name=f"{now:%Y%m%dT%H%M%S.%fZ}-id-{mark}")
            self._known.add(mark)
            self.written += 1
        self._writer.settle()
        return known


def _name(identity: str) -> str:
    """For a file: equal for equal ids only, whatever characters they have."""
    if not identity:
        return uuid.uuid4().hex
    if _PLAIN.fullmatch(identity):
        return identity
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_.]', '_', identity)[:40]}.{digest[:40]}"


def _episode(fragment: EpisodeFragment, client: str, now: datetime) -> RecordedEpisode:
    steps = fragment.steps
    terminated, truncated = np.zeros(steps, np.bool_), np.zeros(steps, np.bool_)
    terminated[-1] = fragment.terminated
    # Whoever learns from it must not take its last step for one that another follows.
    truncated[-1] = not fragment.terminated
    how = "terminated" if fragment.terminated else "truncated" if fragment.truncated else "continued"
    return RecordedEpisode(
        simulator=fragment.simulator or client,
        agent=fragment.agent or "agent",
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
        action_logp=fragment.action_logp,
        action_dist_inputs=fragment.action_dist_inputs,
        id=fragment.id,
        t_started=fragment.t_started,
    )


def _unbounded(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32))


def _action_space(fragment: EpisodeFragment) -> Space:
    """As far as experience tells: RLlink names no spaces."""
    if fragment.actions.dtype.kind == "f":
        return _unbounded(fragment.actions.shape[1])
    if fragment.actions.ndim != 1 or fragment.actions.min() < 0:
        raise ConfigurationError(
            f"episode {fragment.id!r} has actions that no recording can hold: {fragment.actions.dtype}"
            f"{list(fragment.actions.shape)}, the least is {fragment.actions.min()}",
            hint="one choice a step, counted from 0, or numbers",
        )
    made = int(fragment.actions.max()) + 1
    inputs = fragment.action_dist_inputs
    said = (fragment.choices or 0) if inputs is None else inputs.shape[1]
    # Of any client: it may say what its own actions belie.
    return DiscreteSpace(said if made <= said <= MOST_CHOICES else made)
