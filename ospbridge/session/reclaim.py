"""Freeing the agents of a dead session through its old handler.

The handler is connected to the dead client's address, so its successor binds that very port and says goodbye in its
name. A real handler in mid-step waits for an acknowledgement; one datagram frees it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ospbridge.errors import QueryTimeout
from ospbridge.interface import Endpoint
from ospbridge.osp import asking
from ospbridge.osp.client import ClientMachine, Exchange
from ospbridge.osp.messages import StepCompletedAck
from ospbridge.osp.profile import PROFILES
from ospbridge.transport.addresses import resolve
from ospbridge.transport.udp import open_udp

if TYPE_CHECKING:
    import socket

    from ospbridge.osp.timing import Limits
    from ospbridge.session.lease import Lease

__all__ = ["reclaim", "successor"]


def successor(lease: Lease, limits: Limits) -> tuple[socket.socket, ClientMachine] | None:
    """A socket in the dead client's place and a machine for it; None where its port is taken or its host is gone."""
    profile = PROFILES.get(lease.profile)
    if profile is None:
        return None
    family, handler = resolve(Endpoint(lease.server, lease.handler_port))
    try:
        sock = open_udp(family, local_port=lease.local_port, local_host=lease.local_host)
    except OSError:
        return None
    try:
        sock.connect((handler.host, handler.port))
    except OSError:
        sock.close()
        return None
    return sock, ClientMachine(
        profile, limits=limits, jitter=random.random, peer=f"the old handler {handler}"
    )


def reclaim(m: ClientMachine, lease: Lease) -> Exchange[bool]:
    """Free the handler, give back its agents, leave. True where all was confirmed."""
    m.send(StepCompletedAck(0))
    try:
        for agent_id in lease.agents.values():
            yield from asking.deregister(m, agent_id, limit=m.limits.close)
        if not lease.events or m.profile.end_after_events_is_safe:
            return (yield from asking.end(m))
    except QueryTimeout:
        return False
    return True
