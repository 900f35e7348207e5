"""A client machine on a stage of its own: what it is given by hand, and clients of a pair that have joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pytest

from ospbridge.interface import AgentInterface, InterfaceValue, ValueEntry
from ospbridge.osp.client import ClientMachine, Learned
from ospbridge.osp.codes import Code
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.messages import (
    AgentOverview,
    AgentOverviewNext,
    GetValue,
    Message,
    NextSimulationStepAck,
    SetValue,
    SetValueAck,
    StepCompleted,
    ValueContent,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.reset import reset
from ospbridge.osp.step import step
from ospbridge.osp.timing import Limits
from tests.osp.pair import Client, Pair

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
SHORT = Limits(query=2, listing=4, step=3, reset=4)
CLOCK: Final = 5
"""The clock's local id."""
QUESTIONS: Final = (Code.GET_VALUE, Code.GET_AGENT_OVERVIEW, Code.AGENT_OVERVIEW_ACK)


def joined(pair: Pair, *names: str, profile: Profile | None = None, limits: Limits | None = None) -> Client:
    """A client that controls these agents, and found out the profile unless it is told."""
    client = pair.client(profile, limits=limits).connect()
    if names:
        client.do(client.conversation.register(names))
    return client


def on_stage(profile: Profile, *, outputs: int = 1) -> tuple[ClientMachine, StepRequest]:
    """A machine that controls an agent of one input and knows its clock, without a server."""
    stage = Stage(profile, outputs=outputs)
    return stage.machine, stage.requests[0]


def path_of(machine: ClientMachine, *requests: StepRequest) -> FastPath:
    return FastPath(requests, pipelining=machine.profile.pipelining)


def give(machine: ClientMachine, *replies: Message) -> None:
    for reply in replies:
        machine.receive(reply.encode(), machine.now)


def ack(agent_id: int = 1) -> NextSimulationStepAck:
    return NextSimulationStepAck(agent_id)


def brought(*outputs: float, agent_id: int = 1, observed: int = 0) -> StepCompleted:
    """A completion."""
    return StepCompleted(agent_id, np.array(outputs, np.float32), np.empty(0, np.float32), (), observed)


def next_timer(machine: ClientMachine) -> None:
    """Nothing comes until the machine's next deadline."""
    assert machine.deadline is not None
    machine.handle_timer(machine.deadline)


def silence(machine: ClientMachine) -> float:
    """Nothing comes until the exchange ends: seconds until then."""
    began = machine.now
    while not machine.finished:
        next_timer(machine)
        assert machine.now < began + 1000
    return machine.now - began


def sent(machine: ClientMachine) -> list[Code]:
    """The codes of what was sent since the last look."""
    codes = [Code(data[0]) for data in machine.outgoing]
    machine.outgoing.clear()
    return codes


