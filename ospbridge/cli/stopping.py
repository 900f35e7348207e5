"""What a stop from outside means to a command: SIGTERM as Ctrl-C, and no interruption while it leaves."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["deferred", "stoppable", "uninterrupted"]


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and a hang-up raise KeyboardInterrupt, so that a command gives back what it holds."""
    with _handling((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Nothing stops the block: for a goodbye, which is bounded in time. A stop asked for meanwhile is not made up."""
    with _handling((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    # What is ignored stays ignored: under nohup a hang-up is none of our business.
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, old in before.items():
            # None: a handler that was not set from Python cannot be put back.
            signal.signal(number, signal.SIG_DFL if old is None else old)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """A stop asked for within the block raises KeyboardInterrupt behind it: nothing in it is left half done."""
    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with _handling(numbers, lambda number, _: asked.append(number)):
        yield
    if asked:
        raise KeyboardInterrupt
