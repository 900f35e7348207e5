"""Freeing agents by force: RESET_COMMUNICATION, which disconnects every client of the simulator, the living ones too.

Only where the user allowed it. A client that died registered, and left no lease, holds its agents for good on a real
server, and its missing vote stops the world; there is no other way out.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import OspBridgeError
from ospbridge.interface import chosen
from ospbridge.observe import logs
from ospbridge.osp.timing import RESTART_SETTLES
from ospbridge.session.rebuild import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.settings import Settings
    from ospbridge.session.trio_session import TrioSession

__all__ = ["Forcing"]

log = logs.get(__name__)
RESTARTS: Final = 3
"""At once; one more a minute: two daemons that evict each other come to rest."""


class Forcing:
    """What ``--force-restart`` allows for one simulator."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._budget = Budget(trio.current_time(), capacity=RESTARTS)
        self._refused = False
        """A restart was not allowed so soon, and that was said: whoever waits for agents looks often."""

    async def free(self, session: TrioSession) -> bool:
        """Restart the communication where another client holds an agent that is wanted; True: ``session`` is over."""
        if not self._settings.force_restart:
            return False
        agents = await session.agents()
        names = [entry.name for entry in agents]
        patterns = self._settings.agents
        if not all(chosen(names, (pattern,)) for pattern in patterns):
            # Nothing is gained by it before all of them are there.
            return False
        wanted = chosen(names, patterns) if patterns else names
        held = [entry.name for entry in agents if not entry.available and entry.name in wanted]
        return bool(held) and await self.restart(session, held, "they are wanted")

    async def restart(self, session: TrioSession, held: Sequence[str], reason: str) -> bool:
        """Disconnect every client, where that is allowed, and not too often; True: ``session`` is over."""
        if not self._settings.force_restart or session.closed:
            return False
        if not self._budget.spend(trio.current_time()):
            if not self._refused:
                log.warning(
                    "the communication is not restarted again so soon",
                    **self._settings.whose,
                    agents=list(held),
                )
            self._refused = True
            return False
        self._refused = False
        log.warning(
            "the communication is restarted", **self._settings.whose, agents=list(held), reason=reason
        )
        with suppress(OspBridgeError):
            await session.restart_communication()
        await session.aclose()
        await trio.sleep(RESTART_SETTLES)
        return True