class Stage:
    """A machine with agents 1, 2, .. of one input each, after the first steps of a session.

    ``clock``: what its clock shows; None: such questions meet silence. ``values``: other variables, by id. ``foreign``:
    there is an agent 9 that another client controls. Everything else is given by hand.
    """

    def __init__(
        self,
        profile: Profile = NERD,
        agents: int = 1,
        *,
        outputs: int = 1,
        limits: Limits = SHORT,
        learned: Learned | None = None,
        steps: int = 1,
    ) -> None:
        self.machine = machine = ClientMachine(profile, limits=limits, learned=learned or Learned())
        out = tuple(InterfaceValue(f"/out/{at}", -1, 1) for at in range(outputs))
        for at in range(1, agents + 1):
            name = f"agent{at}"
            machine.controlled[at] = AgentInterface(at, name, (InterfaceValue("/in", -1, 1),), out, ())
        self.requests = [StepRequest(agent, profile) for agent in machine.controlled.values()]
        machine.clock.value_id = CLOCK
        machine.clock.start(0.0)
        machine.clock.size = machine.clock.announced = 0.01
        machine.clock.count = steps
        machine.learned.stepped = machine.learned.stepped or steps > 0
        self.clock: float | None = steps / 100
        self.values: dict[int, str] = {}
        self.foreign = False
        self.reads: Callable[[int], Sequence[Message] | None] = lambda _: None
        """What answers the question for a variable of that id; None: the usual."""
        self.status = 1
        """Of setting the clock."""
        self.silent = False
        """Overviews meet silence."""
        self.gone: set[int] = set()
        """Agents that overviews do not have any more."""
        self.sent: list[tuple[float, Message]] = []
        """When what was sent, since the exchange began."""
        self._began = 0.0

    def shows(self, *outputs: str, agent_id: int = 1) -> None:
        """What the repository shows of an agent's outputs from now on."""
        known = self.machine.values
        known.listed = True
        for at, text in enumerate(outputs):
            value_id = 10 * agent_id + at
            name = f"/Sim/agent{agent_id}/out/{at}"
            known.entries[name] = ValueEntry(value_id, name, f"/out/{at}")
            self.values[value_id] = text

    # --- what it does ----------------------------------------------------------------------------------------------

    def begin_step(self, *inputs: float) -> Stage:
        for request, given in zip(self.requests, inputs, strict=False):
            request.fill([given])
        self.sent.clear()
        self._began = self.machine.now
        self.machine.begin(step(self.machine, path_of(self.machine, *self.requests)), self.machine.now)
        return self._answered()

    def begin_reset(self, seed: int = 0) -> Stage:
        self.sent.clear()
        self._began = self.machine.now
        self.machine.begin(reset(self.machine, seed), self.machine.now)
        return self._answered()

    def give(self, *replies: Message | bytes) -> Stage:
        for reply in replies:
            data = reply if isinstance(reply, bytes) else reply.encode()
            self.machine.receive(data, self.machine.now)
        return self._answered()

    def wait(self, seconds: float) -> Stage:
        """Let so many seconds pass, or less where the exchange ends."""
        until = self.machine.now + seconds + 1e-9
        while (deadline := self.machine.deadline) is not None and deadline <= until:
            self.machine.handle_timer(deadline)
            self._answered()
        if not self.machine.finished:
            self.machine.now = until
        return self

    def _answered(self) -> Stage:
        m = self.machine
        while m.outgoing:
            messages = [decode_request(bytes(data)) for data in m.outgoing]
            m.outgoing.clear()
            self.sent += [(m.now, message) for message in messages]
            for message in messages:
                for reply in self._answers(message):
                    m.receive(reply.encode(), m.now)
        return self

    def _answers(self, message: Message) -> Sequence[Message]:
        if isinstance(message, GetValue) and (answer := self.reads(message.value_id)) is not None:
            return answer
        if isinstance(message, GetValue) and message.value_id == CLOCK and self.clock is not None:
            return [ValueContent(CLOCK, f"{self.clock:.9g}")]
        if isinstance(message, GetValue) and message.value_id in self.values:
            return [ValueContent(message.value_id, self.values[message.value_id])]
        if isinstance(message, SetValue) and message.value_id == CLOCK:
            self.clock = float(message.content) if self.status == 1 else self.clock
            return [SetValueAck(CLOCK, self.status)]
        if message.CODE is Code.GET_AGENT_OVERVIEW and not self.silent:
            ids = [
                *(i for i in self.machine.controlled if i not in self.gone),
                *([9] if self.foreign else []),
            ]
            pieces = [AgentOverviewNext(at, i, "Agent", 0, f"agent{i}") for at, i in enumerate(ids)]
            return [AgentOverview(len(ids)), *pieces]
        return []

    # --- what came of it -------------------------------------------------------------------------------------------

    def took(self, code: Code) -> list[float]:
        """When datagrams of that code were sent."""
        return [when for when, message in self.sent if message.CODE is code]

    @property
    def timeline(self) -> list[tuple[int, Code]]:
        """Everything that was sent, with milliseconds since the exchange began."""
        return [(round(1000 * (when - self._began)), message.CODE) for when, message in self.sent]

    @property
    def codes(self) -> list[Code]:
        """What was sent beside questions about the clock and the agents."""
        return [message.CODE for _, message in self.sent if message.CODE not in QUESTIONS]

    @property
    def anomalies(self) -> list[str]:
        return [notice.text for notice in self.machine.notices]
