"""Overviews of before another client came: no vote is given twice for what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import OspBridgeError
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import AgentOverview, AgentOverviewNext
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.osp.client.machine import Exchange

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
LIMITS = Limits(query=3, listing=6, step=6, reset=6)
OURS = np.array([0.25], np.float32)
VOTES = {"step": Code.NEXT_SIMULATION_STEP, "reset": Code.RESET_SIMULATION}


class Two:
    """Ours has one of two agents, and knows of nobody else; then another client registers for the other one.

    A first acknowledgement of our votes is lost, and a late overview of before that comes before each one's first
    answer. The other client does not vote.
    """

    def __init__(self, profile: Profile) -> None:
        self.marked = profile.end_marker
        self.pair = Pair(SyntheticWorld(1, 2, names=["mine", "theirs"]), profile)
        self.ours = self._joined(profile, "mine")
        talk: Any = self.ours.conversation
        self.ours.do(talk.reset(7))
        self.ours.do(talk.step({"mine": OURS}))
        self._joined(profile, "theirs")
        assert not talk.machine.foreign
        self.votes = 0
        self.late = True
        self.pair.fault = self.fault

    def _joined(self, profile: Profile, name: str) -> Client:
        client = self.pair.client(profile, limits=LIMITS).connect()
        client.do(client.conversation.register([name]))
        return client

    def fault(self, datagram: Datagram) -> Iterable[float]:
        code = datagram.data[0]
        self.votes += datagram.to_server and code in VOTES.values()
        if not datagram.to_server:
            lost = (Code.NEXT_SIMULATION_STEP_ACK, Code.RESET_SIMULATION_ACK)
            return () if code in lost else (0.0,)
        if code == Code.GET_AGENT_OVERVIEW and self.late:
            self.late = False
            old = (AgentOverviewNext(0, 1, "Agent", 0, "mine"), AgentOverviewNext(1, 2, "Agent", 1, "theirs"))
            for message in (AgentOverview(2), *old):
                self.pair.answer(self.ours, message.encode(end=self.marked))
        return (0.0,)

    def ask(self, exchange: Exchange[Any]) -> None:
        with pytest.raises(OspBridgeError):
            self.ours.do(exchange)


@BOTH
@pytest.mark.parametrize("what", VOTES)
def test_a_vote_is_not_given_again_for_what_a_late_overview_says(profile: Profile, what: str) -> None:
    two = Two(profile)
    ran = len(two.pair.ledger)
    talk = two.ours.conversation
    two.ask(talk.step({"mine": OURS}) if what == "step" else talk.reset(8))
    assert not two.late
    assert two.votes == 1
    assert len(two.pair.ledger) == ran, "the world waits for the other client"
