"""How many there are of something, as people say it."""

from __future__ import annotations

__all__ = ["numbered"]


def numbered(count: int, noun: str, many: str = "", *, form: str = "") -> str:
    """As "1 step", "2 steps". ``many``: the plural, where it is not ``noun`` with an s; ``form``: of the number."""
    return f"{count:{form}} {noun if count == 1 else many or f'{noun}s'}"
