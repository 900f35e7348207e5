"""Steps that are awaited, timed within trio, where a stop from outside comes in as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
from time import perf_counter_ns
from typing import TYPE_CHECKING

import trio

from ospbridge.bench.cores import apart
from ospbridge.bench.figures import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ospbridge.bench.figures import Run

__all__ = ["run_in_trio", "timed_async"]


def run_in_trio(task: Callable[[], Awaitable[Run]]) -> Run:
    """As ``trio.run``. What raises KeyboardInterrupt on SIGTERM does so only where trio lets Ctrl-C do it."""
    with _as_ctrl_c():
        return trio.run(task)


async def timed_async(
    step: Callable[[], Awaitable[object]], steps: int, warm_up: int, *, alone: bool = True
) -> Run:
    """As ``timed``, with steps that are awaited."""
    with apart() if alone else contextlib.nullcontext():
        for _ in range(warm_up):
            await step()
        watch = Stopwatch()
        stamp = watch.stamps.append
        for _ in range(steps):
            await step()
            stamp(perf_counter_ns())
        return watch.run()


@contextlib.contextmanager
def _as_ctrl_c() -> Iterator[None]:
    """An exception in the midst of trio's own code would leave it in pieces; it knows of SIGINT alone."""
    raising = signal.default_int_handler
    heeded = signal.getsignal(signal.SIGINT) is raising  # else it is no way in
    numbers = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if heeded and signal.getsignal(number) is raising
    ]
    for number in numbers:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, raising)
