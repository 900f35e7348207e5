"""Episodes on their way upstream, on disk until it is proven that they were read.

``put`` never waits: a thread of the spool's own gathers what was put for a moment and writes it, in order, each group
in one transaction. What was read with ``take`` stays until ``forget`` is told that it has arrived, also over the death
of the process. What is lost on the way is counted, by what it was lost to.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from ospbridge.errors import ConfigurationError
from ospbridge.record.spool_file import REFUSED, Entry, Made, NoRoom, SpoolFile, WhenFull

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["CLOSE_WITHIN", "Entry", "Made", "Spool", "SpoolFigures", "WhenFull"]

DEFAULT_LIMIT: Final = 2 * 2**30
DEFAULT_UNWRITTEN: Final = 256 * 2**20
"""Agents that step together may end together: so much of theirs finds room at once, however busy the disk is."""
EACH: Final = 4096
"""Bytes of what waits beside what is told of it, about: of short episodes that is most."""
WRITTEN_TOGETHER: Final = 8 * 2**20
"""Bytes of a group, unless one entry alone has more: for as long as it is written it takes three times its memory."""
GATHER: Final = 0.05
"""Seconds that an entry waits for others behind it: a transaction for each would disturb whoever steps meanwhile."""
MANY: Final = 4
"""Where so many came in that time, as of worlds that are much quicker than real, ..."""
GATHER_MANY: Final = 0.2
"""... they wait for so many seconds. So does what has arrived, until it is taken out."""
MUCH: Final = 2**20
"""Bytes that wait for no more."""
LOOK_AFTER: Final = 5.0
"""Seconds between looks whether the file is still there, while nothing is written."""
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
    no_room: int
    """Entries lost since the start: because the spool was full, ..."""
    too_slow: int
    """... because too much waited for a disk that took it, or did not take the last within the time for closing, ..."""
    refused: int
    """... or because too much waited for a disk that refused, or refused to the end."""
    trouble: str
    """Why nothing can be written at present; empty where it can."""
    moved: int = 0
    """How often the file was gone from its path, and was made anew there."""

    @property
    def dropped(self) -> int:
        """Entries lost since the start, to whatever."""
        return self.no_room + self.too_slow + self.refused


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
    more is dropped and counted, but where nothing waits, anything fits. ``on_stored`` is called, in the spool's own
    thread, when entries have come onto the disk. Raises ConfigurationError for a file that is no spool, is damaged, is
    held by another process, or cannot be made.
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
        self.found = self._file.newest
        """Up to this number entries are of a process before, which may have sent them; 0: none is."""
        self._limit = limit
        self._when_full = when_full
        self._unwritten = unwritten
        self._on_stored = on_stored
        self._lock = threading.Lock()
        """Whose turn it is to use the file; whoever has it may take ``_state``, and not the other way round."""
        self._on_disk = self._file.entries, self._file.bytes
        """As of the latest transaction."""
        self._no_room = self._too_slow = self._refused = 0
        """Entries that were lost."""
        self._trouble = ""
        self._moved = 0
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._arrived: dict[int, int] = {}
        """Numbers of entries that are to be taken out, and the lengths of their bodies."""
        self._under_way: set[int] = set()
        """Numbers of entries that were taken, and neither forgotten nor handed back."""
        self._gave_way = 0
        """The highest number that was taken out to make room, with all below it."""
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
            waiting = _Waiting(size + EACH, make)
            if self._closing or (self._waiting and self._waiting_bytes + waiting.size > self._unwritten):
                self._not_written(1)
                return False
            self._waiting.append(waiting)
            self._waiting_bytes += waiting.size
            if len(self._waiting) == 1:
                self._state.notify_all()
            elif self._waiting_bytes >= self._much:
                self._enough.notify_all()
            return True

    def _not_written(self, many: int) -> None:
        """So many are lost before they were on disk. ``_state`` is held."""
        if self._trouble:
            self._refused += many
        else:
            self._too_slow += many

    def _write_all(self) -> None:
        """The thread's life: write what waits until closed and nothing waits."""
        while True:
            with self._state:
                something = self._state.wait_for(self._is_something, LOOK_AFTER)
                enough = not something or self._enough.wait_for(self._is_enough, GATHER)
                if not enough and not 0 < len(self._waiting) < MANY:
                    self._enough.wait_for(self._is_enough, GATHER_MANY - GATHER)
                last = self._closing and not (self._waiting or self._arrived)
            if not self._write_waiting():
                with self._state:
                    if self._closing:
                        return
                    self._state.wait_for(lambda: self._closing, RETRY_AFTER)
            elif last:
                return

    def _is_something(self) -> bool:
        return bool(self._waiting or self._arrived or self._closing)

    def _is_enough(self) -> bool:
        """Nothing more is waited for."""
        return self._closing or self._awaited > 0 or self._waiting_bytes >= self._much

    def _write_waiting(self) -> bool:
        """Write the first of what waits at present; False where the disk refuses."""
        with self._state:
            group, arrived = self._group(), dict(self._arrived)
        entries = [entry for waiting in group for entry in waiting.entries()]
        with self._lock:
            try:
                if not self._file.place.kept:
                    self._move()
                no_room = self._file.write(entries, arrived) if entries or arrived else NoRoom(0, 0, 0)
            except (*REFUSED, OSError, ConfigurationError) as error:
                with self._state:
                    self._trouble = f"cannot write to the spool {self.path}: {error}"
                    self._on_disk = self._file.entries, self._file.bytes
                return False
            with self._state:
                self._trouble = ""
                self._on_disk = self._file.entries, self._file.bytes
                # Whoever closes may have given them up meanwhile.
                for waiting in group if self._waiting else ():
                    self._waiting.popleft()
                    self._waiting_bytes -= waiting.size
                for seq in arrived:
                    del self._arrived[seq]
                self._count(no_room)
                self._state.notify_all()
        if group:
            self._on_stored()
        return True

    def _move(self) -> None:
        """The file is gone from its path: go on with one there, which gets what this one has. ``_lock`` is held.

        Until that has come about nothing is written, since it would be lost with this process.
        """
        old = self._file
        old.place.leave()
        file = SpoolFile(self.path, limit=self._limit, when_full=self._when_full)
        try:
            untold = file.bring_over(old)
        except BaseException:
            file.close()
            raise
        self._file = file
        old.close()
        with self._state:
            self._refused += untold
            self._moved += 1

    def _group(self) -> list[_Waiting]:
        """The first of what waits, as much as is written together. ``_state`` is held."""
        group: list[_Waiting] = []
        size = 0
        for waiting in self._waiting:
            size += waiting.size
            if group and size > WRITTEN_TOGETHER:
                break
            group.append(waiting)
        return group

    def _count(self, no_room: NoRoom) -> None:
        """What found no room is lost, but for what has arrived or may yet. ``_state`` is held.

        Counted behind the transaction: others forget and hand back while it runs, and it may come to nothing.
        """
        self._no_room += no_room.turned_away
        if no_room.gave_way:
            arrived = [seq for seq in self._arrived if seq <= no_room.up_to]
            for seq in arrived:
                del self._arrived[seq]
            under_way = sum(self._gave_way < seq <= no_room.up_to for seq in self._under_way)
            self._no_room += no_room.gave_way - len(arrived) - under_way
            self._gave_way = no_room.up_to

    # --- out ---------------------------------------------------------------------------------------------------------

    def take(self, *, after: int = 0, steps: int, size: int) -> list[Entry]:
        """The oldest entries behind ``after``: at least one where there is one, then until ``steps`` or ``size``.

        Up to ``steps`` steps and ``size`` bytes of bodies together. They stay until ``forget``. What was taken behind
        ``after`` before is handed back. Waits for the disk: not for an event loop's thread. Raises ConfigurationError
        where the file can no longer be read.
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
        found = self._file.take(after=after, steps=steps, size=size, without=arrived)
        with self._state:
            self._hand_back(after)
            self._under_way.update(entry.seq for entry in found)
        return found

    def hand_back(self) -> None:
        """Nothing of what was taken and not forgotten has arrived: what gave way, or does from now on, is lost."""
        with self._state:
            self._hand_back(0)

    def _hand_back(self, after: int) -> None:
        """What was taken behind ``after`` is under way no more. ``_state`` is held."""
        back = {seq for seq in self._under_way if seq > after}
        self._no_room += sum(seq <= self._gave_way for seq in back)
        self._under_way -= back

    def forget(self, entries: Sequence[Entry]) -> None:
        """They have arrived, and are not taken again. Never waits: they are taken out of the file a moment later."""
        with self._state:
            self._under_way.difference_update(entry.seq for entry in entries)
            self._arrived.update(
                (entry.seq, len(entry.body)) for entry in entries if entry.seq > self._gave_way
            )
            if not self._waiting:
                self._state.notify_all()

    @property
    def figures(self) -> SpoolFigures:
        """How it stands; waits for no disk."""
        with self._state:
            entries, size = self._on_disk
            # A disk that refuses may refuse to be counted too.
            return SpoolFigures(
                max(entries - len(self._arrived), 0),
                max(size - sum(self._arrived.values()), 0),
                len(self._waiting),
                self._no_room,
                self._too_slow,
                self._refused,
                self._trouble,
                self._moved,
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
        """Write what waits, and let go of the file. False where the disk did not take all of it. Safe to call again.

        What was taken and not forgotten is handed back. A file that somebody still waits for is left to the end of the
        process.
        """
        give_up = monotonic() + within
        with self._state:
            self._closing = True
            self._state.notify_all()
            self._enough.notify_all()
        self._writer.join(within)
        with self._state:
            left = len(self._waiting)
            self._not_written(left)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._hand_back(0)
        if not self._writer.is_alive() and self._lock.acquire(timeout=max(give_up - monotonic(), 0.0)):
            try:
                self._file.close()
            finally:
                self._lock.release()
        return not left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
