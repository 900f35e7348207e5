"""Spools whose file is damaged, of another kind, or gone from its path."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.record.spool import Spool
from tests.record.spools import ALL, keys, put, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
