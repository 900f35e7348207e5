"""Telling the service manager how the daemon is, and that it is alive.

The proof of life comes out of the event loop itself, so that one which does not turn any more gives none; and only
where no step and no reset has been under way for longer than its limits allow. Whoever waits, for a simulator, an
upstream or an environment, is alive.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.observe import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.daemon.notifying import Notifier
    from ospbridge.daemon.overlook import Overlook

__all__ = ["reloading", "supervise"]

log = logs.get(__name__)
EVERY: Final = 1.0
"""Seconds between looks, at most."""


async def supervise(notifier: Notifier, overlook: Overlook) -> None:
    """Until cancelled. Returns at once where nobody wants to know."""
    if not notifier.asked:
        return
    every = EVERY if notifier.watchdog is None else min(EVERY, notifier.watchdog / 3)
    said = ""
    hung: list[str] = []
    while True:
        hanging = overlook.hanging(trio.current_time())
        if hanging != hung:
            hung = hanging
            if hung:
                log.error(
                    "a step does not come to its end, and no limit ends it",
                    simulators=hung,
                    hint="the service manager restarts the daemon; please report what led to it",
                )
        if notifier.watchdog is not None and not hung:
            notifier.tell(WATCHDOG=1)
        summary = overlook.summary()
        if summary != said:
            said = summary
            notifier.tell(STATUS=summary)
        await trio.sleep(every)


def reloading(notifier: Notifier, reload: Callable[[], None]) -> None:
    """Do it, and let the manager know how long that takes."""
    notifier.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
    try:
        reload()
    finally:
        notifier.tell(READY=1)
