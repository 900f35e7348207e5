"""Inputs read back: what their scale is, which of them are read, and what is made of what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.number_text import Printing
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.echo import InputSeen
from ospbridge.osp.world import Variable
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair
from tests.osp.stage import BOTH

if TYPE_CHECKING:
    from collections.abc import Iterable


def seen(*, low: float = -1.0, high: float = 1.0, printed: str = "0.100000001490116") -> InputSeen:
    printing = Printing()
    printing.learn(printed)
    return InputSeen(low, high, printing)


# --- the scale of one input ---------------------------------------------------------------------------------------


def contradicts(motor: InputSeen, given: float, read: float) -> bool:
    return motor.contradiction(given, read) is not None


def test_a_scale_contradicts_once_a_third_step_has_confirmed_it() -> None:
    motor = seen()
    assert [contradicts(motor, at, 120 * at) for at in (0.0, 0.5, -0.25)] == [False] * 3
    assert contradicts(motor, 0.75, 60.0)
    assert not contradicts(motor, 0.75, 90.0)


@given(
    scale=st.floats(-1e4, 1e4).filter(lambda x: abs(x) > 1e-3),
    shift=st.floats(-1e3, 1e3),
    numbers=st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=20),
)
@example(53.0, 0.0, [0.0, 0.001953125, 0.0, 1.0])
@example(53.0, 999.0, [0.0, 0.001953125, 0.0, 1.0, 0.5, -1.0])
@example(1e4, 1e3, [0.0, 1e-6, 0.0, 1.0, 0.5, 0.25])
def test_an_honest_server_of_any_scale_is_never_contradicted(
    scale: float, shift: float, numbers: list[float]
) -> None:
    motor = seen()
    for number in numbers:
        assert not contradicts(motor, number, float(f"{number * scale + shift:.8g}"))


# --- on the wire --------------------------------------------------------------------------------------------------


class Network:
    """Loses nothing; holds back a second copy of a request until it is let go."""

    def __init__(self, profile: Profile, *, scale: float = 1.0) -> None:
        self.eats = profile.eats_awaited_acks
        self.held: bytes | None = None
        self.hold = False
        self.ahead = False
        self.asked = 0
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
        self.asked += datagram.data[0] == Code.GET_VALUE
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


@BOTH
def test_an_honest_server_of_a_scale_of_its_own_loses_no_episode(profile: Profile) -> None:
    network = Network(profile, scale=120.0)
    network.step(0.1, 0.1)
    network.disturb()
    for number in (0.2, -0.3, 0.4, 0.5, -0.6):
        network.step(number, -number)
    assert not network.client.do(network.talk.audit())


@BOTH
def test_a_network_on_which_nothing_happened_is_not_asked(profile: Profile) -> None:
    network = Network(profile)
    network.step(0.0, 0.1)
    asked = network.asked
    for number in (0.2, 0.3, 0.4):
        network.step(number, number)
    assert network.asked - asked <= 1, "the first steps after a reset tell how long a step takes"
