"""Joining a server for probes, and INITs that are only tried."""

from __future__ import annotations

import select
import socket
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from ospbridge.diagnosis.line import SILENCE, Line
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint
from ospbridge.osp.codes import Code
from ospbridge.osp.connect import SurplusMachine
from ospbridge.osp.messages import End
from ospbridge.osp.timing import Limits
from ospbridge.session.channel import OpenPort
from ospbridge.session.connect import find_handler
from ospbridge.transport.udp import open_udp, receive_from

if TYPE_CHECKING:
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.profile import Profile

__all__ = ["TRIES", "Server", "answer_to", "join", "throw_away"]

TRIES: Final = 3
"""How often an INIT is sent before silence counts as an answer."""


class Server(NamedTuple):
    """Where the server is, as an address of numbers; ``trace`` is written of all that is said."""

    address: Endpoint
    trace: TraceWriter | None = None


def join(server: Server, profile: Profile | None, *, timeout: float) -> Line:
    """A handler of the server at a numeric address; ``profile`` None finds out which kind it is.

    Raises SimulatorNotFound, SimulatorSilent, VersionRefused.
    """
    found = find_handler(server.address, profile, limits=Limits(connect=timeout), trace=server.trace)
    return Line(
        found.channel.sock,
        found.channel.machine.profile,
        server.address,
        found.handler,
        found.greeting,
        lease=found.lease,
        others=found.channel.surplus,
        trace=server.trace,
    )


def _send(sock: socket.socket, data: bytes, destination: Endpoint, trace: TraceWriter | None) -> None:
    if trace is not None:
        trace.sent(data, destination.port)
    try:
        sock.sendto(data, (destination.host, destination.port))
    except BlockingIOError:
        pass  # a full send buffer is a lost datagram
    except OSError as error:
        raise ConfigurationError(
            f"cannot send to {destination}: {error.strerror}", hint="check the address and the network"
        ) from None


def answer_to(server: Server, init: bytes, line: Line) -> bytes | None:
    """What the server answers to this INIT; None for silence each of ``TRIES`` times.

    No handler is left behind: not even by a server that answers when ``line`` has left.
    """
    answer: bytes | None = None
    owed = 0
    marked = line.profile.end_marker
    sock = open_udp(server.address.host)
    try:
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        for _ in range(TRIES):
            _send(sock, init, server.address, server.trace)
            owed += 1
            until = monotonic() + SILENCE
            while (left := until - monotonic()) > 0.0:
                poll.poll(ceil(left * 1000))
                if (packet := receive_from(sock)) is None:
                    continue
                data, source = packet
                if server.trace is not None:
                    server.trace.received(data, source.port)
                if source.host == server.address.host and data[:1] == bytes((Code.INIT_COMMUNICATION_ACK,)):
                    # A late answer to an earlier INIT has a handler of its own: each gets its goodbye.
                    _send(sock, End().encode(end=marked), source, server.trace)
                    owed -= 1
                    answer = answer or data
            if answer is not None:
                break
    except BaseException:
        sock.close()
        raise
    line.owe(OpenPort(sock, SurplusMachine(server.address, line.profile, owed), trace=server.trace))
    return answer


def throw_away(server: Server, datagram: bytes) -> None:
    """Send something to the main port to which no answer is awaited."""
    with open_udp(server.address.host) as sock:
        for _ in range(TRIES):
            _send(sock, datagram, server.address, server.trace)
