"""``python -m ospbridge.bench.responder``: simulators that cost next to nothing, to measure clients against.

Everything but steps is answered by the server machine. A step of the only client is answered from bytes that were made
before (``answering``): nothing is computed but the clock. While steps of a simulator that does not think come, and
there is a core for it, the responder never sleeps between them, so that a client waits for the network stack and not
for this process to wake; with ``--alone`` it has that core to itself (``cores``), and with ``--sleep`` it sleeps all
the same, as simulators do. Several simulators of one responder sleep at the same time. It ends when its standard input
does.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import TYPE_CHECKING

import click
import numpy as np

from ospbridge.bench.answering import LARGEST, Line, Loop, spins_for
from ospbridge.bench.cores import stay_alone
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.server import CloseHandler, OpenHandler, Send, ServerMachine
from ospbridge.simulator.synthetic import SyntheticWorld

if TYPE_CHECKING:
    from ospbridge.bench.answering import Answer
    from ospbridge.osp.profile import Profile

__all__ = ["Responder"]


class Responder:
    """One simulator, at a free port of the loopback interface; ``address`` is HOST:PORT."""

    def __init__(
        self,
        loop: Loop,
        inputs: int,
        outputs: int,
        *,
        profile: Profile,
        agents: int = 1,
        think: float = 0.0,
    ) -> None:
        self._machine = ServerMachine(SyntheticWorld(inputs, outputs, agents=agents, think=think), profile)
        self._profile = profile
        self._think = think
        self._loop = loop
        self._main = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._main.setblocking(False)
        self._main.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._main.getsockname()[1]}"
        loop.add(self._main.fileno(), self._greet)
        self._lines: dict[int, Line] = {}
        """By handler id."""
        self._answers: dict[int, Answer] = {
            control.id: (control.ack, _completion(control.header(0, 0), outputs, self._machine.profile.end))
            for control in self._machine.controls
        }

    def _greet(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data, peer = self._main.recvfrom(LARGEST)
            self._machine.receive_main(data, peer, time.monotonic())
            self._carry_out()

    def _receive(self, handler_id: int, data: bytes) -> None:
        self._machine.receive(handler_id, data, time.monotonic())
        self._carry_out()

    def _run_due(self) -> None:
        self._machine.handle_timer(time.monotonic())
        self._carry_out()

    def _carry_out(self) -> None:
        for effect in self._machine.take_effects():
            if isinstance(effect, Send):
                self._lines[effect.handler_id].send(effect.data)
            elif isinstance(effect, OpenHandler):
                self._open(effect)
            elif isinstance(effect, CloseHandler):
                self._lines.pop(effect.handler_id).close()
        deadline = self._machine.next_deadline()
        if deadline is not None:
            self._loop.at(deadline, self._run_due)
        for handler_id, line in self._lines.items():
            line.answer(self._of(handler_id))

    def _open(self, effect: OpenHandler) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sock.connect(effect.peer)  # type: ignore[arg-type]  # the address that recvfrom gave
        self._lines[effect.handler_id] = Line(
            self._loop,
            sock,
            self._machine.clock,
            lambda data: self._receive(effect.handler_id, data),
            one_by_one=self._profile.completions_one_by_one,
            think=self._think,
        )

    def _of(self, handler_id: int) -> dict[bytes, Answer]:
        """The answers to a client that alone controls agents."""
        own = [
            control.id
            for control in self._machine.controls
            if control.handler is not None and control.handler.id == handler_id
        ]
        if len(own) < self._machine.controlled:
            return {}
        return {agent.to_bytes(4, "little"): self._answers[agent] for agent in own}


def _completion(head: bytes, outputs: int, end: bytes) -> bytes:
    return head + (np.arange(outputs) / max(outputs, 1)).astype("<f4").tobytes() + end


@click.command()
@click.option("--inputs", type=click.IntRange(0, 16_370), default=8, help="Inputs of each agent.")
@click.option("--outputs", type=click.IntRange(0, 16_370), default=16, help="Outputs of each agent.")
@click.option("--profile", type=click.Choice(list(PROFILES)), default="document", help="Kind of server.")
@click.option("--agents", type=click.IntRange(1, 256), default=1, help="Agents of each simulator.")
@click.option("--simulators", type=click.IntRange(1, 256), default=1, help="How many simulators there are.")
@click.option("--think", type=click.FloatRange(0, 10), default=0.0, help="Seconds to sleep in each step.")
@click.option("--alone", is_flag=True, help="Where it does not sleep, have a core that nobody else uses.")
@click.option("--sleep", is_flag=True, help="Sleep between steps even where there is a core to spare.")
def main(
    *,
    inputs: int,
    outputs: int,
    profile: str,
    agents: int,
    simulators: int,
    think: float,
    alone: bool,
    sleep: bool,
) -> None:
    """Answer steps as fast as can be; each simulator's address is a line of output."""
    loop = Loop()
    loop.spins = 0 if sleep else spins_for(simulators=simulators, think=think)
    if loop.spins and alone:
        stay_alone()
    for _ in range(simulators):
        responder = Responder(loop, inputs, outputs, profile=PROFILES[profile], agents=agents, think=think)
        click.echo(responder.address)
    loop.run(until=sys.stdin.fileno())


if __name__ == "__main__":
    main()
