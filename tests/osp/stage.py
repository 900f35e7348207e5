"""A client machine on a stage of its own: what it is given by hand, and clients of a pair that have joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import Message, StepCompleted
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.votes import Vote
from ospbridge.osp.timing import Limits

if TYPE_CHECKING:
    from tests.osp.pair import Client, Pair

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
SHORT = Limits(query=2, listing=4, step=3, reset=4)


def joined(pair: Pair, *names: str, profile: Profile | None = None, limits: Limits | None = None) -> Client:
    """A client that controls these agents, and found out the profile unless it is told."""
    client = pair.client(profile, limits=limits).connect()
    if names:
        client.do(client.conversation.register(names))
    return client


def on_stage(profile: Profile, *, outputs: int = 1) -> tuple[ClientMachine, Vote]:
    """A machine that controls an agent of one input and knows its clock, without a server."""
    machine = ClientMachine(profile, limits=SHORT)
    agent = AgentInterface(
        1, "agent", (InterfaceValue("/in", -1, 1),), (InterfaceValue("/out", -1, 1),) * outputs, ()
    )
    machine.controlled[1] = agent
    machine.clock.known = True
    machine.clock.value_id = 5
    machine.clock.start(0.0)
    machine.clock.size = 0.01
    return machine, Vote(agent, profile)


def give(machine: ClientMachine, *replies: Message) -> None:
    for reply in replies:
        machine.receive(reply.encode(), machine.now)


def brought(*outputs: float, observed: int = 0) -> StepCompleted:
    return StepCompleted(1, np.array(outputs, np.float32), np.empty(0, np.float32), (), observed)


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
