"""Simulators that come back without what the tasks were made for: told, left alone, and tried again.

Such a one may have the wrong scene, or one that is still being put together. What does not fit at first may be a
mistake of the user's and ends the daemon; then nobody comes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ospbridge.observe import logs

if TYPE_CHECKING:
    from ospbridge.daemon.settings import Settings
    from ospbridge.errors import OspBridgeError

__all__ = ["Returning"]

log = logs.get(__name__)
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 10.0
"""Seconds: each try may leave a handler behind, where sessions that registered for events cannot say goodbye."""


class Returning:
    """One simulator's refusals since it last fitted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._since: float | None = None
        self._pause = FIRST_PAUSE
        self._said = ""

    def fits(self) -> None:
        """It has all that is wanted."""
        self._since = None
        self._pause = FIRST_PAUSE
        self._said = ""

    async def refused(self, error: OspBridgeError) -> None:
        """Say why, once, and pause. Raises ``error`` where the time to wait for a simulator is over."""
        now = trio.current_time()
        if self._since is None:
            self._since = now
        wait = self._settings.wait
        if wait is not None and now - self._since >= wait:
            raise error
        if error.message != self._said:
            self._said = error.message
            log.warning(
                "the simulator came back otherwise",
                **self._settings.whose,
                reason=error.message,
                hint=error.hint,
            )
        left = self._pause if wait is None else min(self._pause, self._since + wait - now)
        await trio.sleep(left)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
