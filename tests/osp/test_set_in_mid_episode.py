"""A variable is set, or another agent taken, in mid-episode: the clock may count otherwise from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Pair, no_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.osp.pair import Client

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
GIVEN = np.array([0.25], np.float32)
STEPS = 3


class Episode:
    """A client in mid-episode."""

    def __init__(self, profile: Profile) -> None:
        self.pair = Pair(SyntheticWorld(1, 2, names=["agent", "other"]), profile)
        self.client: Client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(["agent"]))
        self.client.do(self.talk.reset(7))
        for _ in range(STEPS):
            self.step()

    def step(self, **more: np.ndarray[Any, Any]) -> None:
        self.client.do(self.talk.step({"agent": GIVEN, **more}))

    def make_a_step_more(self) -> None:
        """The latest vote comes once more, and nothing tells the client of what comes of it."""
        pair, address, port = self.pair, self.client.address, self.talk.handler.port
        vote = next(d.data for d in reversed(pair.sent) if d.data[0] == Code.NEXT_SIMULATION_STEP)
        pair.fault = lambda datagram: (0.0,) if datagram.to_server else ()
        pair.to_handler(vote, port, address)
        pair.settle()
        pair.to_handler(bytes([Code.NEXT_SIMULATION_STEP_COMPLETED_ACK]), port, address)
        pair.settle()
        pair.fault = no_fault

    def asked(self) -> int:
        """So often was a variable read."""
        return sum(d.to_server and d.data[0] == Code.GET_VALUE for d in self.pair.sent)


def set_a_variable(episode: Episode) -> None:
    episode.client.do(episode.talk.set("/Simulation/RandomizeSeedAtReset", "F"))


def take_an_agent(episode: Episode) -> None:
    episode.client.do(episode.talk.register(["other"]))


@BOTH
@pytest.mark.parametrize("act", [set_a_variable, take_an_agent])
def test_a_step_too_many_before_it_is_told(profile: Profile, act: Callable[[Episode], None]) -> None:
    episode = Episode(profile)
    episode.make_a_step_more()
    act(episode)
    told = "3 steps were given, the clock shows 4"
    assert episode.client.do(episode.talk.audit()) == told
    with pytest.raises(StepUncertain, match=told):
        episode.client.do(episode.talk.step(dict.fromkeys(episode.talk.votes, GIVEN)))
    # Until the next episode begins.
    episode.client.do(episode.talk.reset(8))
    episode.client.do(episode.talk.step(dict.fromkeys(episode.talk.votes, GIVEN)))
    assert episode.client.do(episode.talk.audit()) == ""


@BOTH
def test_an_episode_without_fault_goes_on(profile: Profile) -> None:
    episode = Episode(profile)
    for _ in range(3):
        set_a_variable(episode)
        episode.step()
        episode.step()
    assert episode.client.do(episode.talk.audit()) == ""
    assert not episode.talk.machine.disturbed


@BOTH
def test_behind_an_audit_nothing_more_is_asked(profile: Profile) -> None:
    episode = Episode(profile)
    assert episode.client.do(episode.talk.audit()) == ""
    asked = episode.asked()
    set_a_variable(episode)
    assert episode.asked() == asked
