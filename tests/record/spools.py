"""What the tests of spools do with them."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, NoReturn

from ospbridge.record.spool import Made
from ospbridge.record.spool_file import NoRoom, SpoolFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from ospbridge.record.spool import Spool

ALL = 10**9


def put(spool: Spool, *names: str, steps: int = 10, size: int = 100) -> None:
    for name in names:
        assert spool.put(name, steps, name.encode().ljust(size, b"."))
    assert spool.settle(30)


def keys(spool: Spool, **limits: int) -> list[str]:
    return [entry.key for entry in spool.take(**{"steps": ALL, "size": ALL} | limits)]


def make(*names: str) -> list[Made]:
    return [Made(name, 10, b"body", f"content of {name}") for name in names]


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.002)


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
