"""The spool: order, limits, restarts, refusing disks."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.record.spool import EACH, MANY, Entry, Made, Spool, WhenFull
from ospbridge.record.spool_file import NoRoom, SpoolFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ALL = 10**9
LARGEST = 8 * 2**20
"""Bytes that an episode may take while it goes on and nobody records it, daemon.relay.observing.LARGEST."""


@pytest.fixture(params=["in memory too", "on disk only"], autouse=True)
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where entries are that have been written."""
    if request.param == "on disk only":
        monkeypatch.setattr("ospbridge.record.spool_recent.LARGEST", -1)


def put(spool: Spool, *names: str, steps: int = 10, size: int = 100) -> None:
    for name in names:
        assert spool.put(name, steps, name.encode().ljust(size, b"."))
    assert spool.settle(10)


def keys(spool: Spool, **limits: int) -> list[str]:
    return [entry.key for entry in spool.take(**{"steps": ALL, "size": ALL} | limits)]


def test_what_was_put_comes_out_in_order_and_stays_until_it_is_forgotten(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b", "c")
        assert keys(spool) == ["a", "b", "c"]
        spool.forget(spool.take(steps=20, size=ALL))
        assert keys(spool) == ["c"]
        assert (spool.figures.entries, spool.figures.bytes) == (1, 100)


def test_bodies_are_kept_byte_for_byte(tmp_path: Path) -> None:
    body = bytes(range(256)) * 100
    with Spool(tmp_path / "spool") as spool:
        spool.put("a", 3, body)
        assert spool.settle(10)
        (entry,) = spool.take(steps=1, size=1)
        assert (entry.steps, entry.body) == (3, body)


@pytest.mark.parametrize("limits", [{"steps": 25}, {"size": 250}])
def test_a_batch_ends_before_its_limit(tmp_path: Path, limits: dict[str, int]) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b", "c", "d")
        assert keys(spool, **limits) == ["a", "b"]


def test_an_entry_above_every_limit_still_comes_out_alone(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
        assert keys(spool, steps=1, size=1) == ["a"]


def test_the_next_batch_goes_on_behind_the_one_under_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b", "c")
        first = spool.take(steps=10, size=ALL)
        assert keys(spool, after=first[-1].seq) == ["b", "c"]


def test_a_key_that_is_still_kept_is_nothing_new(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "a")
        assert keys(spool) == ["a"]
        assert (spool.figures.entries, spool.figures.bytes) == (1, 100)


def test_a_closed_spool_is_found_again_with_all_it_held(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
        spool.forget(spool.take(steps=10, size=ALL))
        before = spool.take(steps=ALL, size=ALL)
    with Spool(tmp_path / "spool") as spool:
        assert spool.take(steps=ALL, size=ALL) == before
        put(spool, "c")
        assert keys(spool) == ["b", "c"]


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for at in range(500):
        spool.put(f"{at:03}", 1, b"x" * 1000)
    assert spool.close()
    assert spool.close()
    with Spool(tmp_path / "spool") as again:
        assert keys(again) == [f"{at:03}" for at in range(500)]


def test_what_is_made_later_is_made_once_by_the_spools_own_thread_and_kept_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
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
            assert not spool.settle(0.2)
        assert spool.settle(10)
        assert keys(spool) == ["a", "b", "c"]
        assert made == ["spool spool"] * 2


def refused(*_: object) -> NoReturn:
    raise sqlite3.OperationalError("database or disk is full")


def taken(spool: Spool) -> list[tuple[str, object]] | None:
    found = spool.take_at_once(steps=ALL, size=ALL)
    return None if found is None else [(entry.key, entry.content) for entry in found]


def make(*names: str) -> list[Made]:
    return [Made(name, 10, b"body", f"content of {name}") for name in names]


class TestInMemoryToo:
    @pytest.fixture(autouse=True)
    def kept(self) -> None:
        """All of these are about what is."""

    def test_what_was_put_is_taken_without_the_disk_and_with_its_content(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Spool(tmp_path / "spool") as spool:
            assert taken(spool) == []
            spool.put_made(8, lambda: make("a", "b", "c"))
            assert spool.settle(10)
            monkeypatch.setattr(SpoolFile, "_behind", refused)
            assert taken(spool) == [(name, f"content of {name}") for name in "abc"]
            spool.forget(spool.take(steps=20, size=ALL))
            assert taken(spool) == [("c", "content of c")]

    def test_what_was_there_before_is_read_from_the_disk_and_what_came_behind_it_as_well(
        self, tmp_path: Path
    ) -> None:
        with Spool(tmp_path / "spool") as spool:
            put(spool, "a", "b")
        with Spool(tmp_path / "spool") as spool:
            assert taken(spool) is None
            spool.put_made(8, lambda: make("c"))
            assert spool.settle(10)
            assert taken(spool) is None
            assert keys(spool) == ["a", "b", "c"]
            spool.forget(spool.take(steps=20, size=ALL))
            spool.put_made(8, lambda: make("d"))
            assert spool.settle(10)
            assert taken(spool) == [("c", "content of c"), ("d", "content of d")]

    @pytest.mark.parametrize("limit", [("MOST", 3), ("LARGEST", 12)])
    def test_what_is_too_much_for_the_memory_is_on_the_disk_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, int]
    ) -> None:
        monkeypatch.setattr(f"ospbridge.record.spool_recent.{limit[0]}", limit[1])
        with Spool(tmp_path / "spool") as spool:
            for names in ("abc", "d", "e"):
                spool.put_made(8, partial(make, *names))
                assert spool.settle(10)
                assert (taken(spool) is None) == (names != "abc")
                if names == "d":
                    monkeypatch.undo()
            assert keys(spool) == ["a", "b", "c", "d", "e"]
            spool.forget(spool.take(steps=40, size=ALL))
            put(spool, "f")
            assert taken(spool) == [("e", "content of e"), ("f", None)]

    def test_an_entry_that_was_there_already_is_not_mistaken_for_a_new_one(self, tmp_path: Path) -> None:
        with Spool(tmp_path / "spool") as spool:
            put(spool, "a", "b")
            spool.put_made(8, lambda: make("b", "c"))
            assert spool.settle(10)
            assert [entry.body[:4] for entry in spool.take(steps=ALL, size=ALL)] == [
                b"a...",
                b"b...",
                b"body",
            ]

    def test_what_was_put_in_and_taken_back_again_is_not_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
                assert not spool.settle(0.2)
                assert keys(spool) == ["b"]

    def test_what_gave_way_to_others_is_not_taken(self, tmp_path: Path) -> None:
        with Spool(tmp_path / "spool", limit=10) as spool:
            spool.put_made(8, lambda: make("a", "b", "c"))
            assert spool.settle(10)
            assert taken(spool) == [("b", "content of b"), ("c", "content of c")]


def test_what_is_too_much_to_be_made_later_is_dropped_and_counted(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", unwritten=1000) as spool:
        with spool._lock:
            assert spool.put("a", 1, b"body")
            assert not spool.put_made(1001, lambda: [Made("b", 1, b"body")])
        assert spool.settle(10)
        assert keys(spool) == ["a"]
        assert spool.figures.dropped == 1


def test_where_nothing_waits_anything_fits(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", unwritten=1000) as spool:
        put(spool, "a", size=2000)
        put(spool, "b", size=2000)
        assert keys(spool) == ["a", "b"]
        assert spool.figures.dropped == 0


def test_of_the_smallest_no_more_wait_than_memory_holds(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", unwritten=2**20) as spool, spool._lock:
        waiting = sum(spool.put(f"{at}", 1, b"x") for at in range(2000))
    assert 100 < waiting < 1000


def test_what_thirty_agents_end_in_one_step_finds_room_while_the_disk_is_busy(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        with spool._lock:
            for at in range(30):
                assert spool.put_made(LARGEST, partial(make, f"{at:02}"))
        assert spool.settle(10)
        assert keys(spool) == [f"{at:02}" for at in range(30)]
        assert spool.figures.dropped == 0


def test_much_is_written_in_groups_and_no_more_is_made_than_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: threading.Semaphore
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
    monkeypatch.setattr("ospbridge.record.spool.WRITTEN_TOGETHER", 2000 + 2 * EACH)
    made: list[str] = []

    def note(name: str) -> list[Made]:
        made.append(name)
        return make(name)

    with Spool(tmp_path / "spool", on_stored=stored.release) as spool:
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_insert_all", refused)
            for name, size in (("a", 1000), ("b", 1000), ("c", 5000), ("d", 100)):
                assert spool.put_made(size, partial(note, name))
            assert not spool.settle(0.2)
            assert made == ["a", "b"]
        assert spool.settle(10)
        assert keys(spool) == made == ["a", "b", "c", "d"]
    assert sum(stored.acquire(blocking=False) for _ in range(9)) == 3


def test_what_was_forgotten_is_neither_taken_nor_counted_and_leaves_the_file_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.GATHER_MANY", 50.0)
    file = tmp_path / "spool"
    with Spool(file) as spool:
        put(spool, "a", "b", "c", "d")
        first, second, third, _ = spool.take(steps=ALL, size=ALL)
        spool.forget([first, third])
        assert keys(spool) == ["b", "d"]
        assert (spool.figures.entries, spool.figures.bytes) == (2, 200)
        assert spool._file.entries == 4
        spool.forget([second])
        assert keys(spool) == ["d"]
    with closing(sqlite3.connect(file)) as database:
        assert [name for (name,) in database.execute("SELECT key FROM entry")] == ["d"]


def test_what_was_forgotten_is_taken_out_with_what_comes(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=350) as spool:
        put(spool, "a", "b", "c")
        spool.forget(spool.take(steps=20, size=ALL))
        # There is room for it: nothing gives way.
        put(spool, "d", "e")
        assert keys(spool) == ["c", "d", "e"]
        assert spool._file.entries == 3
        assert spool.figures.dropped == 0


def test_between_what_was_forgotten_nothing_is_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "spool"
    with Spool(file) as spool:
        put(spool, *"abcdefg")
        spool.forget([entry for entry in spool.take(steps=ALL, size=ALL) if entry.key in "acdg"])
        put(spool, "h")
        assert spool._file.entries == 4
        assert keys(spool) == ["b", "e", "f", "h"]
        assert (spool.figures.entries, spool.figures.bytes) == (4, 400)
    with Spool(file) as again:
        assert keys(again) == ["b", "e", "f", "h"]


def test_forgetting_survives_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
    monkeypatch.setattr("ospbridge.record.spool.GATHER_MANY", 0.06)
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a", "b")
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_take_out", refused)
            spool.forget(spool.take(steps=10, size=ALL))
            until(lambda: spool.figures.trouble)
            assert keys(spool) == ["b"]
        until(lambda: not spool.figures.trouble and spool._file.entries == 1)
        assert keys(spool) == ["b"]


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


# --- gathering -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored() -> threading.Semaphore:
    """Released with each group that was written."""
    return threading.Semaphore(0)


def test_what_is_put_within_a_moment_is_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: threading.Semaphore
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.GATHER", 0.3)
    with Spool(tmp_path / "spool", on_stored=stored.release) as spool:
        for key in "abcde":
            spool.put(key, 1, b"body")
        assert stored.acquire(timeout=10)
        assert keys(spool) == list("abcde")
        assert not stored.acquire(blocking=False)


def test_many_are_waited_for_longer_than_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: threading.Semaphore
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.GATHER", 0.01)
    monkeypatch.setattr("ospbridge.record.spool.GATHER_MANY", 50.0)
    with Spool(tmp_path / "spool", on_stored=stored.release) as spool:
        spool.put("few", 1, b"body")
        assert stored.acquire(timeout=10)
        for at in range(MANY):
            spool.put(f"many {at}", 1, b"body")
        assert not stored.acquire(timeout=0.2)
        assert spool.settle(10)


@pytest.mark.parametrize("hurry", ["much of it", "settling", "closing"])
def test_it_waits_for_no_more_where_it_is_wanted_or_much(
    hurry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: threading.Semaphore
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.GATHER", 50.0)
    with Spool(tmp_path / "spool", unwritten=1000 + 4 * EACH, on_stored=stored.release) as spool:
        spool.put("a", 1, bytes(200))
        assert not stored.acquire(timeout=0.05)
        if hurry == "much of it":
            spool.put("b", 1, bytes(400))
        elif hurry == "settling":
            assert spool.settle(10)
        else:
            assert spool.close(10)
        assert stored.acquire(timeout=10)


def test_the_oldest_gives_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b", "c", "d")
        assert keys(spool) == ["c", "d"]
        assert spool.figures.dropped == 2


def test_the_newest_gives_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250, when_full=WhenFull.DROP_NEWEST) as spool:
        put(spool, "a", "b", "c", "d")
        assert keys(spool) == ["a", "b"]
        assert spool.figures.dropped == 2


@pytest.mark.parametrize("when_full", WhenFull)
def test_what_exceeds_the_limit_alone_drives_nothing_out(tmp_path: Path, when_full: WhenFull) -> None:
    with Spool(tmp_path / "spool", limit=250, when_full=when_full) as spool:
        put(spool, "a")
        put(spool, "giant", size=251)
        assert keys(spool) == ["a"]
        assert spool.figures.dropped == 1


@pytest.mark.parametrize("when_full", WhenFull)
@pytest.mark.parametrize("again", ["a", "c"])
def test_what_a_full_spool_has_already_drives_nothing_out(
    tmp_path: Path, when_full: WhenFull, again: str
) -> None:
    with Spool(tmp_path / "spool", limit=300, when_full=when_full) as spool:
        put(spool, "a", "b", "c")
        put(spool, again)
        assert keys(spool) == ["a", "b", "c"]
        figures = spool.figures
        assert (figures.entries, figures.bytes, figures.dropped) == (3, 300, 0)


def test_what_was_handed_out_and_gave_way_is_not_counted_as_lost(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        under_way = spool.take(steps=10, size=ALL)
        put(spool, "c")
        assert spool.figures.dropped == 0
        spool.forget(under_way)
        assert (spool.figures.entries, spool.figures.bytes) == (2, 200)
        spool.hand_back()
    assert spool.figures.dropped == 0


NOT_ARRIVED: dict[str, Callable[[Spool], object]] = {
    "handed back": lambda spool: spool.hand_back(),
    "taken again": lambda spool: spool.take(steps=1, size=1),
    "not there at the end": lambda spool: spool.close(),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("how", NOT_ARRIVED)
def test_what_gave_way_while_it_was_under_way_and_does_not_arrive_is_counted(
    tmp_path: Path, how: str, at_once: bool
) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        spool.take(steps=ALL, size=ALL)
        for names in ("cd",) if at_once else ("c", "d"):
            put(spool, *names)
        assert spool.figures.dropped == 0
        NOT_ARRIVED[how](spool)
        assert spool.figures.dropped == 2
        spool.hand_back()
    assert (spool.figures.dropped, spool.figures.no_room) == (2, 2)


def test_of_what_gave_way_while_it_was_under_way_only_what_does_not_arrive_is_counted(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=350) as spool:
        put(spool, "a", "b", "c")
        first, *_ = spool.take(steps=ALL, size=ALL)
        put(spool, "d", "e")
        spool.forget([first])
        spool.hand_back()
        assert spool.figures.dropped == 1
        assert keys(spool) == ["c", "d", "e"]


def test_what_is_taken_behind_it_changes_nothing_for_what_is_under_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        under_way = spool.take(steps=10, size=ALL)
        assert keys(spool, after=under_way[-1].seq) == ["b"]
        put(spool, "c", "d")
        assert keys(spool, after=under_way[-1].seq) == ["c", "d"]
        assert spool.figures.dropped == 1
        spool.forget(under_way)
        spool.hand_back()
        assert spool.figures.dropped == 1


def test_what_gave_way_is_known_whatever_finds_room_behind_it(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        spool.take(steps=ALL, size=ALL)
        with spool._lock:
            spool.put("c", 10, bytes(100))
            spool.put("d", 10, bytes(10))
        assert spool.settle(10)
        assert spool.figures.dropped == 0
        spool.hand_back()
        assert spool.figures.dropped == 1


def test_what_was_handed_back_and_not_taken_again_is_lost_where_it_gives_way(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        first, _ = spool.take(steps=ALL, size=ALL)
        spool.hand_back()
        assert keys(spool, after=first.seq) == ["b"]
        put(spool, "c")
        assert spool.figures.dropped == 1


def test_what_arrives_while_it_gives_way_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        # The other one that has arrived is in the file for as long as nothing comes.
        monkeypatch.setattr("ospbridge.record.spool.GATHER_MANY", 50.0)
        while_written(monkeypatch, partial(spool.forget, spool.take(steps=ALL, size=ALL)))
        assert spool.put("c", 10, bytes(100))
        until(lambda: not spool.figures.unwritten)
        assert keys(spool) == ["c"]
        figures = spool.figures
        assert (figures.entries, figures.bytes, figures.dropped) == (1, 100, 0)


def test_what_arrives_while_it_gives_way_for_nothing_is_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        forget = partial(spool.forget, spool.take(steps=ALL, size=ALL))
        while_written(monkeypatch, forget, refused)
        put(spool, "c")
        assert keys(spool) == ["c"]
        assert spool.figures.dropped == 0


def test_what_is_handed_back_while_it_gives_way_for_nothing_is_counted_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
    with Spool(tmp_path / "spool", limit=250) as spool:
        put(spool, "a", "b")
        spool.take(steps=ALL, size=ALL)
        dropped: list[int] = []
        while_written(monkeypatch, spool.hand_back, lambda: dropped.append(spool.figures.dropped), refused)
        put(spool, "c")
        assert dropped == [0]
        assert keys(spool) == ["b", "c"]
        assert spool.figures.dropped == 1


def while_written(monkeypatch: pytest.MonkeyPatch, *things: Callable[[], object]) -> None:
    """These happen once, at the end of the next transaction, in it."""
    insert, left = SpoolFile._insert_all, list(things)

    def insert_and_more(file: SpoolFile, entries: Sequence[Made]) -> NoRoom:
        found = insert(file, entries)
        while left:
            left.pop(0)()
        return found

    monkeypatch.setattr(SpoolFile, "_insert_all", insert_and_more)


# --- what it was lost to ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when_full", WhenFull)
def test_what_a_full_spool_loses_is_told_from_what_waits_too_long(
    tmp_path: Path, when_full: WhenFull
) -> None:
    with Spool(tmp_path / "spool", limit=250, unwritten=EACH + 150, when_full=when_full) as spool:
        for name in "abc":
            put(spool, name)
        with spool._lock:
            assert [spool.put(name, 1, bytes(100)) for name in "de"] == [True, False]
        assert spool.settle(10)
        figures = spool.figures
        assert (figures.no_room, figures.too_slow, figures.refused, figures.dropped) == (2, 1, 0, 3)


def test_what_a_disk_that_refuses_loses_is_told_from_what_a_slow_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
    with Spool(tmp_path / "spool", unwritten=EACH + 150) as spool:
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_insert_all", refused)
            assert spool.put("a", 1, bytes(100))
            until(lambda: spool.figures.trouble)
            assert not spool.put("b", 1, bytes(100))
        assert spool.settle(10)
        with spool._lock:
            assert [spool.put(name, 1, bytes(100)) for name in "cd"] == [True, False]
        assert spool.settle(10)
        figures = spool.figures
        assert (figures.no_room, figures.too_slow, figures.refused, figures.dropped) == (0, 1, 1, 2)


def test_put_never_waits_for_the_disk_and_memory_stays_bounded(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", unwritten=350 + 3 * EACH) as spool:
        with spool._lock:
            taken = [spool.put(name, 1, b"x" * 100) for name in "abcd"]
        assert taken == [True, True, True, False]
        assert spool.settle(10)
        assert keys(spool) == ["a", "b", "c"]
        assert spool.figures.dropped == 1


def test_a_refusing_disk_is_told_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
    with Spool(tmp_path / "spool") as spool:
        put(spool, "a")
        pages = spool._file._database.execute("PRAGMA page_count").fetchone()[0]
        spool._file._database.execute(f"PRAGMA max_page_count={pages}")
        spool.put("b", 1, b"x" * 100_000)
        assert not spool.settle(0.1)
        assert "full" in spool.figures.trouble
        assert str(tmp_path / "spool") in spool.figures.trouble
        assert keys(spool) == ["a"]
        with spool._lock:
            spool._file._database.execute("PRAGMA max_page_count=1000000")
        assert spool.settle(10)
        assert keys(spool) == ["a", "b"]
        assert (spool.figures.trouble, spool.figures.entries, spool.figures.dropped) == ("", 2, 0)


def test_closing_with_a_refusing_disk_ends_and_counts_what_is_lost(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    pages = spool._file._database.execute("PRAGMA page_count").fetchone()[0]
    spool._file._database.execute(f"PRAGMA max_page_count={pages}")
    spool.put("b", 1, b"x" * 100_000)
    assert not spool.close()
    assert (spool.figures.dropped, spool.figures.refused) == (1, 1)


def test_closing_does_not_wait_longer_for_a_slow_disk_than_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    while_written(monkeypatch, partial(closed.wait, 30))
    spool = Spool(tmp_path / "spool")
    assert spool.put("a", 1, b"body")
    assert not spool.close(0.05)
    assert (spool.figures.dropped, spool.figures.too_slow) == (1, 1)
    closed.set()
    # Its thread ends in peace, although nothing waits of what it has written.
    assert spool.close(10)


def test_a_second_process_is_told_that_the_spool_is_held(tmp_path: Path) -> None:
    program = f"from ospbridge.record.spool import Spool; Spool({str(tmp_path / 'spool')!r})"
    with Spool(tmp_path / "spool"):
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
        )
    assert run.returncode != 0
    assert "another process uses it" in run.stderr or "locked" in run.stderr


def test_a_killed_process_leaves_all_that_was_on_disk(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from ospbridge.record.spool import Spool\n"
        f"spool = Spool({str(tmp_path / 'spool')!r})\n"
        "for at in range(50):\n"
        "    spool.put(f'{at:02}', 1, b'x' * 5000)\n"
        "assert spool.settle(20)\n"
        "print('settled', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "settled\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    with Spool(tmp_path / "spool") as spool:
        assert keys(spool) == [f"{at:02}" for at in range(50)]


def test_putting_and_taking_from_several_threads_loses_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        threads = [
            threading.Thread(
                target=lambda who=who: [spool.put(f"{who}-{at}", 1, b"x" * 50) for at in range(200)]
            )
            for who in range(3)
        ]
        for thread in threads:
            thread.start()
        found: list[str] = []
        for _ in range(10_000):
            batch = spool.take(steps=37, size=ALL)
            spool.forget(batch)
            found += [entry.key for entry in batch]
            if len(found) == 600:
                break
            if not batch:
                time.sleep(0.001)
        for thread in threads:
            thread.join(10)
        assert sorted(found) == sorted(f"{who}-{at}" for who in range(3) for at in range(200))
        for who in range(3):
            mine = [int(key.split("-")[1]) for key in found if key.startswith(f"{who}-")]
            assert mine == sorted(mine)
        assert (spool.figures.entries, spool.figures.bytes) == (0, 0)


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("no database\n" * 100)
    with pytest.raises(ConfigurationError, match="cannot be opened") as caught:
        Spool(path)
    assert "move the file away" in caught.value.hint
    assert path.read_text().startswith("no database")


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE people (name)")
    other.commit()
    other.close()
    with pytest.raises(ConfigurationError, match="is no spool of this release"):
        Spool(path)


def test_a_newer_spool_is_refused(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").close()
    later = sqlite3.connect(tmp_path / "spool")
    later.execute("PRAGMA user_version=2")
    later.close()
    with pytest.raises(ConfigurationError, match="version 1, got 0x4f535042 and 2"):
        Spool(tmp_path / "spool")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        Spool(tmp_path / "file" / "spool")


def test_a_file_whose_entries_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda data: data[:4096] + b"\xff" * 4096 + data[8192:])
    with pytest.raises(ConfigurationError, match=r"cannot be opened.*malformed"):
        Spool(path)


def test_a_file_whose_damage_is_told_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = damaged(tmp_path, lambda data: data.replace(b"CREATE TABLE entry", b"CREATE \xff\xffBLE entry", 1))
    with pytest.raises(ConfigurationError, match=r"cannot be opened.*move the file away"):
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


def test_a_damaged_entry_that_cannot_be_taken_out_gives_way_all_the_same(tmp_path: Path) -> None:
    with Spool(page_damaged(tmp_path), limit=4 * BIG) as spool:
        for name in "efg":
            put(spool, name, size=BIG)
        assert keys(spool) == ["d", "e", "f", "g"]
        figures = spool.figures
        assert (figures.entries, figures.bytes, figures.no_room, figures.trouble) == (4, 4 * BIG, 3, "")


def test_a_damaged_entry_that_cannot_be_taken_out_stays_uncounted_while_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.02)
    with Spool(page_damaged(tmp_path), limit=4 * BIG) as spool:
        for name in "efg":
            put(spool, name, size=BIG)
        with monkeypatch.context() as refusing:
            refusing.setattr(SpoolFile, "_insert_all", refused)
            assert spool.put("h", 10, b"h" * BIG)
            until(lambda: spool.figures.trouble)
            assert (spool.figures.entries, spool.figures.bytes) == (4, 4 * BIG)
        assert spool.settle(10)
        assert keys(spool) == ["e", "f", "g", "h"]
        assert (spool.figures.entries, spool.figures.bytes) == (4, 4 * BIG)


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


def test_while_no_file_can_be_made_where_one_is_gone_all_waits_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.02)
    directory = tmp_path / "directory"
    with Spool(directory / "spool") as spool:
        put(spool, "a")
        shutil.rmtree(directory)
        directory.write_text("in the way")
        assert spool.put("b", 1, b"body")
        until(lambda: spool.figures.trouble)
        assert keys(spool) == ["a"]
        directory.unlink()
        assert spool.settle(10)
        assert keys(spool) == ["a", "b"]
        assert (spool.figures.moved, spool.figures.trouble) == (1, "")


def damages(spool: Spool) -> dict[str, str]:
    return {entry.key: entry.damage for entry in spool.take(steps=ALL, size=ALL)}


BIG = 60_000
"""Bytes of a body that takes several pages."""


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
        assert spool.settle(10)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    bent = bend(path.read_bytes())
    assert bent != path.read_bytes()
    path.write_bytes(bent)
    return path


def test_closing_waits_no_longer_than_it_may_for_whoever_reads_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool")
    put(spool, "a")
    go_on, reads = threading.Event(), threading.Event()
    take = spool._file.take

    def hanging(**limits: Any) -> list[Entry]:
        reads.set()
        assert go_on.wait(20)
        return take(**limits)

    monkeypatch.setattr(spool._file, "take", hanging)
    reader = threading.Thread(target=partial(spool.take, steps=ALL, size=ALL))
    reader.start()
    assert reads.wait(10)
    assert spool.close(0.2)
    assert reader.is_alive()
    go_on.set()
    reader.join(10)
    spool._file.close()
