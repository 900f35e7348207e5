"""What a session's lease says while it lasts: its place at a handler, and the agents it has there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ospbridge.osp.profile import PROFILES
from ospbridge.session.lease import Lease, LeaseFile

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

    def end(self) -> None:
        """The agents are free, and so is the place: nobody need reclaim them."""
        self._file.remove()

    def abandon(self) -> None:
        """The agents may still be taken: leave the lease for a successor. The socket must be closed by then."""
        self._file.abandon()
