"""Trying again what only others can mend: how long to pause, and when to say what is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.errors import OspBridgeError

__all__ = ["Patience"]

SAID_AGAIN_AFTER: Final = 60.0
"""Seconds until waiting is mentioned a second time; from then on twice as long each time."""
REASONS: Final = 16
"""So many different ones are each said at once: more of them differ in their numbers alone."""


class Patience:
    """Pauses become longer, ``first`` to ``longest`` seconds, until ``wait`` seconds are over; None: never.

    ``say(error, waited)`` is called at once for what was not said before, and then ever more rarely.
    """

    def __init__(
        self,
        wait: float | None,
        *,
        first: float,
        longest: float,
        say: Callable[[OspBridgeError, float], None],
    ) -> None:
        self._started = trio.current_time()
        self._wait = wait
        self._pause = first
        self._longest = longest
        self._say = say
        self._said: set[str] = set()
        self._say_at = self._started
        self._silence = SAID_AGAIN_AFTER

    @property
    def left(self) -> float:
        """Seconds for which to go on."""
        return float("inf") if self._wait is None else self._started + self._wait - trio.current_time()

    async def after(self, error: OspBridgeError, *, longest: float | None = None) -> None:
        """Pause, or raise ``error`` where the time is over. ``longest``: for the next pauses, where not the usual."""
        if self.left <= 0:
            raise error.after(trio.current_time() - self._started)
        self._mention(error)
        await trio.sleep(max(0.0, min(self._pause, self.left)))
        self._pause = min(2 * self._pause, self._longest if longest is None else longest)

    def _mention(self, error: OspBridgeError) -> None:
        now = trio.current_time()
        again = now >= self._say_at
        if again:
            self._say_at = now + self._silence
            self._silence *= 2
        if again or (error.message not in self._said and len(self._said) < REASONS):
            self._said.add(error.message)
            self._say(error, round(now - self._started, 1))
