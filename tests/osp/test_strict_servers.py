"""Servers with one thread that, until the last completion is acknowledged, throw away whatever else has come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.server.machine import ServerMachine
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Pair

OUTPUTS = 3
NAMES = ["agent", "other", "third"]
SEEN = Code.NEXT_SIMULATION_STEP_COMPLETED_ACK
STRICT = replace(DOCUMENT, completions_one_by_one=True)


class Working(ServerMachine):
    """Reads nothing while it steps, and hears only acknowledgements while it awaits them."""

    pair: Pair
    takes = 0.0
    busy = False
    unread: list[tuple[int, bytes]]

    def receive(self, handler_id: int, data: bytes, now: float) -> None:
        if self.busy:
            self.unread.append((handler_id, data))
        elif data[0] == SEEN or not self._handlers[handler_id].waits_for_ack:
            super().receive(handler_id, data, now)

    def _run_step(self, now: float) -> None:
        self.busy = True
        self.pair.at(now + self.takes, self._end)

    def _end(self) -> None:
        self.busy = False
        super()._run_step(self.pair.now)
        unread, self.unread = self.unread, []
        for handler_id, data in unread:
            self.receive(handler_id, data, self.pair.now)
        self.pair.flush_server()


class Session:
    """One client of such a server, in whose world each step brings something else."""

    def __init__(self, takes: float, *, agents: int, shown: bool) -> None:
        self.names = NAMES[:agents]
        world = SyntheticWorld(1, OUTPUTS, names=self.names)
        self.pair = Pair(world, DOCUMENT)
        server = Working(world, STRICT, ledger=self.pair.ledger.append)
        server.pair, server.takes, server.unread = self.pair, takes, []
        server._was_reset = True
        if not shown:
            variables = server.repository.variables
            for name in [name for name in variables if name.startswith("/Sim/")]:
                del variables[name]
        self.server = self.pair.server = server
        self.client: Client = self.pair.client(DOCUMENT).connect()
        self.client.do(self.talk.register(self.names))
        self.number = 0

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def reset(self, seed: int) -> None:
        self.number, self.seed = 0, seed
        self.client.do(self.talk.reset(seed))

    def step(self) -> float:
        """How long it took. What it brought was the server's own."""
        self.number += 1
        given = np.array([self.number / 64], np.float32)
        began = self.pair.now
        outcome = self.client.do(self.talk.step(dict.fromkeys(self.names, given)))
        true = expected(given, self.number, OUTPUTS, seed=self.seed).tolist()
        assert all(outcome[name].outputs.tolist() == true for name in self.names)
        return self.pair.now - began

    @property
    def audit(self) -> str:
        reason: str = self.client.do(self.talk.audit())
        return reason


@pytest.mark.parametrize("shown", [True, False], ids=["shown", "not_shown"])
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("takes", [0.27, 0.4, 0.6, 2.5])
def test_a_question_that_is_thrown_away_is_not_waited_for_once_the_completions_have_come(
    takes: float, agents: int, shown: bool
) -> None:
    session = Session(takes, agents=agents, shown=shown)
    for seed in (1, 2):
        session.reset(seed)
        took = [session.step() for _ in range(8)]
        assert max(took[2:]) < takes + 0.02
        assert session.audit == ""
