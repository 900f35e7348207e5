"""Networks that repeat datagrams: what that costs, and what it must not hide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ResetSimulationAck
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair, no_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
REST = np.zeros(1, np.float32)
ASKED, COUNTED, VOTE = Code.RESET_SIMULATION, Code.RESET_SIMULATION_ACK, Code.NEXT_SIMULATION_STEP
COMPLETED = (Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK)


class Session:
    """One client with the only agent of a simulator."""

    def __init__(self, profile: Profile) -> None:
        self.pair = Pair(SyntheticWorld(1, 3), profile)
        self.client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(["agent"]))

    def reset(self, seed: int) -> None:
        self.talk.take_notices()
        self.client.do(self.talk.reset(seed))

    def step(self) -> list[float]:
        found: list[float] = self.client.do(self.talk.step({"agent": REST}))["agent"].outputs.tolist()
        return found

    def told_of_a_reset(self) -> bool:
        return any(isinstance(notice, WorldReset) for notice in self.talk.take_notices())

    def twice(self, *codes: Code, behind: float = 0.0) -> None:
        """From here on these datagrams come once more, so many seconds later."""
        self.pair.fault = lambda datagram: (0.0, behind) if datagram.data[0] in codes else (0.0,)


@BOTH
@pytest.mark.parametrize(
    "codes",
    [(ASKED,), (COUNTED,), COMPLETED, (ASKED, COUNTED, *COMPLETED)],
    ids=["vote", "count", "end", "all"],
)
@pytest.mark.parametrize("behind", [0.0, 1e-4, 2e-4])
def test_a_reset_that_comes_twice_before_the_first_step_is_nobody_else_s(
    profile: Profile, codes: tuple[Code, ...], behind: float
) -> None:
    session = Session(profile)
    for seed in range(1, 5):
        session.twice(*codes, behind=behind)
        session.reset(seed)
        session.pair.settle(0.01)
        session.pair.fault = no_fault
        for number in range(1, 5):
            assert session.step() == expected(REST, number, 3, seed=seed).tolist()
        assert not session.told_of_a_reset()
        assert session.client.do(session.talk.audit()) == ""


@BOTH
@pytest.mark.parametrize("codes", [(), (COUNTED,), COMPLETED], ids=["nothing", "count", "end"])
def test_once_the_episode_has_begun_a_reset_is_somebody_else_s(
    profile: Profile, codes: tuple[Code, ...]
) -> None:
    session = Session(profile)
    session.twice(*codes)
    session.reset(1)
    session.pair.fault = no_fault
    session.step()
    assert not session.told_of_a_reset()
    machine = session.client.conversation.machine
    session.pair.answer(session.client, ResetSimulationAck().encode(end=profile.end_marker))
    session.pair.answer(session.client, bytes([profile.reset_completed]))
    session.pair.settle(0.1)
    assert session.told_of_a_reset()
    assert machine.clock.base is None


@BOTH
def test_a_vote_that_is_lost_where_datagrams_come_late_is_not_awaited_for_as_long_as_a_step_may_take(
    profile: Profile,
) -> None:
    session = Session(profile)
    session.twice(Code.VALUE, behind=1.0)
    session.reset(1)
    for _ in range(3):
        session.step()
    session.pair.settle(2.0)
    assert not session.client.conversation.machine.punctual

    def lost(datagram: Datagram) -> Iterable[float]:
        return () if datagram.data[0] == VOTE else (0.0,)

    session.pair.fault = lost
    begun = session.pair.now
    with pytest.raises(StepUncertain, match=r"was not acknowledged within \d\.\d s") as caught:
        session.step()
    assert caught.value.by_network
    assert 3.0 < session.pair.now - begun < 8.0


@BOTH
def test_one_that_comes_after_all_is_no_loss(profile: Profile) -> None:
    session = Session(profile)
    session.twice(Code.VALUE, behind=1.0)
    session.reset(1)
    session.step()
    session.pair.settle(2.0)
    session.pair.fault = lambda datagram: (3.0 if datagram.data[0] == VOTE else 0.0,)
    assert session.step() == expected(REST, 2, 3, seed=1).tolist()
    assert session.pair.ledger[-1]["n"] == 2
