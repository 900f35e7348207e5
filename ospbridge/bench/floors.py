"""What the datagrams of a step alone cost: bare sockets, one pack, one frombuffer, nothing checked.

The *blocking floor* sleeps in each receive; the *spinning floor* never sleeps. Every subject's figure is a ratio to
these, measured in the same run.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import QueryTimeout
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentOverviewAck,
    End,
    GetAgentOverview,
    Init,
    RegisterForAgent,
    StepCompletedAck,
)
from ospbridge.transport.addresses import parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ospbridge.osp.profile import Profile

__all__ = ["blocking_floor", "spinning_floor"]

LIMIT: Final = 5
"""Seconds after which a floor gives up: a datagram was lost."""
LARGEST: Final = 65_536
AGENT: Final = 1


@contextlib.contextmanager
def blocking_floor(
    address: str, profile: Profile, inputs: int, outputs: int
) -> Iterator[Callable[[], object]]:
    """A step that sleeps in each of its two receives."""
    with _registered(address, profile) as sock:
        send, receive = sock.send, sock.recv
        pack = struct.Struct(f"<Bii{inputs}f").pack
        action = [0.5] * inputs
        acknowledgement = StepCompletedAck(AGENT).encode(end=profile.end_marker)

        def step() -> NDArray[np.float32]:
            send(pack(Code.NEXT_SIMULATION_STEP, AGENT, inputs, *action))
            receive(LARGEST)
            data = receive(LARGEST)
            send(acknowledgement)
            return np.frombuffer(data, "<f4", outputs, 21)

        yield step


@contextlib.contextmanager
def spinning_floor(
    address: str, profile: Profile, inputs: int, outputs: int
) -> Iterator[Callable[[], object]]:
    """A step that asks for each of its two datagrams until it is there."""
    with _registered(address, profile) as sock:
        sock.setblocking(False)
        send, receive = sock.send, sock.recv
        pack = struct.Struct(f"<Bii{inputs}f").pack
        action = [0.5] * inputs
        acknowledgement = StepCompletedAck(AGENT).encode(end=profile.end_marker)
        tries = range(LIMIT * 1_000_000)

        def spin() -> bytes:
            for _ in tries:
                try:
                    return receive(LARGEST)
                except BlockingIOError:
                    pass
            raise BlockingIOError

        def step() -> NDArray[np.float32]:
            send(pack(Code.NEXT_SIMULATION_STEP, AGENT, inputs, *action))
            spin()
            data = spin()
            send(acknowledgement)
            return np.frombuffer(data, "<f4", outputs, 21)

        yield step


@contextlib.contextmanager
def _registered(address: str, profile: Profile) -> Iterator[socket.socket]:
    """A connected socket whose session controls the responder's agent."""
    endpoint = parse_endpoint(address)
    end = profile.end_marker
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # The kernel's own limit: a time-out of Python's would cost a poll in each receive.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", LIMIT, 0))
        try:
            sock.sendto(Init(form=profile.init_form).encode(end=end), (endpoint.host, endpoint.port))
            _, handler = sock.recvfrom(LARGEST)
            sock.connect(handler)
            sock.send(GetAgentOverview().encode(end=end))
            sock.recv(LARGEST)
            sock.recv(LARGEST)
            sock.send(AgentOverviewAck().encode(end=end))
            sock.send(RegisterForAgent(AGENT).encode(end=end))
            sock.recv(LARGEST)
            yield sock
        except BlockingIOError:
            raise QueryTimeout(f"the responder at {address} fell silent for {LIMIT} s") from None
        finally:
            with contextlib.suppress(OSError):
                sock.send(End().encode(end=end))
