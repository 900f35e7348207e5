"""What a session's lease and the guardian know while it lasts: its place at a handler, and the agents it has there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ospbridge.osp.messages import DeregisterFromAgent, DeregisterFromAgentAck, End, EndAck, StepCompletedAck
from ospbridge.osp.profile import PROFILES
from ospbridge.session.lease import Lease, LeaseFile
from ospbridge.transport.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ospbridge.interface import Endpoint
    from ospbridge.osp.profile import Profile
    from ospbridge.transport.guardian import Guarded

__all__ = ["Tenure"]


class Tenure:
    """From the answer to an INIT, which came from ``handler`` to ``local``, until that is over.

    ``owed``: INITs of the session that the server may have yet to read.
    """

    def __init__(
        self,
        file: LeaseFile,
        guarded: Guarded,
        server: Endpoint,
        *,
        local: Endpoint,
        handler: Endpoint,
        profile: Profile,
        owed: int = 0,
    ) -> None:
        self._file = file
        self._guarded = guarded
        self._server = server
        self._local = local
        self._handler = handler
        self._profile = profile
        self._owed = owed
        self.events = False
        """Events were registered, or may have been: a successor's END would do harm at some servers."""
        self._over = False

    @property
    def lease(self) -> Path | None:
        """Where the lease is, if there is one."""
        place = self._file.place
        return None if place is None else place[1]

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
        self._guarded.update(
            lease=self._file.place,
            spare_ack=StepCompletedAck(next(iter(agents.values()), 0)).encode(end=self._profile.end_marker),
            end=self._profile.end,
            goodbye=self._goodbye(agents),
        )

    def _goodbye(self, agents: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
        """Requests that free the agents and leave, each with what its answer begins with."""
        marked = self._profile.end_marker
        said = [
            (
                DeregisterFromAgent(agent_id).encode(end=marked),
                DeregisterFromAgentAck(agent_id, 0).encode()[:-1],
            )
            for agent_id in agents.values()
        ]
        if not self.events or self._profile.end_after_events_is_safe:
            said.append((End().encode(end=marked), EndAck().encode()))
        return said

    def unguard(self) -> None:
        """The guardian is to say nothing for this session, whose socket is closed next.

        Where a successor is to say goodbye, which needs the port, the guardian has let go of that on return.
        """
        self._guarded.drop(wait=self._file.held)

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
