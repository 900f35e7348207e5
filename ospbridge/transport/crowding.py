"""Room for so many visitors at a time whom nobody knows yet.

To come in costs nothing, so that one host could take all the room again and again. Where there is none left, the host
that takes most of it gives way to another one.
"""

from __future__ import annotations

import trio

__all__ = ["Crowd"]


class Crowd:
    """``most``: so many at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: dict[str, list[trio.CancelScope]] = {}
        """By their host, who came first first."""

    def enter(self, host: str) -> trio.CancelScope | None:
        """What a visitor is to be served in, and is cancelled where it has to give way; None where there is no room.

        Say ``leave`` with it then.
        """
        if sum(map(len, self._inside.values())) >= self._most:
            most = max(self._inside, key=lambda each: len(self._inside[each]))
            if len(self._inside[most]) <= len(self._inside.get(host, ())) + 1:
                return None
            first = self._inside[most][0]
            self.leave(most, first)
            first.cancel()
        scope = trio.CancelScope()
        self._inside.setdefault(host, []).append(scope)
        return scope

    def leave(self, host: str, scope: trio.CancelScope) -> None:
        """It takes no room any more. Safe to call again."""
        inside = self._inside.get(host, [])
        if scope in inside:
            inside.remove(scope)
            if not inside:
                del self._inside[host]
