"""Several agents of a server that acknowledges the last vote behind what the step brought, and shows too little.

Where it has no clock, or no variables to read what a step brought, nothing but the order of its datagrams tells that
its steps are as they should be. It is learned from steps that are told as uncertain, and handed on to the next session.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.lateness import RULE
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
AGENTS = pytest.mark.parametrize("agents", [2, 3])
KINDS = pytest.mark.parametrize("kind", [(False, True), (True, False), (False, False)])
"""Whether values are shown, and a clock."""
NAMES = ["agent", "other", "third"]
OUTPUTS = 3
BEHIND_ALL = 0.0005


class AcknowledgesLast(Pair):
    """Its server acknowledges the vote that lets the world step, whichever that is, behind what the step brought."""

    def _to_client(self, handler_id: int, data: bytes) -> None:
        if data[0] == Code.NEXT_SIMULATION_STEP_ACK and self.server.due:
            self.at(self.now + BEHIND_ALL, partial(super()._to_client, handler_id, data))
        else:
            super()._to_client(handler_id, data)


class Sessions:
    """One session after the other, each of which knows what the one before has learned."""

    def __init__(self, profile: Profile, agents: int, *, shown: bool, clock: bool) -> None:
        self.profile = profile
        self.names = NAMES[:agents]
        self.pair = AcknowledgesLast(SyntheticWorld(1, OUTPUTS, names=self.names), profile)
        self.pair.hide(clock=not clock, values=not shown)
        self.client: Client = self.pair.client(profile).connect()
        self.begin()

    def begin(self) -> None:
        self.client.do(self.talk.register(self.names))
        self.client.do(self.talk.reset(1))
        self.number = 0

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def next(self) -> None:
        lateness = self.talk.machine.lateness
        self.client.do(self.talk.leave())
        self.client = self.pair.client(self.profile).connect()
        self.talk.machine.lateness.learn_from(lateness)
        self.begin()

    def step(self) -> bool:
        """Whether it brought what it should."""
        self.number += 1
        given = np.array([self.number / 64], np.float32)
        outcome = self.client.do(self.talk.step(dict.fromkeys(self.names, given)))
        true = expected(given, self.number, OUTPUTS, seed=1).tolist()
        return all(outcome[name].outputs.tolist() == true for name in self.names)

    def get_used_to_it(self) -> None:
        for _ in range(RULE):
            with pytest.raises(StepUncertain, match="before the last vote was acknowledged"):
                self.step()
            self.next()


@BOTH
@AGENTS
@KINDS
def test_it_plays_behind_a_few_steps_that_were_told(
    profile: Profile, agents: int, kind: tuple[bool, bool]
) -> None:
    sessions = Sessions(profile, agents, shown=kind[0], clock=kind[1])
    sessions.get_used_to_it()
    for _ in range(2):
        began = sessions.pair.now
        assert all(sessions.step() for _ in range(20))
        assert sessions.pair.now - began < 0.2
        assert sessions.client.do(sessions.talk.audit()) == ""
        # The same once more: what it brings has come before.
        sessions.client.do(sessions.talk.reset(1))
        sessions.number = 0


@BOTH
@AGENTS
@KINDS
@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("which", [1, 2])
def test_a_step_that_ran_by_a_copy_whose_acknowledgement_was_lost_is_told_by_the_next_one(
    profile: Profile, agents: int, kind: tuple[bool, bool], at: int, which: int
) -> None:
    sessions = Sessions(profile, agents, shown=kind[0], clock=kind[1])
    sessions.get_used_to_it()
    for _ in range(at):
        assert sessions.step()
    happened = {"copied": False, "lost": False}

    def fault(datagram: Datagram) -> Iterable[float]:
        code, agent = datagram.data[0], datagram.data[1] if len(datagram.data) > 1 else 0
        if code == Code.NEXT_SIMULATION_STEP and agent == which and not happened["copied"]:
            happened["copied"] = True
            return (0.0, 0.0)
        if code == Code.NEXT_SIMULATION_STEP_ACK and agent == which and not happened["lost"]:
            happened["lost"] = True
            return ()
        return (0.0,)

    sessions.pair.fault = fault
    right, told = [], False
    try:
        for _ in range(5):
            right += [sessions.step()]
    except StepUncertain:
        told = True
    assert all(happened.values())
    assert all(right[:-1])
    assert told or all(right)
