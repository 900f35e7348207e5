"""What a session's lease says while it lasts: its place at a handler, and the agents it has there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ospbridge.osp.profile import PROFILES
from ospbridge.session.lease import Lease, LeaseFile
from ospbridge.transport.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ospbridge.interface import Endpoint
    from ospbridge.osp.profile import Profile

__all__ = ["Tenure"]


class Tenure:
    """From the answer to an INIT, which came from ``handler`` to ``local``, until that is over.

    ``owed``: INITs of the session that the server may have yet to read.
    """

    def __init__(
        self,
        file: LeaseFile,
        server: Endpoint,
        *,
        local: Endpoint,
        handler: Endpoint,
        profile: Profile,
        owed: int = 0,
    ) -> None:
        self._file = file
        self._server = server
        self._local = local
        self._handler = handler
        self._profile = profile
        self._owed = owed
        self.events = False
        """Events were registered, or may have been: a successor's END would do harm at some servers."""
        self._over = False

    def renew(self, agents: Mapping[str, int]) -> None:
        """Whoever dies from now on leaves these: local id by name, none where it has only its place."""
        self._file.write(
            Lease(
                server=self._server.host,
                server_port=self._server.port,
                local_host=self._local.host,
                local_port=self._local.port,
                handler_port=self._handler.port,
                profile=self._profile.name,
                agents=dict(agents),
                events=self.events,
                pid=os.getpid(),
                owed=self._owed,
                marked=self._profile.end_marker and not PROFILES[self._profile.name].end_marker,
            )
        )

    def look_after(self, agents: Mapping[str, int]) -> None:
        """As ``renew``, where somebody has removed the file, as with a whole runtime directory."""
        if not (self._over or self._file.stands):
            self._file.abandon()
            self.renew(agents)

    def end(self, *, refused: bool = False) -> None:
        """The agents are free, and so is the place: nobody need reclaim them.

        ``refused``: only a closed port says so. Of another host that may be the word of a firewall between, while the
        handler keeps the agents: the lease is left, and a successor asks again.
        """
        self._over = True
        if refused and not is_loopback(self._server.host):
            return
        self._file.remove()

    def abandon(self) -> None:
        """The agents may still be taken: leave the lease for a successor. The socket must be closed by then."""
        self._over = True
        self._file.abandon()
