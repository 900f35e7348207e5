"""Did you mean ...?"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """A question for what may have been meant, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
