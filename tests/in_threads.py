"""What serves in a trio of its own, in a thread: for tests that block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

import trio

__all__ = ["in_thread"]

T = TypeVar("T")
WITHIN = 20.0


@contextmanager
def in_thread(serving: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What ``serving`` yields, which serves as long as the body runs."""
    ready = threading.Event()
    place: list[Any] = []

    async def serve() -> None:
        async with serving as found:
            with trio.CancelScope() as scope:
                place.extend([found, scope, trio.lowlevel.current_trio_token()])
                ready.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert ready.wait(WITHIN)
    found, scope, token = place
    try:
        yield found
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(WITHIN)
