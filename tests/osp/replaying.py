"""Driving the client machine with what a real server was recorded to answer.

A recording is cut into connections (one client, one handler port). The requests of the recorded client say which
exchange comes next; the machine carries it out and is fed the recorded replies at their recorded times. What it sent
is then compared with what the recorded client sent.

The machine has no clock here (``StepClock`` without a variable): the recorded clients did not ask for the time, so no
answers about it exist; nor did they set the seed as a variable. Its patience is theirs: they paused up to a second on
purpose.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ospbridge.errors import OspBridgeError
from ospbridge.interface import AgentInterface, Endpoint, InterfaceValue
from ospbridge.osp import messages as osp
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.connecting import ConnectMachine
from ospbridge.osp.client.listing import list_values
from ospbridge.osp.client.machine import ClientMachine, Exchange
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, SeedBy
from ospbridge.osp.step import barrier
from ospbridge.osp.step.votes import Vote

PATIENT = replace(NERD, patience=1.1, seed_by=SeedBy.RESET)
ACKS = {
    Code.AGENT_OVERVIEW_ACK,
    Code.AGENT_INFO_ACK,
    Code.NEXT_SIMULATION_STEP_COMPLETED_ACK,
    Code.RESET_SIMULATION_COMPLETED,
    Code.RESET_SIMULATION_COMPLETED_ACK,
}


@dataclass(frozen=True)
class Record:
    t: float
    sent: bool
    data: bytes
    port: int
    client: str


def read(path: Path) -> list[Record]:
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return [
        Record(row["t"], row["dir"] == "c>s", bytes.fromhex(row["hex"]), row["port"], row["client"])
        for row in rows
        if row["dir"] != "note"
    ]


@dataclass
class Comparison:
    """One connection: what the recorded client sent, and what ours sent."""

    client: str
    recorded: list[str]
    ours: list[str]


def connections(path: Path) -> Iterator[Comparison]:
    """Every connection of a recording, INITs first, replayed."""
    records = read(path)
    handler_ports = {r.port for r in records if not r.sent}
    yield from _inits(records, handler_ports)
    of_handlers = [
        r for r in records if r.port in handler_ports and r.data[:1] != bytes([Code.INIT_COMMUNICATION_ACK])
    ]
    of_handlers.sort(key=lambda r: (r.client, r.port))
    for (client, _), group in groupby(of_handlers, key=lambda r: (r.client, r.port)):
        connection = sorted(group, key=lambda r: r.t)
        yield Replay(client, connection).run()


def _inits(records: list[Record], handler_ports: set[int]) -> Iterator[Comparison]:
    """Each INIT by itself: ours sends the form that the recorded client chose, and adopts what answered."""
    for at, record in enumerate(records):
        if not record.sent or record.port in handler_ports:
            continue
        document = (
            len(record.data) >= 9 and record.data[4] == 0 and record.data[1] == 1 and record.data[2] == 0
        )
        profile = DOCUMENT if document else NERD
        machine = ConnectMachine(Endpoint("127.0.0.1", record.port), profile, now=record.t)
        ours = [data.hex() for data, _ in machine.outgoing]
        answer = next((r for r in records[at:] if not r.sent and r.client == record.client), None)
        if answer is not None and answer.data[:1] == b"\x06" and answer.t - record.t < 0.2:
            machine.receive(answer.data, Endpoint("127.0.0.1", answer.port), answer.t)
            assert machine.adopted == Endpoint("127.0.0.1", answer.port)
        yield Comparison(record.client, [record.data.hex()], ours)


class Replay:
    """One connection under replay."""

    def __init__(self, client: str, records: list[Record]) -> None:
        self.client = client
        self.records = records
        self.machine = ClientMachine(PATIENT)
        self.machine.clock.known = True
        self.ours: list[str] = []
        self.at = 0

    def run(self) -> Comparison:
        machine = self.machine
        while self.at < len(self.records):
            record = self.records[self.at]
            self._timers(record.t)
            self.at += 1
            if not record.sent:
                machine.receive(record.data, record.t)
                self._flush()
            elif machine.finished and record.data and record.data[0] not in ACKS:
                self._start(record)
        recorded = [r.data.hex() for r in self.records if r.sent]
        return Comparison(self.client, recorded, self.ours)

    def _timers(self, until: float) -> None:
        machine = self.machine
        for _ in range(1000):
            if machine.deadline is None or machine.deadline > until:
                return
            machine.handle_timer(machine.deadline)
            self._flush()
        raise AssertionError("the machine does not come to rest")

    def _flush(self) -> None:
        self.ours += [bytes(data).hex() for data in self.machine.outgoing]
        self.machine.outgoing.clear()
        if self.machine.finished:
            with suppress(OspBridgeError):
                self.machine.result()

    def _start(self, record: Record) -> None:
        try:
            request = osp.decode_request(record.data)
        except OspBridgeError:
            return
        exchange = self._exchange(request)
        if exchange is None:
            return
        self.machine.now = record.t
        try:
            self.machine.begin(exchange, record.t)
        except OspBridgeError:
            return
        self._flush()

    def _exchange(self, request: osp.Message) -> Exchange[Any] | None:
        m = self.machine
        makers: dict[type[osp.Message], Callable[[Any], Exchange[Any]]] = {
            osp.GetAgentOverview: lambda _: roster.overview(m),
            osp.GetAgentInfo: lambda x: roster.agent_info(m, x.agent_id),
            osp.RegisterForAgent: lambda x: roster.register(m, _agent(x.agent_id)),
            osp.DeregisterFromAgent: lambda x: roster.deregister(m, x.agent_id),
            osp.RegisterForEvent: lambda x: asking.register_event(m, x.name),
            osp.DeregisterFromEvent: lambda x: asking.ask(
                m, x, asking.answering(osp.DeregisterFromEventAck), what="event"
            ),
            osp.GetValueIds: lambda x: list_values(m, x.expression),
            osp.GetValue: lambda x: asking.get_value(m, x.value_id),
            osp.SetValue: lambda x: asking.set_value(m, x.value_id, x.content),
            osp.ResetSimulation: lambda x: barrier.reset(m, x.seed),
            osp.NextSimulationStep: lambda x: barrier.step(m, self._votes(x)),
            osp.End: lambda _: asking.end(m),
            osp.ResetCommunication: lambda _: asking.reset_communication(m),
        }
        maker = makers.get(type(request))
        return None if maker is None else maker(request)

    def _votes(self, first: osp.NextSimulationStep) -> list[Vote]:
        """The votes of one step: up to the completion, one per agent, in the recorded order."""
        requests = {first.agent_id: first}
        sizes: dict[int, tuple[int, int]] = {}
        voting = True
        for record in self.records[self.at :]:
            if not record.sent and record.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED:
                voting = False
                agent_id, outputs, infos = struct.unpack_from("<xiii", record.data)
                sizes.setdefault(agent_id, (outputs, infos))
            if len(sizes) >= len(requests):
                break
            if not voting:
                continue
            if record.sent and record.data[:1] == bytes([Code.NEXT_SIMULATION_STEP]):
                request = osp.decode_request(record.data)
                assert isinstance(request, osp.NextSimulationStep)
                requests.setdefault(request.agent_id, request)
        votes = []
        for request in requests.values():
            vote = Vote(
                _agent(request.agent_id, len(request.inputs), *sizes.get(request.agent_id, ())), PATIENT
            )
            vote.inputs[:] = np.asarray(request.inputs)
            votes.append(vote)
        return votes


def _agent(agent_id: int, inputs: int = 0, outputs: int = 0, infos: int = 0) -> AgentInterface:
    def values(kind: str, count: int) -> tuple[InterfaceValue, ...]:
        return tuple(InterfaceValue(f"/{kind}/{i}", -1.0, 1.0) for i in range(count))

    return AgentInterface(
        agent_id,
        f"agent {agent_id}",
        values("input", inputs),
        values("output", outputs),
        values("info", infos),
    )
