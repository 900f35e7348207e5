"""How far a command is that takes longer than a moment: a bar on standard error, where somebody looks at it."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["bar_of"]


@contextmanager
def bar_of(label: str) -> Iterator[Callable[[int, int], None]]:
    """What is called with how much is done, and of how much; the bar appears with the first call."""
    with ExitStack() as stack:
        bar: Any = None

        def progress(done: int, of: int) -> None:
            nonlocal bar
            if bar is None:
                bar = stack.enter_context(
                    click.progressbar(length=of, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())
                )
            bar.update(done - bar.pos)

        yield progress
