"""Servers that send a completion again until it is acknowledged: what they sent is never acknowledged unseen."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.clock import SIMULATION_TIME
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OUTPUTS = 3
VOTE, COUNTED = Code.NEXT_SIMULATION_STEP, Code.NEXT_SIMULATION_STEP_ACK
DONE, SEEN = Code.NEXT_SIMULATION_STEP_COMPLETED, Code.NEXT_SIMULATION_STEP_COMPLETED_ACK
AGENTS = pytest.mark.parametrize("agents", [1, 2])


class Session:
    """One client of a server that shows no interface values; ``again``: seconds until a completion is sent again.

    ``lost``: whether a datagram is, by its code and how many of that code there were. None: it is not sent again.
    """

    def __init__(
        self, again: float | None, lost: Callable[[int, int], bool], *, agents: int = 1, clock: bool = True
    ) -> None:
        self.again = again
        self.lost: Callable[[int, int], bool] = lambda _code, _number: False
        self.count: dict[int, int] = {}
        self.open: dict[bytes, bytes] = {}
        """Completions that nobody has acknowledged, by the bytes of their agent."""
        self.names = ["agent", "other"][:agents]
        self.pair = Pair(SyntheticWorld(1, OUTPUTS, names=self.names), DOCUMENT, fault=self._fault)
        variables = self.pair.server.repository.variables
        for name in [
            name for name in variables if name.startswith("/Sim/") or (name == SIMULATION_TIME and not clock)
        ]:
            del variables[name]
        self.client: Client = self.pair.client(DOCUMENT).connect()
        self.client.do(self.talk.register(self.names))
        self.lost = lost

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        code, agent = datagram.data[0], datagram.data[1:5]
        if datagram.to_server and code == SEEN:
            self.open.pop(agent, None)
        if not datagram.to_server and code == DONE and datagram.data not in self.open.values():
            self.open[agent] = datagram.data
            self._later(agent)
        number = self.count[code] = self.count.get(code, -1) + 1
        return () if self.lost(code, number) else (0.0,)

    def _later(self, agent: bytes) -> None:
        data = self.open[agent]

        def send() -> None:
            if self.open.get(agent) is data:
                if not self.lost(DONE, -1):
                    self.pair.answer(self.client, data)
                self._later(agent)

        if self.again is not None:
            self.pair.at(self.pair.now + self.again, send)

    def episode(self, steps: int, *, seed: int = 1) -> list[int]:
        """Steps whose observation was not the server's own."""
        self.client.do(self.talk.reset(seed))
        wrong = []
        for number in range(steps):
            given = np.array([(number + 1) / 64], np.float32)
            outcome = self.client.do(self.talk.step(dict.fromkeys(self.names, given)))
            true = expected(given, number + 1, OUTPUTS, seed=seed).tolist()
            if any(outcome[name].outputs.tolist() != true for name in self.names):
                wrong.append(number)
        assert self.client.do(self.talk.audit()) == ""
        return wrong


@AGENTS
@pytest.mark.parametrize("again", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("lost", [0, 3])
def test_a_lost_completion_is_awaited_until_it_is_sent_again(again: float, lost: int, agents: int) -> None:
    session = Session(again, lambda code, number: code == DONE and number == lost, agents=agents)
    begun = session.pair.now
    assert session.episode(8) == []
    assert session.pair.now - begun < again + 0.5


@pytest.mark.parametrize("again", [0.3, 1.0])
def test_so_is_one_beside_a_server_without_a_clock(again: float) -> None:
    session = Session(again, lambda code, number: code == DONE and number == 3, clock=False)
    assert session.episode(8) == []


@pytest.mark.parametrize("clock", [True, False])
@pytest.mark.parametrize("again", [0.3, None])
@pytest.mark.parametrize("lost", [0, 3])
def test_the_completion_of_a_vote_whose_acknowledgement_was_lost_is_believed(
    lost: int, again: float | None, clock: bool
) -> None:
    session = Session(again, lambda code, number: code == COUNTED and number == lost, clock=clock)
    begun = session.pair.now
    assert session.episode(8) == []
    assert session.pair.now - begun < 3.0


def test_the_acknowledgement_of_a_completion_may_be_lost_as_well() -> None:
    session = Session(0.3, lambda code, number: code == SEEN and number in (0, 2, 3))
    assert session.episode(8) == []


@AGENTS
@pytest.mark.parametrize("seed", range(40))
def test_whatever_gets_lost_only_a_vote_that_is_lost_twice_or_several_votes_end_an_episode(
    seed: int, agents: int
) -> None:
    draw = random.Random(seed)
    session = Session(0.3, lambda _code, _number: draw.random() < 0.03, agents=agents)
    wrong, reason = [], ""
    try:
        for number in range(4):
            wrong += session.episode(25, seed=number + 1)
    except StepUncertain as error:
        reason = error.message
    assert wrong == []
    assert not reason or "sent again" in reason or "several votes are in doubt" in reason
