"""Servers whose repository prints fewer digits than a float32 has, as most do that were not written for it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import Profile
from ospbridge.osp.server import repository as server_repository
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair
from tests.osp.stage import BOTH

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMATS = pytest.mark.parametrize("form", ["{:.6g}", "{:.4g}", "{:.3f}", "{:.6f}", "{:.15g}"])
COUNTED, DONE = Code.NEXT_SIMULATION_STEP_ACK, Code.NEXT_SIMULATION_STEP_COMPLETED
SEED = 7


class Robot:
    """The only agent of a simulator whose repository prints numbers in this form."""

    def __init__(self, profile: Profile, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_repository, "format_double", form.format)
        self.pair = Pair(SyntheticWorld(2, 3, 1), profile)
        self.client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(["agent"]))
        self.client.do(self.talk.reset(SEED))
        self.count = 0
        self.draw = random.Random(3)

    def step(self) -> bool:
        """Whether its completion was read back."""
        self.count += 1
        inputs = np.array([self.draw.uniform(-1, 1), self.count / 1000], np.float32)
        brought = self.client.do(self.talk.step({"agent": inputs}))["agent"]
        found = np.concatenate([brought.outputs, brought.infos])
        np.testing.assert_allclose(found, expected(inputs, self.count, 4, seed=SEED), rtol=1e-3, atol=1e-3)
        return bool(brought.restored)

    def meets(self, code: Code, *delays: float) -> None:
        """The next datagram of that kind arrives so often, and so late."""
        left = [1]

        def fault(datagram: Datagram) -> Iterable[float]:
            if left and datagram.data[0] == code:
                left.clear()
                return delays
            return (0.0,)

        self.pair.fault = fault


@BOTH
@FORMATS
@pytest.mark.parametrize("code", [COUNTED, DONE], ids=["acknowledgement", "completion"])
def test_what_is_lost_costs_no_episode(
    profile: Profile, form: str, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = Robot(profile, form, monkeypatch)
    for number in range(40):
        if number % 7 == 5:
            robot.meets(code)
        robot.step()
    assert robot.client.do(robot.talk.audit()) == ""
