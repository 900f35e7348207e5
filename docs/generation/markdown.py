"""Plain text as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["escaped", "table"]


def escaped(text: str) -> str:
    """Text in which only what stands between backticks is code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*<>\[\]])", r"\\\1", part) for part in parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, without a line break behind it; "|" in cells is escaped."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])
