"""An episode that is the one before once more, step by step, on a network that loses something in it.

So it is where a policy without chance plays with the same seed again: every completion is one that came before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS = 12
LOST_IN = 4
GIVEN = np.array([0.25], np.float32)
LOST = [Code.NEXT_SIMULATION_STEP_ACK, Code.NEXT_SIMULATION_STEP_COMPLETED]


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("lost", LOST, ids=lambda code: code.name)
def test_what_is_lost_in_one_step_costs_those_behind_it_nothing(profile: Profile, lost: Code) -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["agent"]), profile)
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    loses = False

    def fault(datagram: Datagram) -> Iterable[float]:
        nonlocal loses
        if loses and not datagram.to_server and datagram.data[0] == lost:
            loses = False
            return ()
        return (0.0,)

    pair.fault = fault
    took = []
    for episode in range(2):
        client.do(talk.reset(7))
        for step in range(1, STEPS + 1):
            loses = episode == 1 and step == LOST_IN
            began = pair.now
            outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
            np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, step, 2, 7))
            took.append(pair.now - began)
    assert took[STEPS + LOST_IN - 1] > 0.2, "something was lost"
    assert max(took[STEPS + LOST_IN :]) < profile.patience
    assert len(pair.ledger) >= 2 * STEPS
