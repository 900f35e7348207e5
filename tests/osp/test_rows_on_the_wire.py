"""Each row of the decision table, provoked on the wire: what is sent, how often, and what the caller gets."""

from __future__ import annotations

import pytest

from ospbridge.errors import BarrierStuck, StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair

LEAVING = "when this session leaves, its vote may step the world of agent2"
BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
LIMITS = Limits(step=4.0, reset=4.0)


class Loss:
    """Loses the next datagram of a code, as often as asked for."""

    def __init__(self) -> None:
        self.code: Code | None = None
        self.times = 0

    def __call__(self, datagram: Datagram) -> tuple[float, ...]:
        if self.times and datagram.data[0] == self.code:
            self.times -= 1
            return ()
        return (0.0,)

    def next(self, code: Code, times: int = 1) -> None:
        self.code, self.times = code, times


def playing(profile: Profile, loss: Loss, *, agents: int = 1, others: bool = False) -> tuple[Pair, Client]:
    """A session that controls ``agents`` agents and has taken a step."""
    pair = Pair(SyntheticWorld(1, 2, agents=agents + others), profile, fault=loss)
    client = pair.client(profile, limits=LIMITS).connect()
    names = [f"agent{n + 1}" for n in range(agents)] if agents + others > 1 else ["agent"]
    client.do(client.conversation.register(names))
    exchanges = [(client, client.conversation.reset(1))]
    other = None
    if others:
        other = pair.client(profile, limits=LIMITS).connect()
        other.do(other.conversation.register([f"agent{agents + 1}"]))
        exchanges.append((other, other.conversation.reset(1)))
    pair.run(*exchanges)
    steps = [(client, client.conversation.step({name: [0.5] for name in names}))]
    if other is not None:
        steps.append((other, other.conversation.step({f"agent{agents + 1}": [0.25]})))
    pair.run(*steps)
    return pair, client


def votes(pair: Pair, since: int) -> int:
    return sum(d.to_server and d.data[0] == Code.NEXT_SIMULATION_STEP for d in pair.sent[since:])


def ran(pair: Pair) -> int:
    return sum(entry["kind"] == "step" for entry in pair.ledger)


@BOTH
def test_a_lost_request_is_sent_again_once(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    loss.next(Code.NEXT_SIMULATION_STEP)
    since = len(pair.sent)
    outcome = client.do(client.conversation.step({"agent": [0.75]}))["agent"]
    assert (votes(pair, since), ran(pair), outcome.restored) == (2, 2, False)


@BOTH
def test_a_request_lost_twice_ends_the_episode_honestly(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    loss.next(Code.NEXT_SIMULATION_STEP, times=2)
    since = len(pair.sent)
    with pytest.raises(StepUncertain, match="sent again"):
        client.do(client.conversation.step({"agent": [0.75]}))
    assert (votes(pair, since), ran(pair)) == (2, 1)


@BOTH
def test_a_lost_acknowledgement_is_no_reason_to_vote_again(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    loss.next(Code.NEXT_SIMULATION_STEP_ACK)
    since = len(pair.sent)
    outcome = client.do(client.conversation.step({"agent": [0.75]}))["agent"]
    assert (votes(pair, since), ran(pair), outcome.restored) == (1, 2, True)


@BOTH
def test_a_lost_completion_is_restored_without_a_second_vote(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    loss.next(Code.NEXT_SIMULATION_STEP_COMPLETED)
    since = len(pair.sent)
    outcome = client.do(client.conversation.step({"agent": [0.75]}))["agent"]
    assert (votes(pair, since), ran(pair), outcome.restored) == (1, 2, True)


@BOTH
def test_a_lost_request_among_others_is_never_sent_again(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss, others=True)
    loss.next(Code.NEXT_SIMULATION_STEP)
    since = len(pair.sent)
    with pytest.raises(StepUncertain, match=f"not acknowledged within 4 s; {LEAVING}"):
        client.do(client.conversation.step({"agent1": [0.75]}))
    assert (votes(pair, since), ran(pair)) == (1, 1)


@BOTH
def test_a_counted_vote_waits_for_the_others_and_then_names_them(profile: Profile) -> None:
    pair, client = playing(profile, Loss(), others=True)
    since = len(pair.sent)
    with pytest.raises(BarrierStuck, match=f"agent2; {LEAVING}"):
        client.do(client.conversation.step({"agent1": [0.75]}))
    assert (votes(pair, since), ran(pair)) == (1, 1)


@BOTH
def test_a_session_that_saw_a_late_datagram_never_votes_again(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    client.conversation.machine.punctual = False
    loss.next(Code.NEXT_SIMULATION_STEP)
    since = len(pair.sent)
    with pytest.raises(StepUncertain, match="not acknowledged"):
        client.do(client.conversation.step({"agent": [0.75]}))
    assert (votes(pair, since), ran(pair)) == (1, 1)


@BOTH
def test_a_lost_reset_request_is_repeated_under_sole_control(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    loss.next(Code.RESET_SIMULATION)
    client.do(client.conversation.reset(5))
    assert [entry["kind"] for entry in pair.ledger].count("reset") == 2


@BOTH
def test_a_lost_completion_of_a_reset_is_told_by_the_clock(profile: Profile) -> None:
    loss = Loss()
    pair, client = playing(profile, loss)
    loss.next(profile.reset_completed)
    client.do(client.conversation.reset(5))
    assert [entry["kind"] for entry in pair.ledger].count("reset") == 2
