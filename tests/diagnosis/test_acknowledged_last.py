"""Servers that acknowledge a vote behind the step that it ran."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.diagnosis.greeting import Server
from ospbridge.diagnosis.stage import Stage
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted
from tests.diagnosis.foreign import GREETING, ForeignServer

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.loopback
NONE = np.zeros(0, np.float32)
AGENT = AgentInterface(1, "agent", (), (InterfaceValue("/sensor", -1.0, 1.0),), ())


def test_the_step_of_a_probe_is_not_missed_there() -> None:
    steps = 0
    confirmed = 0

    def manners(data: bytes) -> Iterable[bytes]:
        nonlocal steps, confirmed
        if data[:1] == b"\x05":
            return [GREETING]
        if data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED_ACK:
            confirmed += 1
        if data[0] != Code.NEXT_SIMULATION_STEP:
            return []
        steps += 1
        completed = StepCompleted(1, np.array([steps], np.float32), NONE, (), 0)
        return [completed.encode(end=True), NextSimulationStepAck(1).encode(end=True)]

    with ForeignServer(manners) as server:
        stage = Stage(Server(socket.AF_INET, server.address), timeout=5.0)
        try:
            for number in (1, 2, 3):
                (reply,) = stage.step([AGENT])
                assert isinstance(reply.message, StepCompleted)
                assert reply.message.outputs.tolist() == [number]
        finally:
            stage.close()
    assert (steps, confirmed) == (3, 3)
