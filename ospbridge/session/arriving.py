"""What both drivers do between an answer to INIT and the session that it is for.

From the answer on the server has a handler that waits for us: whoever dies before anything else is said leaves a lease
for it, and whoever gives up says goodbye to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.interface import Endpoint
from ospbridge.session.tenure import Tenure
from ospbridge.transport.udp import LARGEST_DATAGRAM, send_to

if TYPE_CHECKING:
    import socket

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.connecting import ConnectMachine
    from ospbridge.session.lease import LeaseFile

__all__ = ["hold_place", "look_at", "tenure_of", "turn_back"]


def look_at(probe: socket.socket, machine: ConnectMachine) -> None:
    """Whether the throw-away datagram met a closed port."""
    try:
        probe.recv(LARGEST_DATAGRAM)
    except ConnectionRefusedError:
        machine.handle_refused()
    except BlockingIOError:
        pass
    except OSError as error:
        machine.handle_unreachable(str(error.strerror))


def hold_place(lease: LeaseFile, sock: socket.socket, machine: ConnectMachine) -> None:
    """Keep a lease of the handler that has answered, though it is not adopted yet."""
    if machine.answered is None or lease.held:
        return
    tenure_of(lease, sock, machine).renew({})


def tenure_of(lease: LeaseFile, sock: socket.socket, machine: ConnectMachine) -> Tenure:
    """That of the handler that has answered, as far as is known of it by now."""
    assert machine.answered is not None
    handler, profile = machine.answered
    host, port = sock.getsockname()[:2]
    return Tenure(
        lease,
        machine.server,
        local=Endpoint(host, port),
        handler=handler,
        profile=profile,
        owed=machine.owed,
    )


def turn_back(
    lease: LeaseFile, sock: socket.socket, machine: ConnectMachine, *, trace: TraceWriter | None
) -> None:
    """Give up, and close the socket. Nobody waits to hear the goodbye confirmed, so the lease stays."""
    machine.turn_back()
    for datagram, to in machine.outgoing:
        if trace is not None:
            trace.sent(datagram, to.port)
        send_to(sock, datagram, to)
    machine.outgoing.clear()
    sock.close()
    lease.abandon()
