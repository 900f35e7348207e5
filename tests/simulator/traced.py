"""Traces made up line by line, and replays of them without sockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ospbridge.observe.trace import Direction, TraceRecord
from ospbridge.osp import messages as osp
from ospbridge.osp.profile import InitForm
from ospbridge.osp.server import CloseHandler, OpenHandler, Send
from ospbridge.simulator.replay_script import read_scripts
from ospbridge.simulator.replaying import ReplayMachine, Told, What

MAIN, HANDLER = 45454, 40001
INIT, INIT_ACK = osp.Init(1, 1, InitForm.BYTES), osp.InitAck(1, 1, InitForm.BYTES)


class Traced:
    """A trace of a client that joined; it grows by 10 ms with every datagram."""

    def __init__(self, client: str = "", *, port: int = HANDLER) -> None:
        self.records: list[TraceRecord] = []
        self.client = client
        self.port = port
        self.now = 0.0
        self.sent(INIT, port=MAIN).received(INIT_ACK)

    def sent(self, *messages: osp.Message | bytes, port: int = 0) -> Traced:
        return self._all(Direction.CLIENT_TO_SERVER, messages, port)

    def received(self, *messages: osp.Message | bytes, port: int = 0) -> Traced:
        return self._all(Direction.SERVER_TO_CLIENT, messages, port)

    def reset(self, seed: int = 1) -> Traced:
        self.sent(osp.ResetSimulation(seed)).received(
            osp.ResetSimulationAck(), osp.ResetSimulationCompleted()
        )
        return self.sent(osp.ResetSimulationCompletedAck())

    def step(self, given: float, output: float, *agents: int) -> Traced:
        for agent in agents or (1,):
            self.sent(vote(given, agent)).received(osp.NextSimulationStepAck(agent))
        for agent in agents or (1,):
            self.received(completed(output, agent)).sent(osp.StepCompletedAck(agent))
        return self

    def _all(self, direction: Direction, messages: tuple[osp.Message | bytes, ...], port: int) -> Traced:
        for message in messages:
            data = message if isinstance(message, bytes) else message.encode(end=True)
            self.records.append(TraceRecord(self.now, direction, data, port or self.port, client=self.client))
            self.now = round(self.now + 0.01, 6)
        return self


def vote(given: float, agent: int = 1) -> osp.NextSimulationStep:
    return osp.NextSimulationStep(agent, np.array([given], np.float32))


def completed(output: float, agent: int = 1) -> osp.StepCompleted:
    return osp.StepCompleted(agent, np.array([output], np.float32), np.array([], np.float32))


@dataclass
class Replayed:
    """A machine under replay, and its one client."""

    machine: ReplayMachine
    told: list[Told]
    now: float = 0.0
    handler: int = 0
    closed: list[int] = field(default_factory=list)

    def join(self, peer: str = "peer") -> list[bytes]:
        self.machine.receive_main(INIT.encode(), peer, self.now)
        return self.take()

    def ask(self, message: osp.Message | bytes, *, handler: int = 0) -> list[bytes]:
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


def replayed(*traces: Traced, join: bool = True, **options: Any) -> Replayed:
    """A replay that a client joined."""
    told: list[Told] = []
    scripts = read_scripts(record for trace in traces for record in trace.records)
    replay = Replayed(ReplayMachine(scripts, tell=told.append, **options), told)
    assert not join or replay.join() == bytes_of(INIT_ACK)
    return replay


def bytes_of(*messages: osp.Message) -> list[bytes]:
    return [message.encode(end=True) for message in messages]
