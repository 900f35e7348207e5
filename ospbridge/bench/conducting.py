"""Steps that are awaited, timed within trio; and those of a daemon's conductor, without the daemon's hub.

The one module of this room that knows another one of its floor: what is measured here is the daemon.
"""

from __future__ import annotations

import contextlib
import signal
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.bench.cores import apart
from ospbridge.bench.figures import Stopwatch
from ospbridge.bench.stage import START
from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.settings import Settings
from ospbridge.transport.addresses import parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ospbridge.bench.figures import Run
    from ospbridge.bench.stage import Stage

__all__ = ["conducted", "run_in_trio", "timed_async"]

LOOK_EVERY: Final = 0.01
"""Seconds between looks at whether the simulator was joined."""


def conducted(stage: Stage, steps: int, warm_up: int) -> Run:
    """Steps of all agents of the stage's simulator, each with the same action."""
    return run_in_trio(partial(_conducted, stage, steps, warm_up))


async def _conducted(stage: Stage, steps: int, warm_up: int) -> Run:
    conductor = Conductor(
        Settings(hub=Path("none"), simulator=parse_endpoint(stage.responder), profile=stage.profile.name)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.run)
        with trio.fail_after(START):
            while not conductor.ready:  # noqa: ASYNC110  # it tells nobody when
                await trio.sleep(LOOK_EVERY)
        attachments = conductor.attach(["*"], Driver("the measurement", 0))
        await conductor.reset(attachments, 1, 0)
        moves = [(attachment, stage.action.tobytes()) for attachment in attachments]
        run = await timed_async(partial(conductor.step, moves), steps, warm_up, alone=stage.apart)
        conductor.leave(attachments)
        nursery.cancel_scope.cancel()
    return run


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
