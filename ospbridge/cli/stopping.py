"""What a stop from outside means to a command: SIGTERM as Ctrl-C, never lost, and no interruption while it leaves."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
    from types import FrameType

__all__ = ["deaf", "deferred", "heeded", "run_until_asked", "stoppable", "uninterrupted"]

AGAIN: Final = 0.001
"""Seconds behind which an interruption that Python ignored is raised once more: out of the callback by then."""


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """A KeyboardInterrupt within the block is never lost, and never ends the process once it has been caught.

    Python ignores any exception of a callback or a finalizer, and imports run a callback for each module: a Ctrl-C
    that hit one would stop nothing. And ``python -m`` dies of SIGINT, whatever its exit code, if the last thing that
    ``exec`` ran was interrupted, as it runs the methods of a dataclass when a module is imported.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    ignored = _Ignored()
    sys.unraisablehook = ignored.told
    try:
        yield
    finally:
        sys.unraisablehook = ignored.before
        ignored.forget()
        exec("")  # noqa: S102  # it makes Python forget that an earlier one was interrupted


class _Ignored:
    """Interrupts once more by the process's timer, which goes on as it was behind that."""

    def __init__(self) -> None:
        self.before = sys.unraisablehook
        self._waiting = False
        self._handler: Any = None
        self._timer = (0.0, 0.0)

    def told(self, args: Any) -> None:
        """Python ignored an exception."""
        if not issubclass(args.exc_type, KeyboardInterrupt):
            self.before(args)
        elif not self._waiting:
            self._waiting = True
            self._handler = signal.signal(signal.SIGALRM, self._again)
            self._timer = signal.setitimer(signal.ITIMER_REAL, AGAIN)

    def _again(self, _: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is _Ignored.told.__code__:
                # What is raised there is ignored as well.
                signal.setitimer(signal.ITIMER_REAL, AGAIN)
                return
            frame = frame.f_back
        self.forget()
        # Where SIGINT is ignored, as in the background of a shell, it was SIGTERM that raised.
        deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM if deaf else signal.SIGINT)

    def forget(self) -> None:
        """It is not wanted any more."""
        if self._waiting:
            self._waiting = False
            signal.setitimer(signal.ITIMER_REAL, *self._timer)
            _put_back({signal.SIGALRM: self._handler})


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
        _put_back(before)


def _put_back(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        # None: one that was not set from Python cannot be put back.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def deaf(*numbers: signal.Signals) -> None:
    """From here to the end of the process the signals change nothing.

    They were heard, and it ends: it takes Python a moment, in which its own handlers do not count any more.
    """
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def run_until_asked(main: Callable[[AsyncIterator[int]], Awaitable[None]], *numbers: signal.Signals) -> None:
    """Run the trio program ``main``, which is given the signals and ends in its own time. Raises what it raises.

    There is no moment in which one of them is lost, or ends the process with another exit code: neither before trio
    listens nor behind that, where whoever asks again changes nothing.
    """
    import trio

    before = {number: signal.getsignal(number) for number in numbers}

    async def listening() -> None:
        # Those that come in between wait, and are heard by trio, which in the end puts back what it finds here.
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        for number in numbers:
            signal.signal(number, _nothing)
        with trio.open_signal_receiver(*numbers) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
            await main(signals)

    try:
        trio.run(listening)
    except BaseException:
        _put_back(before)
        raise
    deaf(*numbers)


def _nothing(_: int, __: FrameType | None) -> None:
    """The process ends already."""


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """A stop asked for within the block raises KeyboardInterrupt behind it: nothing in it is left half done."""
    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with _handling(numbers, lambda number, _: asked.append(number)):
        yield
    if asked:
        raise KeyboardInterrupt
