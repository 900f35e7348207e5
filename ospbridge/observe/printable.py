"""Names and notes for eyes: they come from simulators and from files, and must not steer a terminal."""

from __future__ import annotations

__all__ = ["printable", "writable"]


def printable(text: str) -> str:
    """``text`` on one line: what is no character to look at is shown as its escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def writable(text: str) -> str:
    """``text`` as UTF-8 has it: what is no character, as in the name of a file that is no UTF-8, as its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
