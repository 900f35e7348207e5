"""A client of the default hub, of a few lines, that says what it likes; and an agent whose numbers say what it did."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from ospbridge.hub.framing import Incoming, decode_reply, encode
from ospbridge.hub.replies import Feedbacks, HubReply, Numbers, Refusal
from ospbridge.hub.requests import VERSION, Again, Attach, Hello, HubRequest, Reset, Step
from ospbridge.observe.runtime import default_hub
from ospbridge.simulator.synthetic import expected
from ospbridge.transport.unix import connect_unix
from tests.daemon.running import WITHIN, seat_of


class Line:
    """Requests and replies as they are, in whatever order and pieces."""

    def __init__(self) -> None:
        self._socket = connect_unix(default_hub())
        self._socket.settimeout(WITHIN)
        self._incoming = Incoming()

    @classmethod
    def greeted(cls) -> Line:
        line = cls()
        line.ask(Hello(VERSION, "line"))
        return line

    @classmethod
    def playing(cls, *agents: str) -> Line:
        """One whose episode has begun."""
        line = cls.greeted()
        line.ask(Attach(list(agents)))
        assert isinstance(line.ask(Reset(5)), Feedbacks)
        return line

    @staticmethod
    def frame(*requests: HubRequest) -> bytes:
        frames = [bytearray() for _ in requests]
        for request, frame in zip(requests, frames, strict=True):
            encode(request, frame)
        return b"".join(frames)

    def say(self, data: bytes, *, within: float = WITHIN) -> None:
        self._socket.settimeout(within)
        self._socket.sendall(data)
        self._socket.settimeout(WITHIN)

    def hear(self) -> HubReply:
        while (message := self._incoming.next_message()) is None:
            count = self._socket.recv_into(self._incoming.space())
            assert count, "the daemon hung up"
            self._incoming.received(count)
        return decode_reply(message)

    def ask(self, request: HubRequest | bytes) -> HubReply:
        self.say(request if isinstance(request, bytes) else self.frame(request))
        return self.hear()

    def refusal(self, request: HubRequest | bytes) -> Refusal:
        refused = self.ask(request)
        assert isinstance(refused, Refusal)
        return refused

    def close(self) -> None:
        self._socket.close()


def values(number: float) -> Any:
    return np.full(2, number, np.float32)


def acting(number: float, agent: str = "agent1") -> HubRequest:
    return Step([(agent, values(number).tobytes())])


def again(*numbers: float) -> HubRequest:
    """The same agents act once more, a number each."""
    return Again(b"".join(values(number).tobytes() for number in numbers))


def observed(reply: HubReply) -> list[float]:
    assert isinstance(reply, (Feedbacks, Numbers)), reply
    data = reply.observations if isinstance(reply, Numbers) else reply.agents[0].observation
    found: list[float] = np.frombuffer(data, "<f4").tolist()
    return found


def wanted(number: float, step: int) -> list[float]:
    """What that step of an episode of seed 5 brings."""
    found: list[float] = expected(values(number), step + 1, 3, 5).tolist()
    return found


def play(name: str, steps: int) -> None:
    """Steps of an agent whose number stands in its inputs; what they bring is what the simulator computes."""
    with closing(seat_of(name)) as mine:
        mine.reset(5)
        for number in range(1, steps + 1):
            feedback = mine.step(values(number / 1024))
            assert not feedback.truncated, feedback.reason
            assert feedback.observation.tolist() == wanted(number / 1024, number)
