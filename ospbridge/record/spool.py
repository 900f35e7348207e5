"""Episodes on their way upstream, on disk until it is proven that they were read.

``put`` never waits: a thread of the spool's own gathers what was put for a moment and writes it, in order, each group
in one transaction. What was read with ``take`` stays until ``forget`` is told that it has arrived, also over the death
of the process. The file is an SQLite database with a write-ahead log, held by one process at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ospbridge.errors import ConfigurationError, OspBridgeError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CLOSE_WITHIN", "Entry", "Spool", "SpoolFigures", "WhenFull"]

APPLICATION_ID: Final = 0x4F535042
"""'OSPB', in the database's header: what `file` shows, and how another program's database is told from a spool."""
VERSION: Final = 1
DEFAULT_LIMIT: Final = 2 * 2**30
DEFAULT_UNWRITTEN: Final = 64 * 2**20
GATHER: Final = 0.05
"""Seconds that an entry waits for others behind it: a transaction for each would disturb whoever steps meanwhile."""
MUCH: Final = 2**20
"""Bytes that wait for no more."""
RETRY_AFTER: Final = 1.0
"""Seconds between tries to write while the disk refuses."""
BUSY_AFTER: Final = 0.2
"""Seconds for which another process may hold the file, before it counts as taken."""
CLOSE_WITHIN: Final = 10.0
"""Seconds for which ``close`` waits for what is not on disk yet."""

_REFUSED: Final = (sqlite3.Error, UnicodeDecodeError)
"""What the disk or the file says no with; a message about a damaged file may hold bytes of it that are no text."""
_SCHEMA: Final = """
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    steps INTEGER NOT NULL,
    body BLOB NOT NULL
)
"""


class WhenFull(StrEnum):
    """Who gives way when the limit is reached."""

    DROP_OLDEST = "drop-oldest"
    """What waits longest: the newest experience is worth most."""
    DROP_NEWEST = "drop-newest"
    """What is to be put."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One episode, or one fragment of it."""

    seq: int
    """Ascends in the order of ``put``, over restarts too."""
    key: str
    steps: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SpoolFigures:
    """How a spool stands."""

    entries: int
    """On disk."""
    bytes: int
    """Of their bodies."""
    unwritten: int
    """Entries that are not on disk yet."""
    dropped: int
    """Entries lost since the start, because the spool was full or the disk refused."""
    trouble: str
    """Why nothing can be written at present; empty where it can."""


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
        self.path = Path(path)
        self._limit = limit
        self._when_full = when_full
        self._unwritten = unwritten
        self._on_stored = on_stored
        self._entries = self._bytes = 0
        self._database = self._open()
        self._lock = threading.Lock()
        """Whose turn it is to use the database."""
        self._dropped = 0
        self._trouble = ""
        self._taken = 0
        """The highest ``seq`` that was handed out."""
        self._waiting: deque[tuple[str, int, bytes]] = deque()
        self._waiting_bytes = 0
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

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        database = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(
                self.path, timeout=BUSY_AFTER, check_same_thread=False, isolation_level=None
            )
            self._claim(database)
            self._entries, self._bytes = self._count(database)
        except (*_REFUSED, OSError, OspBridgeError) as error:
            if database is not None:
                database.close()
            raise error if isinstance(error, OspBridgeError) else self._cannot_open(error) from None
        return database

    def _claim(self, database: sqlite3.Connection) -> None:
        """Hold the file alone, and see that it is a spool."""
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("BEGIN IMMEDIATE")
        marks = tuple(
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if marks == (0, 0) and not tables:
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.execute(f"PRAGMA user_version={VERSION}")
        elif marks != (APPLICATION_ID, VERSION):
            raise ConfigurationError(
                f"{self.path} is no spool of this release: expected mark {APPLICATION_ID:#x} and version {VERSION}, "
                f"got {marks[0]:#x} and {marks[1]}",
                hint="name another file, or empty it with the release that wrote it",
            )
        database.execute("COMMIT")

    def _cannot_open(self, error: Exception) -> ConfigurationError:
        hint = "name a file in a directory that can be written to"
        if isinstance(error, _REFUSED):
            if "locked" in str(error):
                hint = "another process uses it: give each daemon a spool of its own (--rllink-spool FILE)"
            elif not isinstance(error, sqlite3.OperationalError):
                hint = "move the file away, a new one is made; `sqlite3 FILE .recover` may save what is in it"
        return ConfigurationError(f"the spool {self.path} cannot be opened: {error}", hint=hint)

    def _count(self, database: sqlite3.Connection) -> tuple[int, int]:
        entries, size = database.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM entry"
        ).fetchone()
        return int(entries), int(size)

    # --- in ----------------------------------------------------------------------------------------------------------

    def put(self, key: str, steps: int, body: bytes) -> bool:
        """Keep ``body``; never waits. An equal ``key`` that is still kept makes it nothing new.

        False where it had to be dropped at once, because the disk does not keep up.
        """
        with self._state:
            if self._closing or self._waiting_bytes + len(body) > self._unwritten:
                self._dropped += 1
                return False
            self._waiting.append((key, steps, body))
            self._waiting_bytes += len(body)
            if len(self._waiting) == 1:
                self._state.notify_all()
            elif self._waiting_bytes >= self._much:
                self._enough.notify_all()
            return True

    def _write_all(self) -> None:
        """The thread's life: write what waits until closed and nothing waits."""
        while True:
            with self._state:
                while not self._waiting and not self._closing:
                    self._state.wait()
                self._enough.wait_for(self._is_enough, GATHER)
                group = list(self._waiting)
                if not group:
                    return
            written = self._written(group)
            with self._state:
                if written:
                    for _, _, body in group:
                        self._waiting.popleft()
                        self._waiting_bytes -= len(body)
                elif self._closing:
                    return
                else:
                    self._state.wait_for(lambda: self._closing, RETRY_AFTER)
                self._state.notify_all()
            if written:
                self._on_stored()

    def _is_enough(self) -> bool:
        """Nothing more is waited for."""
        return self._closing or self._awaited > 0 or self._waiting_bytes >= self._much

    def _written(self, group: Sequence[tuple[str, int, bytes]]) -> bool:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                lost = sum(self._insert(*each) for each in group)
                self._database.execute("COMMIT")
            except _REFUSED as error:
                self._undo()
                self._trouble = f"cannot write to the spool {self.path}: {error}"
                self._entries, self._bytes = self._recount()
                return False
            self._trouble = ""
            self._dropped += lost
            return True

    def _undo(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def _recount(self) -> tuple[int, int]:
        try:
            return self._count(self._database)
        except _REFUSED:
            return self._entries, self._bytes

    def _insert(self, key: str, steps: int, body: bytes) -> int:
        """How many entries were lost for it."""
        lost = 0
        if self._database.execute("SELECT 1 FROM entry WHERE key = ?", (key,)).fetchone():
            return 0
        if self._bytes + len(body) > self._limit:
            if self._when_full is WhenFull.DROP_NEWEST or len(body) > self._limit:
                return 1
            lost = self._make_room(len(body))
        self._database.execute("INSERT INTO entry (key, steps, body) VALUES (?, ?, ?)", (key, steps, body))
        self._entries += 1
        self._bytes += len(body)
        return lost

    def _make_room(self, wanted: int) -> int:
        """How many entries were lost that nobody has been handed."""
        lost = 0
        with closing(
            self._database.execute("SELECT seq, coalesce(length(body), 0) FROM entry ORDER BY seq")
        ) as oldest:
            going = []
            for seq, size in oldest:
                if self._bytes + wanted <= self._limit:
                    break
                going.append((seq,))
                self._entries -= 1
                self._bytes -= size
                lost += seq > self._taken
        self._database.executemany("DELETE FROM entry WHERE seq = ?", going)
        return lost

    # --- out ---------------------------------------------------------------------------------------------------------

    def take(self, *, after: int = 0, steps: int, size: int) -> list[Entry]:
        """The oldest entries behind ``after``: at least one where there is one, then until ``steps`` or ``size``.

        Up to ``steps`` steps and ``size`` bytes of bodies together. They stay until ``forget``. Waits for the disk:
        not for an event loop's thread. Raises ConfigurationError where the file can no longer be read.
        """
        with self._lock:
            try:
                found = list(self._up_to(after, steps, size))
            except _REFUSED as error:
                raise ConfigurationError(
                    f"the spool {self.path} cannot be read: {error}",
                    hint="move the file away and start again; `sqlite3 FILE .recover` may save what is in it",
                ) from None
            if found:
                self._taken = max(self._taken, found[-1].seq)
            return found

    def _up_to(self, after: int, steps: int, size: int) -> Iterator[Entry]:
        rows = self._database.execute(
            "SELECT seq, key, steps, body FROM entry WHERE seq > ? ORDER BY seq", (after,)
        )
        with closing(rows):
            first = True
            for row in rows:
                entry = Entry(*row)
                if type(entry.steps) is not int or type(entry.body) is not bytes:
                    raise sqlite3.DatabaseError(f"entry {entry.seq} is damaged")
                steps -= entry.steps
                size -= len(entry.body)
                if not first and (steps < 0 or size < 0):
                    return
                yield entry
                first = False

    def hand_back(self) -> None:
        """Nothing of what was taken and not forgotten has arrived: it counts as lost where it must give way."""
        self._taken = 0

    def forget(self, entries: Sequence[Entry]) -> None:
        """They have arrived. Waits for the disk. Where it refuses, they are kept, and will be taken again."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                gone = size = 0
                for entry in entries:
                    found = self._database.execute("DELETE FROM entry WHERE seq = ?", (entry.seq,))
                    gone += found.rowcount
                    size += found.rowcount * len(entry.body)
                self._database.execute("COMMIT")
            except _REFUSED as error:
                self._undo()
                self._trouble = f"cannot write to the spool {self.path}: {error}"
                return
            self._entries -= gone
            self._bytes -= size

    @property
    def figures(self) -> SpoolFigures:
        """How it stands; waits for nobody."""
        return SpoolFigures(self._entries, self._bytes, len(self._waiting), self._dropped, self._trouble)

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
                self._database.close()
        return not left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
