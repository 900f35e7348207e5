"""What is wrong and untold is excused only by what the network did."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import NERD
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.environment import Environment
from tests.osp.pair import Datagram, Pair
from tests.storm.explaining import FateLog, judge
from tests.storm.lives import INPUTS, OUTPUTS, Episode, Life, Storm, Untruth, Weather

ACTIONS: Final = [[0.25] * INPUTS, [0.5] * INPUTS, [0.75] * INPUTS]
OLD: Final = [0.125] * OUTPUTS
LIFE: Final = Life("agent0", [Episode(actions=ACTIONS)])
OVERTAKEN: Final = Untruth("agent0", 0, 3, ACTIONS[2], "", ran=tuple(ACTIONS[0]))
OUTDATED: Final = Untruth("agent0", 0, 3, ACTIONS[2], "", brought=tuple(OLD))
SURPLUS: Final = Untruth("agent0", 0, 3, [], "", surplus=True)


def logged(code: Code, *delays: float) -> FateLog:
    """Three steps, a second apart; a request or completion of the first one meets these delays."""
    pair = Pair(SyntheticWorld(INPUTS, OUTPUTS), NERD)
    log = FateLog(
        pair, lambda datagram: delays if datagram.number == 0 and datagram.data[0] == code else (0.0,)
    )
    for number, action in enumerate(ACTIONS):
        request = struct.pack(f"<Bii{INPUTS}f", Code.NEXT_SIMULATION_STEP, 1, INPUTS, *action)
        head = struct.pack("<Biiiii", Code.NEXT_SIMULATION_STEP_COMPLETED, 1, OUTPUTS, 0, 0, 0)
        log(Datagram(number, True, request))
        log(Datagram(number, False, head + np.array(OLD, np.float32).tobytes()))
        pair.now += 1.0
    return log


@pytest.mark.parametrize(
    "untruth, code, delays, excused",
    [
        (OVERTAKEN, Code.NEXT_SIMULATION_STEP, (0.0, 2.5), True),
        (OVERTAKEN, Code.NEXT_SIMULATION_STEP, (0.0, 0.5), False),
        (OVERTAKEN, Code.NEXT_SIMULATION_STEP, (0.0,), False),
        (OVERTAKEN, Code.NEXT_SIMULATION_STEP_COMPLETED, (0.0, 2.5), False),
        (OUTDATED, Code.NEXT_SIMULATION_STEP_COMPLETED, (0.0, 2.5), True),
        (OUTDATED, Code.NEXT_SIMULATION_STEP_COMPLETED, (0.0, 0.5), False),
        (OUTDATED, Code.NEXT_SIMULATION_STEP, (0.0, 2.5), False),
        (SURPLUS, Code.NEXT_SIMULATION_STEP, (0.0, 2.5), False),
    ],
)
def test_only_an_old_datagram_that_arrives_in_the_step_excuses_it(
    untruth: Untruth, code: Code, delays: tuple[float, ...], *, excused: bool
) -> None:
    assert bool(logged(code, *delays).explain(untruth, [LIFE])) is excused


@pytest.mark.parametrize("weather", [Weather(0.0, 0.0, 0.0, 0.0), Weather(0.0, 1e-9, 0.0, 1e-9)])
def test_what_the_network_did_not_do_is_no_excuse(weather: Weather) -> None:
    storm = Storm(1, "nerd", 1, 1, weather, steps=20)
    assert not judge(storm).broken
    verdict = judge(storm, forged=lambda ledger: ledger.pop(5))
    assert (len(verdict.broken), verdict.beyond) == (1, ())


def test_a_step_too_many_before_the_audit_is_untrue_where_it_is_not_told() -> None:
    env = Environment(NERD)
    env.begin()
    env.step()
    env.pair.server._run_step()
    episode = env.lives[0].episodes[0]
    episode.ended = True
    assert env.untruths() == [], "nobody knows when it was audited"
    episode.written = len(env.pair.ledger)
    (untruth,) = env.untruths()
    assert untruth.surplus
    episode.told = "the clock shows 3 steps"
    assert env.untruths() == []
