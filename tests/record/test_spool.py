"""The spool: order, limits, restarts, refusing disks, damaged files."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.record.sizes import parse_size
from ospbridge.record.spool import EACH, Made, Spool, WhenFull
from ospbridge.record.spool_file import NoRoom, SpoolFile
from tests.cli.programs import until


@pytest.fixture(params=["in memory too", "on disk only"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where entries of spools are that have been written."""
    if request.param == "on disk only":
        monkeypatch.setattr("ospbridge.record.spool_recent.LARGEST", -1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spools wait neither long for more of what is put, nor for a disk that refuses."""
    monkeypatch.setattr("ospbridge.record.spool.GATHER", 0.005)
    monkeypatch.setattr("ospbridge.record.spool.GATHER_MANY", 0.01)
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)


ALL = 10**9


def put(spool: Spool, *names: str, size: int = 100) -> None:
    for name in names:
        assert spool.put(name, 10, name.encode().ljust(size, b"."))
    assert spool.settle(30)


def keys(spool: Spool, **limits: int) -> list[str]:
    return [entry.key for entry in spool.take(**{"steps": ALL, "size": ALL} | limits)]


def make(*names: str) -> list[Made]:
    return [Made(name, 10, b"body", f"content of {name}") for name in names]


def refused(*_: object) -> NoReturn:
    """In the place of what writes: a disk that refuses."""
    raise sqlite3.OperationalError("database or disk is full")


def while_written(monkeypatch: pytest.MonkeyPatch, *things: Callable[[], object]) -> None:
    """These happen once, at the end of the next transaction, in it."""
    insert, left = SpoolFile._insert_all, list(things)

    def insert_and_more(file: SpoolFile, entries: Sequence[Made]) -> NoRoom:
        found = insert(file, entries)
        while left:
            left.pop(0)()
        return found

    monkeypatch.setattr(SpoolFile, "_insert_all", insert_and_more)


both = pytest.mark.usefixtures("kept")


@both
def test_what_was_put_comes_out_in_order_and_stays_until_it_is_forgotten(tmp_path: Path) -> None:
    body = bytes(range(256)) * 100
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b", "c")
        # A key that is still kept is nothing new.
        put(spool, "a")
        assert keys(spool) == ["a", "b", "c"]
        spool.forget(spool.take(steps=20, size=ALL))
        assert keys(spool) == ["c"]
        assert (spool.figures.entries, spool.figures.bytes) == (1, 100)
        spool.put("d", 3, body)
        assert spool.settle(30)
        assert [(entry.steps, entry.body) for entry in spool.take(steps=ALL, size=ALL)[1:]] == [(3, body)]


@both
@pytest.mark.parametrize(
    "limits, taken", [({"steps": 25}, "ab"), ({"size": 250}, "ab"), ({"steps": 1, "size": 1}, "a")]
)
def test_a_batch_ends_before_its_limit_and_the_next_goes_on_behind_it(
    tmp_path: Path, limits: dict[str, int], taken: str
) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, *"abcd")
        assert keys(spool, **limits) == list(taken)
        first = spool.take(steps=10, size=ALL)
        assert keys(spool, after=first[-1].seq) == ["b", "c", "d"]


@both
def test_a_closed_spool_has_written_what_waited_and_is_found_again_with_all_it_held(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
        spool.forget(spool.take(steps=10, size=ALL))
        before = spool.take(steps=ALL, size=ALL)
        for at in range(200):
            spool.put(f"{at:03}", 1, b"x" * 1000)
        assert spool.close()
        assert spool.close()
    with Spool(tmp_path / "spool") as spool:
        assert spool.take(steps=10, size=ALL) == before
        put(spool, "c")
        assert keys(spool) == ["b", *(f"{at:03}" for at in range(200)), "c"]


def test_a_killed_process_leaves_all_that_was_on_disk(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from ospbridge.record.spool import Spool\n"
        f"spool = Spool({str(tmp_path / 'spool')!r})\n"
        "for at in range(50):\n"
        "    spool.put(f'{at:02}', 1, b'x' * 5000)\n"
        "assert spool.settle(60)\n"
        "print('settled', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "settled\n"
        with pytest.raises(ConfigurationError, match="locked") as caught:
            Spool(tmp_path / "spool")
        assert "another process uses it" in caught.value.hint
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    with Spool(tmp_path / "spool") as spool:
        assert keys(spool) == [f"{at:02}" for at in range(50)]


def test_what_is_made_later_is_made_once_by_the_spools_own_thread_and_kept_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(*names: str) -> list[Made]:
        made.append(threading.current_thread().name)
        return [Made(name, 1, b"body") for name in names]

    with Spool(tmp_path / "spool") as spool:
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_insert_all", refused)
            assert spool.put_made(8, lambda: make("a", "b"))
            assert spool.put_made(0, make)
            assert spool.put("c", 1, b"body")
            until(lambda: spool.figures.trouble and len(made) == 2)
        assert spool.settle(30)
        assert keys(spool) == ["a", "b", "c"]
        assert made == ["spool spool"] * 2


# --- in memory too ----------------------------------------------------------------------------------------------------


def taken(spool: Spool) -> list[tuple[str, object]] | None:
    found = spool.take_at_once(steps=ALL, size=ALL)
    return None if found is None else [(entry.key, entry.content) for entry in found]


def test_what_was_put_is_taken_without_the_disk_and_with_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(tmp_path / "spool", limit=12) as spool:
        assert taken(spool) == []
        spool.put_made(8, lambda: make("a", "b", "c", "d"))
        assert spool.settle(30)
        monkeypatch.setattr(SpoolFile, "_behind", refused)
        # The first one gave way.
        assert taken(spool) == [(name, f"content of {name}") for name in "bcd"]
        spool.forget(spool.take(steps=20, size=ALL))
        assert taken(spool) == [("d", "content of d")]


def test_what_was_there_before_is_read_from_the_disk_and_what_came_behind_it_as_well(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
    with Spool(tmp_path / "spool") as spool:
        assert taken(spool) is None
        spool.put_made(8, lambda: make("b", "c"))
        assert spool.settle(30)
        assert taken(spool) is None
        assert [entry.body[:4] for entry in spool.take(steps=ALL, size=ALL)] == [b"a...", b"b...", b"body"]
        spool.forget(spool.take(steps=20, size=ALL))
        spool.put_made(8, lambda: make("d"))
        assert spool.settle(30)
        assert taken(spool) is None
        spool.forget(spool.take(steps=20, size=ALL))
        put(spool, "e")
        assert taken(spool) == [("e", None)]


# --- what waits for the disk ------------------------------------------------------------------------------------------


def test_put_never_waits_for_the_disk_and_memory_stays_bounded(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", unwritten=350 + 3 * EACH) as spool:
        with spool._lock:
            taken = [spool.put(name, 1, b"x" * 100) for name in "abcd"]
            taken.append(spool.put_made(1001, lambda: make("e")))
        assert taken == [True, True, True, False, False]
        assert spool.settle(30)
        assert keys(spool) == ["a", "b", "c"]
        assert spool.figures.dropped == 2
        # Where nothing waits, anything fits.
        put(spool, "giant", size=100_000)
        assert keys(spool)[-1] == "giant"


# --- full -------------------------------------------------------------------------------------------------------------


@both
def test_the_oldest_gives_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b", "c", "d")
        assert keys(spool) == ["c", "d"]
        assert spool.figures.dropped == 2


@both
def test_the_newest_gives_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250, when_full=WhenFull.DROP_NEWEST) as spool:
        put(spool, "a", "b", "c", "d")
        assert keys(spool) == ["a", "b"]
        assert spool.figures.dropped == 2


@pytest.mark.parametrize("when_full", WhenFull)
def test_what_exceeds_the_limit_alone_or_is_there_already_drives_nothing_out(
    tmp_path: Path, when_full: WhenFull
) -> None:
    with Spool(tmp_path / "spool", limit=300, when_full=when_full) as spool:
        put(spool, "a", "b", "c")
        put(spool, "giant", size=301)
        put(spool, "a")
        put(spool, "c")
        assert keys(spool) == ["a", "b", "c"]
        figures = spool.figures
        assert (figures.entries, figures.bytes, figures.dropped) == (3, 300, 1)


NOT_ARRIVED: dict[str, Callable[[Spool], object]] = {
    "handed back": lambda spool: spool.hand_back(),
    "taken again": lambda spool: spool.take(steps=1, size=1),
    "not there at the end": lambda spool: spool.close(),
}


@both
@pytest.mark.parametrize("how", NOT_ARRIVED)
def test_what_gave_way_while_it_was_under_way_and_does_not_arrive_is_counted(
    tmp_path: Path, how: str
) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        first, _ = spool.take(steps=ALL, size=ALL)
        put(spool, *"cd")
        assert spool.figures.dropped == 0
        if how == "handed back":
            spool.forget([first])
        lost = 1 if how == "handed back" else 2
        NOT_ARRIVED[how](spool)
        assert spool.figures.dropped == lost
        spool.hand_back()
    assert (spool.figures.dropped, spool.figures.no_room) == (lost, lost)


# --- what it was lost to ----------------------------------------------------------------------------------------------


def test_a_refusing_disk_is_told_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
        fill(spool)
        spool.put("c", 1, b"x" * 100_000)
        until(lambda: "full" in spool.figures.trouble)
        assert str(tmp_path / "spool") in spool.figures.trouble
        # What has arrived is not taken again, though it cannot leave the file.
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_take_out", refused)
            spool.forget(spool.take(steps=10, size=ALL))
            assert keys(spool) == ["b"]
        with spool._lock:
            spool._file._database.execute("PRAGMA max_page_count=1000000")
        assert spool.settle(30)
        until(lambda: spool._file.entries == 2)
        assert keys(spool) == ["b", "c"]
        assert (spool.figures.trouble, spool.figures.entries, spool.figures.dropped) == ("", 2, 0)


def fill(spool: Spool) -> None:
    """The disk has no room from now on."""
    pages = spool._file._database.execute("PRAGMA page_count").fetchone()[0]
    spool._file._database.execute(f"PRAGMA max_page_count={pages}")


def test_closing_with_a_refusing_disk_ends_and_counts_what_is_lost(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    fill(spool)
    spool.put("b", 1, b"x" * 100_000)
    assert not spool.close()
    assert (spool.figures.dropped, spool.figures.refused) == (1, 1)


def test_closing_does_not_wait_longer_for_a_slow_disk_than_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    while_written(monkeypatch, partial(closed.wait, 60))
    spool = Spool(tmp_path / "spool")
    assert spool.put("a", 1, b"body")
    assert not spool.close(0.05)
    assert (spool.figures.dropped, spool.figures.too_slow) == (1, 1)
    closed.set()
    # Its thread ends in peace, although nothing waits of what it has written.
    assert spool.close(30)


def test_what_was_put_in_and_taken_back_again_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = SpoolFile._insert_all

    def refuse_in_the_end(file: SpoolFile, entries: Sequence[Made]) -> NoReturn:
        insert(file, entries)
        refused()

    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_insert_all", refuse_in_the_end)
            spool.forget(spool.take(steps=10, size=ALL))
            assert spool.put("c", 10, b"body")
            until(lambda: spool.figures.trouble)
            assert keys(spool) == ["b"]


# --- files that are damaged, of another kind, or gone --------------------------------------------------------------


BIG = 60_000
"""Bytes of a body that takes several pages."""


def damages(spool: Spool) -> dict[str, str]:
    return {entry.key: entry.damage for entry in spool.take(steps=ALL, size=ALL)}


def page_damaged(directory: Path) -> Path:
    """A spool of four entries, whose second has lost a page that names the next of its pages."""
    page = 4096

    def bend(data: bytes) -> bytes:
        at = data.index(b"b" * 4000) // page * page
        return data[:at] + b"\xff" * page + data[at + page :]

    return damaged(directory, bend, *"abcd", size=BIG, filling="")


def damaged(
    directory: Path, bend: Callable[[bytes], bytes], *names: str, size: int = 100, filling: str = "."
) -> Path:
    """A spool that holds episodes, closed, and then bent."""
    path = directory / "spool"
    with Spool(path) as spool:
        for name in names or "a":
            assert spool.put(name, 10, name.encode().ljust(size, (filling or name).encode()))
        assert spool.settle(30)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    bent = bend(path.read_bytes())
    assert bent != path.read_bytes()
    path.write_bytes(bent)
    return path


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("no database\n" * 100)
    with pytest.raises(ConfigurationError, match="cannot be opened") as caught:
        Spool(path)
    assert "move the file away" in caught.value.hint
    assert path.read_text().startswith("no database")


def test_a_database_of_another_program_and_a_newer_spool_are_refused(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").close()
    with closing(sqlite3.connect(tmp_path / "spool")) as later:
        later.execute("PRAGMA user_version=2")
    with pytest.raises(ConfigurationError, match="version 1, got 0x4f535042 and 2"):
        Spool(tmp_path / "spool")
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Spool(tmp_path / "spool" / "below a file")
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE people (name)")
    other.commit()
    other.close()
    with pytest.raises(ConfigurationError, match="is no spool of this release"):
        Spool(path)


def test_a_file_whose_entries_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda data: data[:4096] + b"\xff" * 4096 + data[8192:])
    with pytest.raises(ConfigurationError, match=r"cannot be opened.*malformed"):
        Spool(path)


@pytest.mark.parametrize("column, value", [("steps", "many"), ("body", "text"), ("body", 3)])
def test_an_entry_of_other_kinds_than_were_put_is_told_as_damage(
    tmp_path: Path, column: str, value: object
) -> None:
    path = tmp_path / "spool"
    with Spool(path) as spool:
        put(spool, "a", "b", "c")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE entry SET {column} = ? WHERE key = 'b'", (value,))
        database.commit()
    with Spool(path) as spool:
        assert damages(spool) == {"a": "", "b": "entry 2 of the spool is damaged", "c": ""}


def test_an_entry_whose_key_is_no_text_any_more_keeps_no_other_back(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda data: data.replace(b"bbbbbb", b"bb\xff\xffbb"), "a", "bbbbbb", "c")
    with Spool(path) as spool:
        assert keys(spool) == ["a", "bb\ufffd\ufffdbb", "c"]


@pytest.mark.parametrize("within", ["a transaction with others", "one of its own"])
def test_of_a_page_that_is_damaged_its_own_entry_is_lost_alone(tmp_path: Path, within: str) -> None:
    path = page_damaged(tmp_path)
    with Spool(path) as spool:
        assert [name for name, damage in damages(spool).items() if damage] == ["b"]
        for entries in (
            [spool.take(steps=ALL, size=ALL)[:3]]
            if within == "a transaction with others"
            else [[entry] for entry in spool.take(steps=ALL, size=ALL)[:3]]
        ):
            spool.forget(entries)
            until(lambda: not spool._arrived)
        assert keys(spool) == ["d"]
        put(spool, "e")
        assert keys(spool) == ["d", "e"]
        figures = spool.figures
        assert (figures.entries, figures.bytes, figures.dropped, figures.trouble) == (2, BIG + 100, 0, "")
    with Spool(path) as spool:
        assert [name for name, damage in damages(spool).items() if not damage] == ["d", "e"]


@pytest.mark.parametrize(
    "gone", ["its directory", "it alone", "replaced", "replaced by a spool in use before"]
)
def test_a_file_that_is_gone_from_its_path_is_made_anew_with_all_it_held(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "directory" / "spool"
    other = tmp_path / "other"
    with Spool(other) as spool:
        put(spool, *(["x", "y"] if "before" in gone else []))
    with Spool(path) as spool:
        put(spool, "a", "b", "c")
        first = spool.take(steps=10, size=ALL)
        if gone == "its directory":
            shutil.rmtree(path.parent)
        elif gone == "it alone":
            path.unlink()
        else:
            other.replace(path)
        put(spool, "d")
        spool.forget(first)
        expected = ["b", "c", *(["x", "y"] if "before" in gone else []), "d"]
        assert keys(spool) == expected
        assert (spool.figures.moved, spool.figures.dropped, spool.figures.trouble) == (1, 0, "")
        with pytest.raises(ConfigurationError, match="locked"):
            Spool(path)
    with Spool(path) as spool:
        assert keys(spool) == expected


def test_a_file_that_is_gone_is_noticed_though_nothing_is_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.LOOK_AFTER", 0.02)
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a")
        (tmp_path / "spool").unlink()
        until(lambda: spool.figures.moved)
        assert keys(spool) == ["a"]


# --- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, size",
    [("1", 1), ("512B", 512), ("2k", 2048), ("1.5 GiB", 3 * 2**29), (" 2GB ", 2**31), ("1T", 2**40)],
)
def test_a_number_with_a_unit_is_so_many_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "M", "1 X", "1e9", "0.5", "inf", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no size"):
        parse_size(text)
