"""A daemon of a few lines, whose answers a test chooses."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from ospbridge.daemon.hub.listener import HubSocket
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import Incoming, decode_request, encode
from ospbridge.hub.replies import (
    AgentFeedback,
    Attached,
    Detached,
    Feedbacks,
    HubReply,
    Numbers,
    Refusal,
    Welcome,
)
from ospbridge.hub.requests import VERSION, Again, Attach, Detach, Hello, HubRequest, Reset, Step
from ospbridge.observe.runtime import default_hub

if TYPE_CHECKING:
    Replies = HubReply | bytes | list[HubReply | float] | None
    Answer = Callable[[HubRequest], Replies]

CART = AgentDescription(
    "cart",
    "Agent",
    [("/force", -1.0, 1.0), ("/brake", 0.0, 1.0)],
    [("/position", -2.0, 2.0)],
    [("/episode/reward", 0.0, 1.0)],
    (np.array([-2], np.float32).tobytes(), np.array([2], np.float32).tobytes()),
    (np.array([-1, 0], np.float32).tobytes(), np.array([1, 1], np.float32).tobytes()),
)
ATTACHED = Attached([CART], 0.2, 0.3)


def feedback(
    observation: float = 0.5, *, seed: int = 1, truncated: bool = False, reason: str = ""
) -> Feedbacks:
    return Feedbacks(
        [
            AgentFeedback(
                "cart",
                bytearray(np.float32(observation).tobytes()),
                np.float32(0.25).tobytes(),
                0.25,
                False,
                truncated,
                reason,
                seed,
                ("/episode/ended",),
                {"/x": "1"},
                False,
            )
        ]
    )


def numbers(observation: float, *, observed: int = 1, informed: int = 1, rewards: int = 1) -> Numbers:
    return Numbers(
        1,
        bytearray(np.full(observed, observation, "<f4").tobytes()),
        np.full(informed, 0.25, "<f4").tobytes(),
        np.full(rewards, 0.25).tobytes(),
    )


def usual(request: HubRequest) -> Replies:
    """What a daemon answers; a step brings back the sum of the inputs."""
    match request:
        case Hello():
            return Welcome(VERSION)
        case Attach():
            return ATTACHED
        case Reset(seed):
            return feedback(0.0, seed=seed)
        case Step([(_, inputs)]):
            return feedback(float(np.frombuffer(inputs, "<f4").sum()))
        case Again(inputs):
            return numbers(float(np.frombuffer(inputs, "<f4").sum()))
        case Detach():
            return Detached()
    return Refusal("HubError", "what?")


class TinyDaemon:
    """Answers one client after the other.

    None is silence, bytes are sent as they are and end the connection; in a list a number is a pause in seconds.
    """

    def __init__(self, answer: Answer = usual) -> None:
        self.answer = answer
        self.requests: list[HubRequest] = []
        self.ends = 0
        self._listener = HubSocket(default_hub())
        self._listener.socket.setblocking(True)
        self._stopping = False
        self._current: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stopping:
            try:
                sock, _ = self._listener.socket.accept()
            except OSError:
                # Shut down by ``stop``.
                return
            self._current = sock
            with sock, suppress(OSError):
                self._converse(sock)
            self.ends += 1

    def _converse(self, sock: socket.socket) -> None:
        incoming = Incoming()
        while count := sock.recv_into(incoming.space()):
            incoming.received(count)
            while (message := incoming.next_message()) is not None:
                request = decode_request(message)
                self.requests.append(request)
                reply = self.answer(request)
                if isinstance(reply, bytes):
                    sock.sendall(reply)
                    return
                for part in reply if isinstance(reply, list) else [reply]:
                    self._send(sock, part)

    def _send(self, sock: socket.socket, part: HubReply | float | None) -> None:
        if isinstance(part, float):
            time.sleep(part)
        elif part is not None:
            frame = bytearray()
            encode(part, frame)
            sock.sendall(frame)

    def hang_up(self) -> None:
        assert self._current is not None
        self._current.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._stopping = True
        with suppress(OSError):
            self._listener.socket.shutdown(socket.SHUT_RDWR)
        if self._current is not None:
            with suppress(OSError):
                self._current.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()


@contextmanager
def daemon(answer: Answer = usual) -> Iterator[TinyDaemon]:
    running = TinyDaemon(answer)
    try:
        yield running
    finally:
        running.stop()
