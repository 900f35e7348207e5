"""Damage to the file of a spool, as SQLite tells it."""

from __future__ import annotations

import sqlite3

__all__ = ["StuckError", "is_damage"]


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
