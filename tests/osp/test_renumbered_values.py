"""A simulator that builds its world anew in a reset, and knows none of the variables' local ids any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.osp.client.clock import SIMULATION_TIME
from ospbridge.osp.profile import Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair
from tests.osp.stage import BOTH

if TYPE_CHECKING:
    from collections.abc import Iterable


GAIN = "/Sim/agent/motor/0"


class Rebuilt:
    """A session with such a simulator, which forgets ``forgotten`` altogether."""

    def __init__(self, profile: Profile, *, forgotten: str = "", clock: bool = True) -> None:
        self.pair = Pair(SyntheticWorld(1, 2), profile, fault=self.fault)
        if not clock:
            del self.pair.server.repository.variables[SIMULATION_TIME]
        self.forgotten = forgotten
        self.lose = 0
        self.client: Client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        world: Any = self.pair.server.world
        world.reset, self.reset_world = self.rebuild, world.reset
        self.client.do(self.talk.register(["agent"]))

    def rebuild(self, seed: int) -> None:
        self.reset_world(seed)
        for handler in self.pair.server._handlers.values():
            values: list[Any] = handler.values
            values[:] = [None] * (len(values) + 10)
            handler.value_ids.clear()
        self.pair.server.repository.variables.pop(self.forgotten, None)

    def fault(self, datagram: Datagram) -> Iterable[float]:
        if self.lose and datagram.data[0] == self.lose:
            self.lose = 0
            return ()
        return (0.0,)

    def reset(self, seed: int) -> None:
        self.client.do(self.talk.reset(seed))

    def step(self, given: float) -> Any:
        return self.client.do(self.talk.step({"agent": np.array([given], np.float32)}))["agent"]


@BOTH
def test_every_reset_gets_its_seed(profile: Profile) -> None:
    rebuilt = Rebuilt(profile)
    for seed in (3, 5, 7):
        rebuilt.reset(seed)
        rebuilt.step(0.5)
    assert [entry["seed"] for entry in rebuilt.pair.ledger if entry["kind"] == "reset"] == [3, 5, 7]


@BOTH
def test_variables_are_watched_from_episode_to_episode(profile: Profile) -> None:
    rebuilt = Rebuilt(profile)
    rebuilt.reset(1)
    rebuilt.client.do(rebuilt.talk.watch([GAIN]))
    assert rebuilt.step(0.5).values == {GAIN: "0.5"}
    rebuilt.reset(2)
    assert rebuilt.step(0.25).values == {GAIN: "0.25"}
    assert rebuilt.client.do(rebuilt.talk.get(GAIN)).value == "0.25"
    rebuilt.reset(3)
    rebuilt.client.do(rebuilt.talk.set(GAIN, "0.75"))
    assert rebuilt.client.do(rebuilt.talk.get(GAIN)).value == "0.75"


@BOTH
@pytest.mark.parametrize("clock", [True, False])
def test_a_variable_is_found_again_by_whoever_is_the_first_to_ask_for_it(
    profile: Profile, clock: bool
) -> None:
    rebuilt = Rebuilt(profile, clock=clock)
    rebuilt.client.do(rebuilt.talk.get(GAIN))
    rebuilt.rebuild(1)
    rebuilt.client.do(rebuilt.talk.set(GAIN, "0.75"))
    rebuilt.rebuild(2)
    rebuilt.pair.server.repository.variables[GAIN].set("0.5")
    assert rebuilt.client.do(rebuilt.talk.get(GAIN)).value == "0.5"


@BOTH
def test_a_clock_that_is_gone_is_done_without(profile: Profile) -> None:
    rebuilt = Rebuilt(profile)
    rebuilt.reset(1)
    assert rebuilt.talk.machine.clock.available
    rebuilt.forgotten = "/Simulation/SimulationTime"
    rebuilt.reset(2)
    rebuilt.step(0.5)
    assert rebuilt.talk.machine.clock.missing
