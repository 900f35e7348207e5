"""Networks that carry nothing for a while, in the middle of a step of several agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import NERD
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = ["agent", "other", "third", "fourth"]
OUTPUTS = 2


class Session:
    """One client. Nothing arrives for ``hole`` seconds from when a vote is sent for the agent of that number, once."""

    def __init__(self, hole: float, agent_id: int) -> None:
        self.hole = hole
        self.vote = bytes((Code.NEXT_SIMULATION_STEP, agent_id))
        self.over: float | None = None
        self.pair = Pair(SyntheticWorld(1, OUTPUTS, names=NAMES), NERD)
        self.client: Client = self.pair.client(NERD).connect()
        self.client.do(self.talk.register(NAMES))
        self.client.do(self.talk.reset(1))
        self.number = 0

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def fault(self, datagram: Datagram) -> Iterable[float]:
        if self.over is None and datagram.data.startswith(self.vote):
            self.over = self.pair.now + self.hole
        return () if self.over is not None and self.pair.now < self.over else (0.0,)

    def step(self) -> float:
        """How long it took. What it brought was the server's own."""
        self.number += 1
        given = np.array([self.number / 64], np.float32)
        began = self.pair.now
        outcome = self.client.do(self.talk.step(dict.fromkeys(NAMES, given)))
        true = expected(given, self.number, OUTPUTS, seed=1).tolist()
        assert all(outcome[name].outputs.tolist() == true for name in NAMES)
        return self.pair.now - began


@pytest.mark.parametrize("agent_id", [1, 2, 3, 4])
@pytest.mark.parametrize("hole", [0.3, 1.0, 2.0, 4.0])
def test_one_vote_is_in_doubt_at_most_where_votes_go_one_by_one(hole: float, agent_id: int) -> None:
    session = Session(hole, agent_id)
    for _ in range(3):
        session.step()
    session.pair.fault = session.fault
    assert hole < session.step() < hole + 3.0
    for _ in range(3):
        session.step()
    assert session.client.do(session.talk.audit()) == ""


def test_one_that_answers_nothing_before_all_votes_are_in_gets_them() -> None:
    session = Session(0.0, 0)
    session.step()
    lost: list[Datagram] = []

    def answers_nothing_between_votes(datagram: Datagram) -> Iterable[float]:
        code, agent_id = datagram.data[0], datagram.data[1]
        if datagram.to_server and code == Code.GET_VALUE and len(session.pair.server.step_votes) % len(NAMES):
            return ()
        if not datagram.to_server and code == Code.NEXT_SIMULATION_STEP_ACK and agent_id == 1 and not lost:
            lost.append(datagram)
            return ()
        return (0.0,)

    session.pair.fault = answers_nothing_between_votes
    assert session.step() < 10.0
    assert lost
    assert session.client.do(session.talk.audit()) == ""
