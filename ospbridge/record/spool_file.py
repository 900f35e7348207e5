"""The file of a spool: an SQLite database with a write-ahead log, held by one process at a time.

Whoever calls waits for the disk, and does so from one thread at a time.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ospbridge.errors import ConfigurationError, OspBridgeError
from ospbridge.record.spool_recent import Entry, Made, Recent

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Generator, Iterable, Iterator, Sequence

__all__ = ["REFUSED", "Entry", "Made", "NoRoom", "Place", "SpoolFile", "StuckError", "WhenFull", "is_damage"]


class Place:
    """Of the database ``path``, which has just been opened, and of its log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = Path(f"{path}-wal")
        self._was = _what(self._path), _what(self._log)

    @property
    def kept(self) -> bool:
        """The path leads to it."""
        return _what(self._path) == self._was[0]

    def leave(self) -> None:
        """Take the log away that was left here: SQLite would read it into whatever database comes to the path."""
        if self._was[1] is not None and _what(self._log) == self._was[1]:
            self._log.unlink()


def _what(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


class StuckError(sqlite3.DatabaseError):
    """One of these entries, or what leads to them, is damaged, and cannot be taken out for that."""

    def __init__(self, first: int, last: int, why: sqlite3.Error) -> None:
        super().__init__(str(why))
        self.first = first
        self.last = last


def is_damage(error: sqlite3.Error) -> bool:
    """Of the file, and not of the moment, as of a disk that is full or away."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF == sqlite3.SQLITE_CORRUPT


APPLICATION_ID: Final = 0x4F535042
"""'OSPB', in the database's header: what `file` shows, and how another program's database is told from a spool."""
VERSION: Final = 1
BUSY_AFTER: Final = 0.2
"""Seconds for which another process may hold the file, before it counts as taken."""
REFUSED: Final = (sqlite3.Error, UnicodeDecodeError)
"""What the disk or the file says no with; a message about a damaged file may hold bytes of it that are no text."""
AT_ONCE: Final = 100
"""Entries of one statement."""
_INSERT: Final = "INSERT INTO entry (key, steps, body) VALUES (?, ?, ?)"
_ONE_MORE: Final = ", (?, ?, ?)"
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


class NoRoom(NamedTuple):
    """What became of entries for lack of room."""

    turned_away: int
    """So many were not put in, or were to give way, and are passed over."""
    gave_way: int
    """So many were taken out, ..."""
    up_to: int
    """... all there were up to this number. 0 where none was."""


class SpoolFile:
    """The file ``path``, made where there is none; ``limit``: bytes of bodies.

    Raises ConfigurationError for a file that is no spool, is damaged, is held by another process, or cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int, when_full: WhenFull) -> None:
        self.path = Path(path)
        self.entries = self.bytes = 0
        """What is in it, and the length of the bodies."""
        self._limit = limit
        self._when_full = when_full
        self._recent = Recent()
        self._stuck: dict[int, int] = {}
        """Damaged entries that cannot be taken out, and the lengths of their bodies: passed over as if they were."""
        self.newest = 0
        """The number of the latest entry when it was opened; 0: there was none."""
        self._database = self._open()
        self.place = Place(self.path)

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        database = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(
                self.path, timeout=BUSY_AFTER, check_same_thread=False, isolation_level=None
            )
            self._claim(database)
            self.entries, self.bytes = self._count(database)
            ((self.newest,),) = database.execute("SELECT coalesce(max(seq), 0) FROM entry")
        except (*REFUSED, OSError, OspBridgeError) as error:
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
        if isinstance(error, REFUSED):
            if "locked" in str(error):
                hint = "another process uses it: give each daemon a spool of its own (--rllink-spool FILE)"
            elif not isinstance(error, sqlite3.OperationalError):
                hint = "move the file away, a new one is made; `sqlite3 FILE .recover` may save what is in it"
        return ConfigurationError(f"the spool {self.path} cannot be opened: {error}", hint=hint)

    def _count(self, database: sqlite3.Connection) -> tuple[int, int]:
        entries, size = database.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM entry"
        ).fetchone()
        return int(entries) - len(self._stuck), int(size) - sum(self._stuck.values())

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, entries: Sequence[Made], gone: Iterable[int]) -> NoRoom:
        """Take out those of the numbers ``gone``, and put ``entries`` in, all or nothing.

        A damaged one that cannot be taken out is passed over as if it were. Raises one of ``REFUSED``; nothing is
        changed then.
        """
        gone = list(gone)
        before = set(self._stuck).union(gone)
        while True:
            try:
                no_room = self._written(entries, gone)
            except StuckError as error:
                if not self._pass_over(error.first, error.last):
                    raise
            else:
                return no_room._replace(turned_away=no_room.turned_away + len(self._stuck.keys() - before))

    def _written(self, entries: Sequence[Made], gone: Sequence[int]) -> NoRoom:
        """As ``write``, where nothing is in the way."""
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            for first, last in _ranges(sorted(seq for seq in gone if seq not in self._stuck)):
                self._take_out(first, last)
            no_room = self._insert_all(entries)
            database.execute("COMMIT")
        except REFUSED:
            if database.in_transaction:
                database.execute("ROLLBACK")
            self._recent.forget()
            self.entries, self.bytes = self._recount()
            raise
        return no_room

    def _take_out(self, first: int, last: int) -> None:
        """Those from ``first`` to ``last``, as far as they are there."""
        within = (first, last)
        size = self._database.execute(
            "SELECT coalesce(sum(length(body)), 0) FROM entry WHERE seq BETWEEN ? AND ?", within
        ).fetchone()[0]
        try:
            done = self._database.execute("DELETE FROM entry WHERE seq BETWEEN ? AND ?", within)
        except sqlite3.DatabaseError as error:
            raise StuckError(first, last, error) if is_damage(error) else error from None
        self.entries -= done.rowcount
        self.bytes -= size
        for seq in range(first, last + 1):
            self._recent.left(seq)

    def _pass_over(self, first: int, last: int) -> bool:
        """From now on, those that are damaged; False where none of these numbers is."""
        rows = self._database.execute(
            "SELECT seq, length(body) FROM entry WHERE seq BETWEEN ? AND ?", (first, last)
        )
        found = {seq: size for seq, size in rows if seq not in self._stuck and self._body(seq)[1]}
        self._stuck.update(found)
        self.entries -= len(found)
        self.bytes -= sum(found.values())
        return bool(found)

    def _recount(self) -> tuple[int, int]:
        try:
            return self._count(self._database)
        except REFUSED:
            return self.entries, self.bytes

    def _insert_all(self, entries: Sequence[Made]) -> NoRoom:
        turned_away = gave_way = up_to = 0
        for begin in range(0, len(entries), AT_ONCE):
            some = entries[begin : begin + AT_ONCE]
            size = sum(len(made.body) for made in some)
            if self.bytes + size > self._limit:
                for found in map(self._insert, some):
                    turned_away += found.turned_away
                    gave_way += found.gave_way
                    up_to = max(up_to, found.up_to)
                continue
            # Python waits for its lock behind each statement, and so does whoever steps meanwhile.
            done = self._database.execute(
                _INSERT + _ONE_MORE * (len(some) - 1) + " ON CONFLICT (key) DO NOTHING",
                [value for made in some for value in made[:3]],
            )
            if done.rowcount == len(some):
                self.entries += len(some)
                self.bytes += size
                # SQLite numbers the rows of one statement without gaps where nothing is in its way.
                self._recent.came(some, _last(done))
            else:
                # Which of them were new nobody says: these are on the disk alone.
                self.entries, self.bytes = self._count(self._database)
        return NoRoom(turned_away, gave_way, up_to)

    def _insert(self, made: Made) -> NoRoom:
        key, steps, body, _ = made
        no_room = NoRoom(0, 0, 0)
        if self._database.execute("SELECT 1 FROM entry WHERE key = ?", (key,)).fetchone():
            return no_room
        if self.bytes + len(body) > self._limit:
            if self._when_full is WhenFull.DROP_NEWEST or len(body) > self._limit:
                return NoRoom(1, 0, 0)
            no_room = self._make_room(len(body))
        done = self._database.execute(_INSERT, (key, steps, body))
        self.entries += 1
        self.bytes += len(body)
        self._recent.came([made], _last(done))
        return no_room

    def _make_room(self, wanted: int) -> NoRoom:
        with closing(
            self._database.execute("SELECT seq, coalesce(length(body), 0) FROM entry ORDER BY seq")
        ) as oldest:
            going = []
            left = self.bytes
            for seq, size in oldest:
                if left + wanted <= self._limit:
                    break
                if seq not in self._stuck:
                    going.append(seq)
                    left -= size
        for first, last in _ranges(going):
            self._take_out(first, last)
        return NoRoom(0, len(going), going[-1] if going else 0)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def in_memory(self) -> bool:
        """All that is in the file is in memory too: ``take`` waits for no disk."""
        return len(self._recent) == self.entries

    def take(self, *, after: int, steps: int, size: int, without: Container[int]) -> list[Entry]:
        """The oldest entries behind ``after``: at least one where there is one, then until ``steps`` or ``size``.

        Up to ``steps`` steps and ``size`` bytes of bodies together, and none of the numbers ``without``. A damaged one
        says so. Raises ConfigurationError where not even the first can be found.
        """
        if self.in_memory:
            return list(_up_to(self._recent.behind(after), steps, size, without))
        if not self._stuck:
            with suppress(*REFUSED), closing(self._behind(after)) as entries:
                return list(_up_to(entries, steps, size, without))
        found: list[Entry] = []
        try:
            with closing(self._one_by_one(after)) as entries:
                found.extend(_up_to(entries, steps, size, without))
        except REFUSED as error:
            # What is in front of it is sound.
            if found:
                return found
            raise ConfigurationError(
                f"the spool {self.path} cannot be read: {error}",
                hint="move the file away and start again; `sqlite3 FILE .recover` may save what is in it",
            ) from None
        return found

    def _behind(self, after: int) -> Generator[Entry]:
        """Entries, from the disk, as quick as it goes: a single damaged one ends it."""
        rows = self._database.execute(
            "SELECT seq, key, steps, body FROM entry WHERE seq > ? ORDER BY seq", (after,)
        )
        with closing(rows):
            for row in rows:
                entry = Entry(*row)
                if type(entry.steps) is not int or type(entry.body) is not bytes:
                    raise sqlite3.DatabaseError(f"entry {entry.seq} is damaged")
                yield entry

    def _one_by_one(self, after: int) -> Generator[Entry]:
        """Entries, from the disk, each body by itself: one that cannot be read spoils no other."""
        # Of a key that is no text any more Python would make an error.
        rows = self._database.execute(
            "SELECT seq, CAST(key AS BLOB), steps FROM entry WHERE seq > ? ORDER BY seq", (after,)
        )
        with closing(rows):
            for seq, key, steps in rows:
                if seq not in self._stuck:
                    yield self._entry(seq, key, steps)

    def _entry(self, seq: int, key: object, steps: object) -> Entry:
        name = key.decode("utf-8", "replace") if type(key) is bytes else ""
        body, why = self._body(seq)
        if type(steps) is int and type(body) is bytes:
            return Entry(seq, name, steps, body)
        damage = f"entry {seq} of the spool is damaged" + (why and f": {why}")
        return Entry(seq, name, steps if type(steps) is int else 0, b"", damage=damage)

    def _body(self, seq: int) -> tuple[object, str]:
        """What an entry has for a body, or why the file no longer tells it."""
        try:
            row = self._database.execute("SELECT body FROM entry WHERE seq = ?", (seq,)).fetchone()
        except UnicodeDecodeError as error:
            return None, str(error)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return None, str(error)
        # Where keys are damaged a number may lead to no entry, though one goes by it.
        return (row[0], "") if row is not None else (None, "it is not found by its number")

    def bring_over(self, other: SpoolFile) -> int:
        """What ``other`` has, under its numbers, before what is here; all or nothing. Returns how many it has not told.

        A damaged entry comes without its body.
        """
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        ((last,),) = other._database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence")
        ((most,),) = database.execute("SELECT coalesce(max(seq), 0) FROM entry")
        # In one go a number might meet one that is still to change.
        database.execute("UPDATE entry SET seq = -seq")
        database.execute("UPDATE entry SET seq = ? - seq", (last,))
        database.execute("DELETE FROM sqlite_sequence")
        database.execute("INSERT INTO sqlite_sequence VALUES ('entry', ?)", (last + most,))
        after = told = 0
        with suppress(ConfigurationError):
            while some := other.take(after=after, steps=AT_ONCE * 10**6, size=AT_ONCE * 10**5, without=()):
                database.executemany("INSERT OR IGNORE INTO entry VALUES (?, ?, ?, ?)", [e[:4] for e in some])
                after = some[-1].seq
                told += len(some)
        self.entries, self.bytes = self._count(database)
        database.execute("COMMIT")
        return other.entries - told

    def close(self) -> None:
        """Let go of it."""
        self._database.close()


def _up_to(entries: Iterable[Entry], steps: int, size: int, without: Container[int]) -> Iterator[Entry]:
    first = True
    for entry in entries:
        if entry.seq in without:
            continue
        steps -= entry.steps
        size -= len(entry.body)
        if not first and (steps < 0 or size < 0):
            return
        yield entry
        first = False


def _last(inserted: sqlite3.Cursor) -> int:
    assert inserted.lastrowid is not None
    return inserted.lastrowid


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as first and last of those that follow each other."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
