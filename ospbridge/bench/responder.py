"""``python -m ospbridge.bench.responder``: a simulator that costs next to nothing, to measure clients against.

Everything but steps is answered by the server machine. A step of the only controlled agent is answered from bytes
that were made before: acknowledgement and completion go out back to back, nothing is computed but the clock. While
steps come, and there is a core for it, the responder never sleeps between them, so that a client waits for the network
stack and not for this process to wake. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.server import CloseHandler, OpenHandler, Send, ServerMachine
from ospbridge.simulator.synthetic import SyntheticWorld

if TYPE_CHECKING:
    from ospbridge.osp.profile import Profile

__all__ = ["Responder"]

LARGEST: Final = 65_536
SPINS: Final = 600
"""Tries of a receive between two datagrams before the responder sleeps: some 300 us."""
LOOK_EVERY: Final = 1000
"""Datagrams from one client before the others are looked at."""


class Responder:
    """Listens at a free port of the loopback interface; ``address`` is HOST:PORT."""

    def __init__(self, inputs: int, outputs: int, *, profile: Profile) -> None:
        self._machine = ServerMachine(SyntheticWorld(inputs, outputs), profile)
        self._main = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._main.setblocking(False)
        self._main.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._main.getsockname()[1]}"
        self._epoll = select.epoll()
        self._epoll.register(self._main, select.EPOLLIN)
        self._handlers: dict[int, int] = {}
        """Handler id by descriptor."""
        self._sockets: dict[int, socket.socket] = {}
        """By handler id."""
        self._answers = {
            control.id: (control.ack, _completion(control.head, outputs, self._machine.end))
            for control in self._machine.controls
        }
        self._spins = SPINS if len(os.sched_getaffinity(0)) > 1 else 0

    def run(self, until: int) -> None:
        """Serve until descriptor ``until`` becomes readable."""
        self._epoll.register(until, select.EPOLLIN | select.EPOLLHUP)
        while True:
            deadline = self._machine.next_deadline()
            timeout = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
            for descriptor, _ in self._epoll.poll(timeout):
                if descriptor == until:
                    return
                self._serve(descriptor)
            self._run_due()

    def _serve(self, descriptor: int) -> None:
        if descriptor == self._main.fileno():
            with contextlib.suppress(BlockingIOError):
                data, peer = self._main.recvfrom(LARGEST)
                self._machine.receive_main(data, peer, time.monotonic())
        elif descriptor in self._handlers:
            handler_id = self._handlers[descriptor]
            other = self._answer_steps(handler_id, self._sockets[handler_id])
            if other is not None:
                self._machine.receive(handler_id, other, time.monotonic())
        self._carry_out()

    def _answer_steps(self, handler_id: int, sock: socket.socket) -> bytes | None:
        """Answer steps while they come; the first datagram that is something else, or None when nothing comes."""
        receive, send = sock.recv, sock.send
        machine, answers = self._machine, self._answers
        stepping = False
        for _ in range(LOOK_EVERY):
            for _ in range(self._spins + 1):
                try:
                    data = receive(LARGEST)
                except BlockingIOError:
                    if not stepping:
                        return None
                except ConnectionError:
                    return None
                else:
                    break
            else:
                return None
            code = data[0] if data else 0
            if code == Code.NEXT_SIMULATION_STEP and machine.controlled == 1:
                answer = answers.get(int.from_bytes(data[1:5], "little"))
                if answer is None:
                    return data
                stepping = True
                try:
                    send(answer[0])
                    send(answer[1])
                except ConnectionError:
                    return None
                machine.clock.steps += 1
            elif code != Code.NEXT_SIMULATION_STEP_COMPLETED_ACK or not stepping:
                return data
        return None

    def _run_due(self) -> None:
        if self._machine.next_deadline() is not None:
            self._machine.handle_timer(time.monotonic())
            self._carry_out()

    def _carry_out(self) -> None:
        for effect in self._machine.take_effects():
            if isinstance(effect, Send):
                with contextlib.suppress(OSError):
                    self._sockets[effect.handler_id].send(effect.data)
            elif isinstance(effect, OpenHandler):
                sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sock.setblocking(False)
                sock.bind(("127.0.0.1", 0))
                sock.connect(effect.peer)  # type: ignore[arg-type]  # the address that recvfrom gave
                self._sockets[effect.handler_id] = sock
                self._handlers[sock.fileno()] = effect.handler_id
                self._epoll.register(sock, select.EPOLLIN)
            elif isinstance(effect, CloseHandler):
                sock = self._sockets.pop(effect.handler_id)
                del self._handlers[sock.fileno()]
                self._epoll.unregister(sock)
                sock.close()


def _completion(head: bytes, outputs: int, end: bytes) -> bytes:
    return head + (np.arange(outputs) / max(outputs, 1)).astype("<f4").tobytes() + end


@click.command()
@click.option("--inputs", type=click.IntRange(0, 4000), default=8, help="Inputs of the agent.")
@click.option("--outputs", type=click.IntRange(0, 4000), default=16, help="Outputs of the agent.")
@click.option("--profile", type=click.Choice(list(PROFILES)), default="document", help="Kind of server.")
def main(inputs: int, outputs: int, profile: str) -> None:
    """Answer steps as fast as can be; the first line of output is the address."""
    responder = Responder(inputs, outputs, profile=PROFILES[profile])
    click.echo(responder.address)
    responder.run(until=sys.stdin.fileno())


if __name__ == "__main__":
    main()
