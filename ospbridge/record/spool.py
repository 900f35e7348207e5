"""Episodes on their way upstream, on disk until it is proven that they were read.

``put`` never waits: a thread of the spool's own gathers what was put for a moment and writes it, in order, each group
in one transaction. What was read with ``take`` stays until ``forget`` is told that it has arrived, also over the death
of the process.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from ospbridge.record.spool_file import REFUSED, Entry, Made, SpoolFile, WhenFull

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["CLOSE_WITHIN", "Entry", "Made", "Spool", "SpoolFigures", "WhenFull"]

DEFAULT_LIMIT: Final = 2 * 2**30
DEFAULT_UNWRITTEN: Final = 64 * 2**20
GATHER: Final = 0.05
"""Seconds that an entry waits for others behind it: a transaction for each would disturb whoever steps meanwhile."""
MANY: Final = 4
"""Where so many came in that time, as of worlds that are much quicker than real, ..."""
GATHER_MANY: Final = 0.2
"""... they wait for so many seconds. So does what has arrived, until it is taken out."""
MUCH: Final = 2**20
"""Bytes that wait for no more."""
RETRY_AFTER: Final = 1.0
"""Seconds between tries to write while the disk refuses."""
CLOSE_WITHIN: Final = 10.0
"""Seconds for which ``close`` waits for what is not on disk yet."""


@dataclass(frozen=True, slots=True)
class SpoolFigures:
    """How a spool stands."""

    entries: int
    """On disk, without those that have arrived."""
    bytes: int
    """Of their bodies."""
    unwritten: int
    """What was put and is not on disk yet."""
    dropped: int
    """Entries lost since the start, because the spool was full or the disk refused."""
    trouble: str
    """Why nothing can be written at present; empty where it can."""


class _Waiting:
    """What is on its way to the disk: entries, or who makes them."""

    __slots__ = ("_entries", "_make", "size")

    def __init__(self, size: int, make: Callable[[], Sequence[Made]]) -> None:
        self.size = size
        self._make = make
        self._entries: Sequence[Made] | None = None

    def entries(self) -> Sequence[Made]:
        """Made once, however often the disk refuses."""
        if self._entries is None:
            self._entries = self._make()
        return self._entries


class Spool:
    """The spool in the file ``path``, made where there is none.

    ``limit``: bytes of bodies on disk. ``unwritten``: bytes that may wait in memory for the disk; what does not fit any
    more is dropped and counted. ``on_stored`` is called, in the spool's own thread, when entries have come onto the
    disk. Raises ConfigurationError for a file that is no spool, is damaged, is held by another process, or cannot be
    made.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit: int = DEFAULT_LIMIT,
        when_full: WhenFull = WhenFull.DROP_OLDEST,
        unwritten: int = DEFAULT_UNWRITTEN,
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        self._file = SpoolFile(path, limit=limit, when_full=when_full)
        self.path = self._file.path
        self._unwritten = unwritten
        self._on_stored = on_stored
        self._lock = threading.Lock()
        """Whose turn it is to use the file; whoever has it may take ``_state``, and not the other way round."""
        self._on_disk = self._file.entries, self._file.bytes
        """As of the latest transaction."""
        self._dropped = 0
        self._trouble = ""
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._arrived: dict[int, int] = {}
        """Numbers of entries that are to be taken out, and the lengths of their bodies."""
        guard = threading.RLock()
        self._state = threading.Condition(guard)
        """Guards what waits, and tells of it."""
        self._much = min(MUCH, unwritten // 2)
        self._enough = threading.Condition(guard)
        """Tells that the first of what waits has waited long enough."""
        self._awaited = 0
        """How many wait for what waits."""
        self._closing = False
        self._writer = threading.Thread(target=self._write_all, name=f"spool {self.path.name}", daemon=True)
        self._writer.start()

    # --- in ----------------------------------------------------------------------------------------------------------

    def put(self, key: str, steps: int, body: bytes) -> bool:
        """Keep ``body``; never waits. An equal ``key`` that is still kept makes it nothing new.

        False where it had to be dropped at once, because the disk does not keep up.
        """
        return self.put_made(len(body), lambda: (Made(key, steps, body),))

    def put_made(self, size: int, make: Callable[[], Sequence[Made]]) -> bool:
        """As ``put``, of what ``make`` returns, of about ``size`` bytes together.

        It is called in the spool's own thread, with others, and must not raise.
        """
        with self._state:
            if self._closing or self._waiting_bytes + size > self._unwritten:
                self._dropped += 1
                return False
            self._waiting.append(_Waiting(size, make))
            self._waiting_bytes += size
            if len(self._waiting) == 1:
                self._state.notify_all()
            elif self._waiting_bytes >= self._much:
                self._enough.notify_all()
            return True

    def _write_all(self) -> None:
        """The thread's life: write what waits until closed and nothing waits."""
        while True:
            with self._state:
                while not (self._waiting or self._arrived or self._closing):
                    self._state.wait()
                enough = self._enough.wait_for(self._is_enough, GATHER)
                if not enough and not 0 < len(self._waiting) < MANY:
                    self._enough.wait_for(self._is_enough, GATHER_MANY - GATHER)
                if not (self._waiting or self._arrived):
                    return
            if not self._write_waiting():
                with self._state:
                    if self._closing:
                        return
                    self._state.wait_for(lambda: self._closing, RETRY_AFTER)

    def _is_enough(self) -> bool:
        """Nothing more is waited for."""
        return self._closing or self._awaited > 0 or self._waiting_bytes >= self._much

    def _write_waiting(self) -> bool:
        """Write what waits at present; False where the disk refuses."""
        with self._state:
            group, arrived = list(self._waiting), dict(self._arrived)
        entries = [entry for waiting in group for entry in waiting.entries()]
        with self._lock:
            try:
                lost = self._file.write(entries, arrived)
            except REFUSED as error:
                with self._state:
                    self._trouble = f"cannot write to the spool {self.path}: {error}"
                    self._on_disk = self._file.entries, self._file.bytes
                return False
            with self._state:
                self._trouble = ""
                self._on_disk = self._file.entries, self._file.bytes
                self._dropped += lost
                for waiting in group:
                    self._waiting.popleft()
                    self._waiting_bytes -= waiting.size
                for seq in arrived:
                    del self._arrived[seq]
                self._state.notify_all()
        if group:
            self._on_stored()
        return True

    # --- out ---------------------------------------------------------------------------------------------------------

    def take(self, *, after: int = 0, steps: int, size: int) -> list[Entry]:
        """The oldest entries behind ``after``: at least one where there is one, then until ``steps`` or ``size``.

        Up to ``steps`` steps and ``size`` bytes of bodies together. They stay until ``forget``. Waits for the disk:
        not for an event loop's thread. Raises ConfigurationError where the file can no longer be read.
        """
        with self._lock:
            return self._taken(after, steps, size)

    def take_at_once(self, *, after: int = 0, steps: int, size: int) -> list[Entry] | None:
        """As ``take``, but waits for nothing: None where ``take`` must wait for the disk."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._taken(after, steps, size) if self._file.in_memory else None
        finally:
            self._lock.release()

    def _taken(self, after: int, steps: int, size: int) -> list[Entry]:
        with self._state:
            arrived = frozenset(self._arrived)
        return self._file.take(after=after, steps=steps, size=size, without=arrived)

    def hand_back(self) -> None:
        """Nothing of what was taken and not forgotten has arrived: it counts as lost where it must give way."""
        self._file.taken = 0

    def forget(self, entries: Sequence[Entry]) -> None:
        """They have arrived, and are not taken again. Never waits: they are taken out of the file a moment later."""
        gave_way = self._file.gave_way
        with self._state:
            self._arrived.update((entry.seq, len(entry.body)) for entry in entries if entry.seq > gave_way)
            if not self._waiting:
                self._state.notify_all()

    @property
    def figures(self) -> SpoolFigures:
        """How it stands; waits for no disk."""
        with self._state:
            entries, size = self._on_disk
            # One of those that have arrived may give way just now.
            return SpoolFigures(
                max(entries - len(self._arrived), 0),
                max(size - sum(self._arrived.values()), 0),
                len(self._waiting),
                self._dropped,
                self._trouble,
            )

    def settle(self, timeout: float) -> bool:
        """Wait until all that was put is on disk, or was dropped; False where that takes longer."""
        with self._state:
            self._awaited += 1
            self._enough.notify_all()
            try:
                return self._state.wait_for(lambda: not self._waiting, timeout)
            finally:
                self._awaited -= 1

    def close(self, within: float = CLOSE_WITHIN) -> bool:
        """Write what waits, and let go of the file. False where the disk refused some of it. Safe to call again."""
        with self._state:
            self._closing = True
            self._state.notify_all()
            self._enough.notify_all()
        self._writer.join(within)
        with self._state:
            left = len(self._waiting)
            self._dropped += left
            self._waiting.clear()
            self._waiting_bytes = 0
        if not self._writer.is_alive():
            with self._lock:
                self._file.close()
        return not left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
