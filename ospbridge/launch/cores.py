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
    """Of this process, which leaves some cores alone (``LENT``) for as long as its simulators run there."""

    def __init__(self) -> None:
        self._before: set[int] | None = None
        self._given: set[int] = set()

    @property
    def usable(self) -> list[int]:
        """Cores that this process might use if it left none alone."""
        return sorted(_affinity() if self._before is None else self._before)

    def keep_off(self, simulators: set[int], others: set[int]) -> None:
        usable = set(self.usable)
        if left := usable - simulators - others:
            self._before, self._given = usable, left
            LENT.update(simulators)
            _set_affinity(left)

    def free(self, core: int) -> None:
        LENT.discard(core)
        if not LENT and self._before is not None:
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
    with suppress(OSError):
        folder = runtime_directory() / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in reversed(usable):
            path = folder / f"{number}.lock"
            descriptor = _lock(path)
            if descriptor is None:
                locked.add(number)
                owners.add(_owner(path))
            elif len(taken) < count:
                taken.append(Core(number, descriptor))
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            else:
                os.close(descriptor)
        if len(taken) == count and len(usable) - len(locked) - count >= len(owners):
            _state.keep_off({core.number for core in taken}, locked)
            return taken
    for core in taken:
        core.release()
    return []


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


def _lock(path: Path) -> int | None:
    """The descriptor of a file that is locked for us now; None where somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def _owner(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return 0
