"""What a variable read some time ago is not what it reads now, where answers come late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.messages import GetValue, ValueContent
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import LATENCY, Client, Datagram, Pair, no_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
VALUE = "/Sim/agent/motor/0"
"""An input, which reads as it was given."""


class Late:
    """A session that has made a step; the next question for ``VALUE`` meets an old answer first."""

    def __init__(self, profile: Profile, *, disturbed: bool = True) -> None:
        self.pair = Pair(SyntheticWorld(1, 1), profile)
        self.client: Client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(["agent"]))
        self.client.do(self.talk.reset(1))
        self.step(0.25)
        assert self.client.do(self.talk.get(VALUE)).value == "0.25"
        number = self.talk.machine.values[VALUE].id
        self.old: bytes | None = ValueContent(number, "0.25").encode(end=profile.end_marker)
        self.question = GetValue(number).encode(end=profile.end_marker)
        self.asked = 0
        self.talk.machine.disturbed = disturbed
        self.pair.fault = self.fault

    def fault(self, datagram: Datagram) -> Iterable[float]:
        if datagram.data == self.question:
            self.asked += 1
            if self.old is not None:
                self.pair.answer(self.client, self.old)
                self.old = None
        return (0.0,)

    def step(self, given: float) -> Any:
        return self.client.do(self.talk.step({"agent": np.array([given], np.float32)}))["agent"]


@BOTH
def test_it_is_not_told_when_it_is_asked_for(profile: Profile) -> None:
    late = Late(profile)
    old, late.old = late.old, None
    late.step(0.5)
    late.old = old
    assert late.client.do(late.talk.get(VALUE)).value == "0.5"


def test_nor_where_a_step_s_outcome_carries_it() -> None:
    late = Late(NERD)
    old, late.old = late.old, None
    late.client.do(late.talk.watch([VALUE]))
    late.old = old
    assert late.step(0.5).values == {VALUE: "0.5"}


@BOTH
def test_a_network_that_disturbs_nothing_is_asked_once(profile: Profile) -> None:
    late = Late(profile, disturbed=False)
    late.old = None
    assert late.client.do(late.talk.get(VALUE)).value == "0.25"
    assert late.asked == 1


@BOTH
def test_an_old_answer_that_comes_twice_is_not_what_a_step_brought(profile: Profile) -> None:
    """Of two completions one is a copy of the step before, and the repository tells which."""
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(1))
    for number in range(3):
        client.do(talk.step({"agent": np.array([number / 64], np.float32)}))
    (sensor,) = client.do(talk.values("/Sim/agent/sensor/0"))
    old = ValueContent(sensor.id, client.do(talk.get(sensor.name)).value).encode(end=profile.end_marker)
    copy = next(d.data for d in reversed(pair.sent) if d.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED)
    talk.machine.anomaly("a datagram came late")

    def fault(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] == Code.NEXT_SIMULATION_STEP_ACK:
            pair.at(pair.now + 1.5 * LATENCY, lambda: client.arrive(copy, client.conversation.handler))
        elif datagram.data == GetValue(sensor.id).encode(end=profile.end_marker):
            pair.fault = no_fault
            for _ in range(2):
                pair.answer(client, old)
        return (0.0,)

    pair.fault = fault
    brought = client.do(talk.step({"agent": np.array([0.5], np.float32)}))["agent"]
    assert pair.fault is no_fault
    assert brought.outputs.tolist() == expected(np.array([0.5], np.float32), 4, 1, seed=1).tolist()
