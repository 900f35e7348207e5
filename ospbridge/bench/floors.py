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
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ospbridge.osp.profile import Profile

    Outputs = NDArray[np.float32]

__all__ = ["many_floor", "one_floor"]

LIMIT: Final = 5
"""Seconds after which a floor gives up: a datagram was lost."""
LARGEST: Final = 65_536
AGENT: Final = 1
HEAD: Final = 21
"""Bytes of a completion before its outputs."""
COMPLETED: Final = int(Code.NEXT_SIMULATION_STEP_COMPLETED)


@contextlib.contextmanager
def one_floor(
    address: str, profile: Profile, inputs: int, outputs: int, *, spin: bool
) -> Iterator[Callable[[], object]]:
    """A step of one agent, with two receives; ``spin``: they ask until the datagram is there, else they sleep."""
    with _registered(address, profile) as sock:
        send, receive = sock.send, _spinning(sock) if spin else sock.recv
        pack = struct.Struct(f"<Bii{inputs}f").pack
        action = [0.5] * inputs
        acknowledgement = StepCompletedAck(AGENT).encode(end=profile.end_marker)

        def step() -> Outputs:
            send(pack(Code.NEXT_SIMULATION_STEP, AGENT, inputs, *action))
            receive(LARGEST)
            data = receive(LARGEST)
            send(acknowledgement)
            return np.frombuffer(data, "<f4", outputs, HEAD)

        yield step


@contextlib.contextmanager
def many_floor(
    addresses: Sequence[str], profile: Profile, inputs: int, outputs: int, *, agents: int, spin: bool
) -> Iterator[Callable[[], list[Outputs]]]:
    """A step of all agents of all simulators, with one pack and one frombuffer for each agent.

    All votes are under way at once, where the profile lets them; else those of one simulator wait for each other, as
    its completions do.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_registered(address, profile, agents=agents)) for address in addresses]
        pack = struct.Struct(f"<Bii{inputs}f").pack
        action = [0.5] * inputs
        marker = profile.end_marker
        acknowledgements = [StepCompletedAck(agent).encode(end=marker) for agent in range(1, agents + 1)]
        lines = [(sock.send, _spinning(sock) if spin else sock.recv) for sock in sockets]
        pipelined = agents == 1 or profile.pipelining

        def at_once() -> list[Outputs]:
            found = []
            for send, _ in lines:
                for agent in range(1, agents + 1):
                    send(pack(Code.NEXT_SIMULATION_STEP, agent, inputs, *action))
            for send, receive in lines:
                for acknowledgement in acknowledgements:
                    while (data := receive(LARGEST))[0] != COMPLETED:
                        pass
                    found.append(np.frombuffer(data, "<f4", outputs, HEAD))
                    send(acknowledgement)
            return found

        def one_by_one() -> list[Outputs]:
            found = []
            for send, receive in lines:
                for agent in range(1, agents + 1):
                    send(pack(Code.NEXT_SIMULATION_STEP, agent, inputs, *action))
                    receive(LARGEST)
                for acknowledgement in acknowledgements:
                    found.append(np.frombuffer(receive(LARGEST), "<f4", outputs, HEAD))
                    send(acknowledgement)
            return found

        yield at_once if pipelined else one_by_one


def _spinning(sock: socket.socket) -> Callable[[int], bytes]:
    """A receive that never sleeps."""
    sock.setblocking(False)
    receive = sock.recv
    tries = range(LIMIT * 1_000_000)

    def spin(largest: int) -> bytes:
        for _ in tries:
            try:
                return receive(largest)
            except BlockingIOError:
                pass
        raise BlockingIOError

    return spin


@contextlib.contextmanager
def _registered(address: str, profile: Profile, *, agents: int = 1) -> Iterator[socket.socket]:
    """A connected socket whose session controls the responder's agents."""
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
            for _ in range(1 + agents):
                sock.recv(LARGEST)
            sock.send(AgentOverviewAck().encode(end=end))
            for agent in range(1, agents + 1):
                sock.send(RegisterForAgent(agent).encode(end=end))
                sock.recv(LARGEST)
            yield sock
        except BlockingIOError:
            raise QueryTimeout(f"the responder at {address} fell silent for {LIMIT} s") from None
        finally:
            with contextlib.suppress(OSError):
                sock.send(End().encode(end=end))
