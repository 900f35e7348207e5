"""Cores of their own for launched simulators, which their owner's other threads leave alone.

Who has which core is said by lock files in the runtime directory, so that processes of one user do not choose the same
one; the owner of a simulator holds the lock.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ospbridge.observe.runtime import runtime_directory
from ospbridge.transport.spinning import LENT

__all__ = ["Core", "take"]

FOLDER: Final = "cores"


class Core:
    """A core that one simulator has to itself."""

    def __init__(self, number: int, descriptor: int) -> None:
        self.number = number
        self._descriptor = descriptor

    def release(self) -> None:
        """Its simulator has ended. With the last of them this process may run everywhere again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _state.free(self.number)


class _Affinity:
    """Of this process, which leaves some cores alone for as long as its simulators run there."""

    def __init__(self) -> None:
        self._before: set[int] | None = None
        self._given: set[int] = set()
        self._simulators: set[int] = set()

    @property
    def usable(self) -> list[int]:
        """Cores that this process might use if it left none alone."""
        return sorted(_affinity() if self._before is None else self._before)

    def keep_off(self, simulators: set[int], others: set[int]) -> None:
        usable = set(self.usable)
        left = usable - simulators - others
        if left:
            self._before, self._given = usable, left
            self._simulators |= simulators
            LENT.update(simulators)
            _set_affinity(left)

    def free(self, core: int) -> None:
        self._simulators.discard(core)
        LENT.discard(core)
        if not self._simulators and self._before is not None:
            # Unless somebody has changed it meanwhile.
            if _affinity() == self._given:
                _set_affinity(self._before)
            self._before = None


_state: Final = _Affinity()


def take(count: int, *, of: int = 1) -> list[Core]:
    """``count`` cores that no other launched simulator has, or none where that would leave too few for the owners.

    Each process with pinned simulators needs a core too. What this process runs leaves all of them alone from then on.
    """
    usable = _state.usable
    if len(usable) <= max(count, of):
        return []
    taken: list[Core] = []
    owners = {os.getpid()}
    locked: set[int] = set()
    try:
        folder = runtime_directory() / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in reversed(usable):
            path = folder / f"{number}.lock"
            descriptor = _locked(path) if len(taken) < count else None
            if descriptor is not None:
                taken.append(Core(number, descriptor))
            elif _is_locked(path):
                locked.add(number)
                owners.add(_owner(path))
    except OSError:
        _give_back(taken)
        return []
    left = len(usable) - len(locked) - len(taken)
    if len(taken) < count or left < len(owners):
        _give_back(taken)
        return []
    _state.keep_off({core.number for core in taken}, locked)
    return taken


def _affinity() -> set[int]:
    try:
        return os.sched_getaffinity(0)
    except (AttributeError, OSError):
        return set()


def _set_affinity(cores: set[int]) -> None:
    """Of all threads of this process; those to come inherit it."""
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)


def _locked(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _owner(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _give_back(cores: list[Core]) -> None:
    for core in cores:
        core.release()
