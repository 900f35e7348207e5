"""What is kept only by what it keeps itself: Python frees it when it looks for such circles, and not before."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["uncollected"]


@contextmanager
def uncollected(kind: type) -> Iterator[Callable[[], int]]:
    """Python looks for no circles meanwhile; what is yielded counts the objects of ``kind`` that are there."""
    gc.collect()
    gc.disable()
    try:
        yield lambda: sum(type(thing) is kind for thing in gc.get_objects())
    finally:
        gc.enable()
