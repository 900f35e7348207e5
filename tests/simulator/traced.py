"""Traces made up line by line, and replays of them without sockets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ospbridge.observe.trace import Direction, TraceRecord
from ospbridge.osp.messages import (
    Init,
    InitAck,
    Message,
    NextSimulationStep,
    NextSimulationStepAck,
    ResetSimulation,
    ResetSimulationAck,
    ResetSimulationCompleted,
    ResetSimulationCompletedAck,
    StepCompleted,
    StepCompletedAck,
)
from ospbridge.osp.profile import InitForm
from ospbridge.osp.server import CloseHandler, OpenHandler, Send
from ospbridge.simulator.replay_script import read_scripts
from ospbridge.simulator.replaying import ReplayMachine, Told, What

MAIN, HANDLER = 45454, 40001


class Traced:
    """A trace that grows by 10 ms with every datagram."""

    def __init__(self, client: str = "", *, port: int = HANDLER) -> None:
        self.records: list[TraceRecord] = []
        self.client = client
        self.port = port
        self.now = 0.0

    def sent(self, *messages: Message | bytes, port: int = 0) -> Traced:
        return self._all(Direction.CLIENT_TO_SERVER, messages, port)

    def received(self, *messages: Message | bytes, port: int = 0) -> Traced:
        return self._all(Direction.SERVER_TO_CLIENT, messages, port)

    def joined(self) -> Traced:
        return self.sent(Init(1, 1, InitForm.BYTES), port=MAIN).received(InitAck(1, 1, InitForm.BYTES))

    def reset(self, seed: int = 1) -> Traced:
        self.sent(ResetSimulation(seed)).received(ResetSimulationAck(), ResetSimulationCompleted())
        return self.sent(ResetSimulationCompletedAck())

    def step(self, given: float, output: float, *agents: int) -> Traced:
        for agent in agents or (1,):
            self.sent(vote(given, agent)).received(NextSimulationStepAck(agent))
        for agent in agents or (1,):
            self.received(completed(output, agent)).sent(StepCompletedAck(agent))
        return self

    def _all(self, direction: Direction, messages: tuple[Message | bytes, ...], port: int) -> Traced:
        for message in messages:
            data = message if isinstance(message, bytes) else message.encode(end=True)
            self.records.append(TraceRecord(self.now, direction, data, port or self.port, client=self.client))
            self.now = round(self.now + 0.01, 6)
        return self


def vote(given: float, agent: int = 1) -> NextSimulationStep:
    return NextSimulationStep(agent, np.array([given], np.float32))


def completed(output: float, agent: int = 1) -> StepCompleted:
    return StepCompleted(agent, np.array([output], np.float32), np.array([], np.float32))


@dataclass
class Replayed:
    """A machine under replay, and its one client."""

    machine: ReplayMachine
    told: list[Told]
    now: float = 0.0
    handler: int = 0
    closed: list[int] = field(default_factory=list)

    def join(self, peer: str = "peer") -> list[bytes]:
        self.machine.receive_main(Init(1, 1, InitForm.BYTES).encode(), peer, self.now)
        return self.take()

    def ask(self, message: Message | bytes, *, handler: int = 0) -> list[bytes]:
        data = message if isinstance(message, bytes) else message.encode()
        self.machine.receive(handler or self.handler, data, self.now)
        return self.take()

    def wait(self, seconds: float) -> list[bytes]:
        self.now = round(self.now + seconds, 6)
        self.machine.handle_timer(self.now)
        return self.take()

    def take(self) -> list[bytes]:
        sent = []
        for effect in self.machine.take_effects():
            if isinstance(effect, OpenHandler):
                self.handler = effect.handler_id
            elif isinstance(effect, Send):
                sent.append(effect.data)
            elif isinstance(effect, CloseHandler):
                self.closed.append(effect.handler_id)
        return sent

    def of(self, what: What) -> list[str]:
        return [told.text for told in self.told if told.what is what]


def replayed(
    *traces: Traced, speed: float | None = None, loop: bool = False, strict: bool = False
) -> Replayed:
    told: list[Told] = []
    scripts = read_scripts(record for trace in traces for record in trace.records)
    return Replayed(ReplayMachine(scripts, tell=told.append, speed=speed, loop=loop, strict=strict), told)


def bytes_of(*messages: Message) -> list[bytes]:
    return [message.encode(end=True) for message in messages]
