"""Did you mean ...?"""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Final

from ospbridge.text import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["nearest"]

MOST: Final = 10_000
"""Names that are compared: comparing takes long, and how many there are, and how long, may be a peer's choice."""


def nearest(name: str, known: Iterable[str], *, most: int = 3) -> str:
    """A question for what may have been meant, or nothing."""
    close = difflib.get_close_matches(
        name[:NAME], [each for each in islice(known, MOST) if len(each) <= NAME], n=most
    )
    return f"did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
