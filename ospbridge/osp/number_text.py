"""Numbers in the texts of variables, as servers of any locale print them. The document leaves the format open."""

from __future__ import annotations

__all__ = ["number", "with_point"]


def with_point(text: str) -> str:
    """``text`` with a point where it has a decimal comma: one comma, and no point."""
    return text.replace(",", ".") if text.count(",") == 1 and "." not in text else text


def number(text: str) -> float:
    """The number that ``text`` is. Raises ValueError."""
    return float(with_point(text))
