"""A hub of this process, environments at it in threads, and a client of a few lines that says to it what it likes."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.hub.server import HubServer
from ospbridge.daemon.settings import Settings
from ospbridge.hub.framing import Incoming, decode_reply, encode
from ospbridge.hub.replies import Feedbacks, HubReply, Numbers
from ospbridge.hub.requests import VERSION, Again, Attach, Hello, HubRequest, Reset, Step
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import expected
from ospbridge.transport.unix import HubSocket, connect_unix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ospbridge.daemon.hub.admission import TlsListener
    from ospbridge.session.hub_client import AgentHandle
    from ospbridge.simulator.udp import UdpSimulator

WITHIN: Final = 30.0


@asynccontextmanager
async def serving(
    simulator: UdpSimulator,
    path: Path,
    *,
    spin: bool = False,
    remote: TlsListener | None = None,
    **changes: Any,
) -> AsyncIterator[Conductor]:
    """A hub at ``path`` whose simulator is joined; ``changes`` are settings of it."""
    conductor = Conductor(Settings(hub=path, simulator=simulator.address, spin=spin, **changes))
    with (
        closing(HubSocket(path)) as listener,
        HubServer(listener, conductor, spin=spin, remote=remote) as server,
        trio.fail_after(WITHIN),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conductor.run)
            nursery.start_soon(server.serve)
            while not conductor.ready:
                await trio.sleep(0.01)
            yield conductor
            nursery.cancel_scope.cancel()


class Line:
    """Requests and replies as they are, in whatever order and pieces."""

    def __init__(self, path: Path) -> None:
        self._socket = connect_unix(path)
        self._socket.settimeout(WITHIN)
        self._incoming = Incoming()

    @classmethod
    def playing(cls, path: Path, *agents: str) -> Line:
        """One whose episode has begun."""
        line = cls(path)
        line.ask(Hello(VERSION, "line"))
        line.ask(Attach(list(agents)))
        assert isinstance(line.ask(Reset(5)), Feedbacks)
        return line

    def say(self, *requests: HubRequest) -> None:
        self._socket.sendall(b"".join(self.frame(request) for request in requests))

    @staticmethod
    def frame(request: HubRequest) -> bytes:
        frame = bytearray()
        encode(request, frame)
        return bytes(frame)

    def say_bytes(self, data: bytes, *, within: float = WITHIN) -> None:
        self._socket.settimeout(within)
        self._socket.sendall(data)
        self._socket.settimeout(WITHIN)

    def hear(self) -> HubReply:
        while (message := self._incoming.next_message()) is None:
            count = self._socket.recv_into(self._incoming.space())
            assert count, "the daemon hung up"
            self._incoming.received(count)
        return decode_reply(message)

    def ask(self, request: HubRequest) -> HubReply:
        self.say(request)
        return self.hear()

    def close(self) -> None:
        self._socket.close()


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(partial(call, *arguments))


async def at_once(*calls: Callable[[], object]) -> None:
    """Each in a thread of its own."""
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(in_thread, call)


async def left(conductor: Conductor) -> None:
    """Until nobody is attached."""
    while conductor.lockstep.attachments:
        await trio.sleep(0.005)


# --- an agent with two inputs, whose numbers say what it did ---------------------------------------------------------


def values(number: float, count: int = 2) -> Any:
    return np.full(count, number, np.float32)


def acting(*numbers: float, agent: str = "agent1") -> list[HubRequest]:
    return [Step([(agent, values(number).tobytes())]) for number in numbers]


def again(*numbers: float) -> list[HubRequest]:
    return [Again(values(number).tobytes()) for number in numbers]


def observed(reply: HubReply) -> list[float]:
    assert isinstance(reply, (Feedbacks, Numbers)), reply
    data = reply.observations if isinstance(reply, Numbers) else reply.agents[0].observation
    found: list[float] = np.frombuffer(data, "<f4").tolist()
    return found


def wanted(number: float, step: int) -> list[float]:
    """What that step of an episode of seed 5 brings."""
    found: list[float] = expected(values(number), step + 1, 3, 5).tolist()
    return found


def seat(path: Path, name: str) -> AgentHandle:
    return HubClient.connect(f"unix:{path}").attach(name)


def status(path: Path) -> None:
    with closing(HubClient.connect(f"unix:{path}")) as client:
        client.status()


def play(path: Path, name: str, steps: int, meanwhile: Callable[[int], object] = lambda _: None) -> None:
    """Steps of an agent whose number stands in its inputs; what they bring is what the simulator computes."""
    with closing(seat(path, name)) as mine:
        mine.reset(5)
        for number in range(1, steps + 1):
            meanwhile(number)
            feedback = mine.step(values(number / 1024))
            assert not feedback.truncated, feedback.reason
            assert feedback.observation.tolist() == wanted(number / 1024, number)
