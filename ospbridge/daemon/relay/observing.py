"""Observing: what attached environments live through goes upstream, whole, and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Never, Self

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.link import Link
    from ospbridge.daemon.relay.settings import Upstream

__all__ = ["Observing"]


class Observing:
    """``run`` sends until cancelled, within its context. ``link.run`` must be running, and the conductors'."""

    def __init__(self, upstream: Upstream, conductors: Sequence[Conductor], link: Link) -> None:
        self._upstream = upstream
        self._conductors = conductors
        self._link = link

    async def run(self) -> Never:
        """Send what is spooled."""
        await trio.sleep_forever()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """All environments have left."""
