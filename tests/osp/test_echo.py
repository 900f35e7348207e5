"""Inputs read back: what their scale is, and what is made of what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.number_text import Printing
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.echo import InputSeen
from ospbridge.osp.world import Variable
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.mark.parametrize("scale, shift", [(1.0, 0.0), (53.0, 0.0), (53.0, 999.0), (1e4, 1e3)])
def test_an_honest_server_of_any_scale_is_never_contradicted(scale: float, shift: float) -> None:
    motor = InputSeen(-1.0, 1.0, Printing())
    for number in (0.0, 0.001953125, 0.0, 1.0, 0.5, -1.0):
        assert motor.contradiction(number, float(f"{number * scale + shift:.8g}")) is None


class Network:
    """Loses nothing; holds back a second copy of a request until it is let go."""

    def __init__(self, profile: Profile, *, scale: float = 1.0) -> None:
        self.eats = profile.eats_awaited_acks
        self.held: bytes | None = None
        self.hold = False
        self.ahead = False
        self.pair = Pair(SyntheticWorld(2, 2), profile, fault=self.fault)
        repository = self.pair.server.repository
        for name, variable in repository.variables.items():
            if "/motor" in name and scale != 1.0:
                repository.variables[name] = scaled(variable, scale)
        self.client: Client = self.pair.client(profile).connect()
        self.talk = self.client.conversation
        self.client.do(self.talk.register(["agent"]))
        self.client.do(self.talk.reset(7))

    def fault(self, datagram: Datagram) -> Iterable[float]:
        if not datagram.to_server:
            return (0.0,)
        if datagram.data[0] == Code.NEXT_SIMULATION_STEP:
            if self.hold:
                self.held, self.hold = bytes(datagram.data), False
            elif self.ahead and self.held is not None:
                # The late copy is a little sooner than this request, which is taken for an acknowledgement or lost.
                self.ahead = False
                self.pair.to_handler(self.held, self.talk.handler.port, self.client.address)
                return (1e-6,) if self.eats else ()
        return (0.0,)

    def step(self, *inputs: float) -> None:
        self.client.do(self.talk.step({"agent": list(inputs)}))

    def disturb(self) -> None:
        self.talk.machine.now = self.pair.now
        self.talk.machine.anomaly("a datagram came late")


def scaled(variable: Variable, scale: float) -> Variable:
    return Variable(
        variable.name, variable.type, lambda: f"{float(variable.read()) * scale:.15g}", variable.write
    )


@pytest.mark.parametrize("profile, scale", [(DOCUMENT, 1.0), (DOCUMENT, 120.0), (NERD, 1.0), (NERD, 120.0)])
def test_a_late_request_that_takes_the_place_of_a_later_one_is_told(profile: Profile, scale: float) -> None:
    network = Network(profile, scale=scale)
    network.step(0.1, 0.1)
    network.disturb()
    for number in (0.2, 0.3, 0.4):
        network.step(number, number)
    network.hold = True
    network.step(0.5, 0.5)
    network.step(0.6, 0.6)
    network.ahead = True
    with pytest.raises(
        StepUncertain, match=rf"reads {0.5 * scale:g}, it was given 0\.7: an earlier request came late"
    ):
        network.step(0.7, 0.7)
    used = [entry["agents"]["agent"]["inputs"][0] for entry in network.pair.ledger[-2:]]
    np.testing.assert_allclose(used, [0.6, 0.5], rtol=1e-6)
    assert network.client.do(network.talk.audit()), "the episode is not to be trusted"
