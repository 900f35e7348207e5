"""Other clients on the same simulator: they reset, step, vanish, leave or restart the communication while we work.

In every phase of ours: nothing hangs, a stuck barrier names who is missing, what is believed is what ran, and a new
session can take the place of the old one. F numbers are the faults of real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import (
    BarrierStuck,
    OspBridgeError,
    SessionEvicted,
    SessionLost,
    StepUncertain,
)
from ospbridge.osp.client import Exchange
from ospbridge.osp.messages import ResetSimulation
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Pair
from tests.osp.stage import BOTH

LIMITS = Limits(connect=10, query=3, listing=6, step=5, reset=6)
BOUND = 20.0
"""Virtual seconds in which every exchange of these limits is over."""
PHASES = range(14)
"""How many things happen on the network between the begin of our exchange and what the other client does."""
ONE, TWO = np.array([0.25], np.float32), np.array([0.5], np.float32)

in_each_phase = pytest.mark.parametrize("phase", PHASES)


def scene(profile: Profile) -> tuple[Pair, Client, Client]:
    """Ours controls "mine", the other "theirs"; the world was reset and made one step."""
    pair = Pair(SyntheticWorld(1, 2, names=["mine", "theirs"]), profile)
    ours, other = (pair.client(profile, limits=LIMITS).connect() for _ in range(2))
    ours.do(ours.conversation.register(["mine"]))
    other.do(other.conversation.register(["theirs"]))
    ours.do(ours.conversation.overview())
    pair.run((ours, ours.conversation.reset(7)), (other, other.conversation.reset(7)))
    pair.run((ours, our_step(ours)), (other, other.conversation.step({"theirs": TWO})))
    return pair, ours, other


def our_step(client: Client) -> Exchange[Any]:
    return client.conversation.step({"mine": ONE})


def vanish(client: Client) -> None:
    """Killed: its port is closed, it says nothing more."""
    client._conversation = None


def proceed(pair: Pair, events: int, *clients: Client) -> None:
    """Let some things happen, at most until all are finished."""
    for _ in range(events):
        if all(client.finished for client in clients):
            return
        pair.advance(until=pair.now + BOUND)


def finish(pair: Pair, client: Client) -> OspBridgeError | None:
    """Let the exchange end; its error."""
    until = pair.now + BOUND
    while not client.finished:
        pair.advance(until=until)
    try:
        client.outcome()
    except OspBridgeError as error:
        return error
    return None


def rejoin(pair: Pair, *names: str) -> Client:
    """A new session that takes the agents over, restarting the communication if need be, and steps alone."""
    client = pair.client(pair.server.profile, limits=LIMITS).connect()
    if pair.server.controlled:
        client.do(client.conversation.restart_communication())
        pair.settle(0.3)
        client = pair.client(pair.server.profile, limits=LIMITS).connect()
    client.do(client.conversation.register(names))
    client.do(client.conversation.reset(7), within=BOUND)
    actions = dict.fromkeys(names, ONE)
    for number in range(3):
        outcome = client.do(client.conversation.step(actions), within=BOUND)
        for name in names:
            np.testing.assert_array_equal(outcome[name].outputs, expected(ONE, number + 1, 2, seed=7))
    assert not client.do(client.conversation.audit())
    return client


EXCHANGES: dict[str, Callable[[Client], Exchange[Any]]] = {
    "step": our_step,
    "reset": lambda client: client.conversation.reset(7),
    "overview": lambda client: client.conversation.overview(),
    "listing": lambda client: client.conversation.values(),
    "describe": lambda client: client.conversation.describe("theirs"),
    "audit": lambda client: client.conversation.audit(),
    "leave": lambda client: client.conversation.leave(),
}
each_exchange = pytest.mark.parametrize("exchange", EXCHANGES)


# --- vanishing ----------------------------------------------------------------------------------------------


@pytest.mark.sampled(30)
@BOTH
@each_exchange
@in_each_phase
def test_a_client_that_vanishes_registered_hangs_nobody_and_is_named(
    profile: Profile, exchange: str, phase: int
) -> None:
    # F15
    pair, ours, other = scene(profile)
    ours.begin(EXCHANGES[exchange](ours))
    proceed(pair, phase, ours)
    vanish(other)
    error = finish(pair, ours)
    if exchange in ("step", "reset"):
        assert isinstance(error, BarrierStuck)
        assert f"the {exchange} did not complete within" in error.message
        assert "theirs" in error.message
        assert "restart-communication" in error.hint
    else:
        assert error is None
    rejoin(pair, "mine", "theirs")


# --- resets and steps of others -----------------------------------------------------------------------------


@pytest.mark.sampled(30)
@BOTH
@each_exchange
@in_each_phase
def test_a_reset_by_others_in_any_phase_of_ours_is_told(profile: Profile, exchange: str, phase: int) -> None:
    # Real servers count requests, whoever sends them: an impatient client that asks twice resets the world alone.
    pair, ours, other = scene(profile)
    before = sum(entry["kind"] == "reset" for entry in pair.ledger)
    ours.begin(EXCHANGES[exchange](ours))
    proceed(pair, phase, ours)
    for _ in range(2):
        pair.to_handler(ResetSimulation(3).encode(), other.conversation.handler.port, other.address)
    error = finish(pair, ours)
    pair.settle()
    resets = sum(entry["kind"] == "reset" for entry in pair.ledger) - before
    told = any(isinstance(n, WorldReset) for n in ours.conversation.pop_notices())
    assert resets or exchange in ("step", "leave")
    if exchange not in ("reset", "leave"):
        assert told or error is not None
    if error is not None:
        assert isinstance(error, BarrierStuck | StepUncertain | SessionLost)


@pytest.mark.sampled(16)
@BOTH
@pytest.mark.parametrize("begins", ["we", "they"])
@in_each_phase
def test_a_client_that_steps_twice_fires_no_step_that_we_believe(
    profile: Profile, begins: str, phase: int
) -> None:
    # F8: the repeated request stands for ours.
    pair, ours, other = scene(profile)
    request = other.conversation.requests["theirs"]
    if begins == "we":
        ours.begin(our_step(ours))
        proceed(pair, phase, ours)
    for _ in range(2):
        pair.to_handler(bytes(request.datagram), other.conversation.handler.port, other.address)
    if begins == "they":
        for _ in range(min(phase, 4)):
            pair.advance(until=pair.now + BOUND)
        ours.begin(our_step(ours))
    error = finish(pair, ours)
    pair.settle()
    reason = error.message if error else ours.do(ours.conversation.audit())
    steps = [entry for entry in pair.ledger if entry["kind"] == "step"]
    assert bool(reason) is not (len(steps) == 2 and str(ours.address) in steps[-1]["agents"]["mine"]["votes"])


@BOTH
def test_a_step_fired_between_two_of_ours_is_told_before_the_next(profile: Profile) -> None:
    pair, ours, other = scene(profile)
    request = other.conversation.requests["theirs"]
    for _ in range(2):
        pair.to_handler(bytes(request.datagram), other.conversation.handler.port, other.address)
    pair.settle(0.1)
    assert sum(entry["kind"] == "step" for entry in pair.ledger) == 2
    assert ours.do(ours.conversation.audit())
    with pytest.raises(StepUncertain):
        ours.do(our_step(ours))


# --- restarting the communication ---------------------------------------------------------------------------


@pytest.mark.sampled(30)
@BOTH
@each_exchange
@in_each_phase
def test_a_restart_of_the_communication_in_any_phase_ends_our_session_and_we_rejoin(
    profile: Profile, exchange: str, phase: int
) -> None:
    pair, ours, other = scene(profile)
    ours.begin(EXCHANGES[exchange](ours))
    proceed(pair, phase, ours)
    other.begin(other.conversation.restart_communication())
    started = pair.now
    error = finish(pair, ours)
    assert pair.now - started < 1.0
    finish(pair, other)
    pair.settle()
    if error is None and exchange != "leave":
        with pytest.raises(SessionLost):
            ours.do(ours.conversation.overview())
        error = ours.conversation.machine.lost
    if exchange != "leave":
        assert isinstance(error, SessionLost)
        if isinstance(error, SessionEvicted):
            assert "restarted by a client" in error.message
    rejoin(pair, "mine", "theirs")
