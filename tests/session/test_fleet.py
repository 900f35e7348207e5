"""Many sessions side by side: nobody waits for another's simulator, and errors stay where they happen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest

from ospbridge.errors import BarrierStuck, LocalProtocolError, SessionClosed, SessionLost, StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.osp.server import ServerMachine
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.channel import Channel
from ospbridge.session.fleet import SessionFleet
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.session.drivers import Driver
from tests.session.servers import OneAtATime, busy_for_a_while

pytestmark = pytest.mark.loopback
BLOCKING = Driver()
ACTION = np.array([0.25], np.float32)


@contextmanager
def sessions(
    *worlds: SyntheticWorld, profile: Profile = DOCUMENT, limits: Limits | None = None, **options: Any
) -> Iterator[list[BlockingSession]]:
    """A session for all agents of each world, after a reset with its number as the seed."""
    with ExitStack() as stack:
        found = []
        for seed, world in enumerate(worlds, 1):
            simulator = stack.enter_context(UdpSimulator(world, port=0, profile=profile, **options))
            session = stack.enter_context(BLOCKING.connect(simulator, limits=limits))
            session.register(*session.matching(()))
            session.reset(seed)
            found.append(session)
        yield found


Work: TypeAlias = Callable[[BlockingSession], Any]
"""A step of a session, as a fleet takes it."""


def by_exchange(session: BlockingSession) -> Any:
    return session.core.step(dict.fromkeys(session.controlled, ACTION))


def on_its_way(session: BlockingSession) -> Any:
    session.core.fill(dict.fromkeys(session.controlled, ACTION))


@pytest.fixture(params=[by_exchange, on_its_way])
def step(request: pytest.FixtureRequest) -> Work:
    found: Work = request.param
    return found


def test_each_gets_the_outcome_of_its_own_simulator(profile: Profile, step: Work) -> None:
    with sessions(*(SyntheticWorld(1, 3) for _ in range(4)), profile=profile) as several:
        link = SessionFleet()
        for number in range(1, 10):
            for seed, result in enumerate(link.run([(s, step(s)) for s in several]), 1):
                np.testing.assert_array_equal(result["agent"].outputs, expected(ACTION, number, 3, seed=seed))
        link.close(several)
        assert all(session.closed for session in several)


class Thinking(SyntheticWorld):
    """Its second step is over when that of all the others has begun."""

    def __init__(self, others: threading.Barrier) -> None:
        super().__init__(1, 3)
        self._others = others

    def step(self) -> None:
        super().step()
        if self._steps == 2:
            self._others.wait(30)


@pytest.mark.parametrize("spin", [False, True])
def test_thinking_simulators_think_at_the_same_time(spin: bool, step: Work) -> None:
    everybody = threading.Barrier(4)
    with sessions(*(Thinking(everybody) for _ in range(4))) as several:
        link = SessionFleet(spin=spin, cores=1)
        link.run([(s, step(s)) for s in several])
        results = link.run([(s, step(s)) for s in several])
    assert all("agent" in result for result in results)
    assert not everybody.broken


def test_one_that_is_held_up_keeps_its_limit_and_the_others_have_their_results(step: Work) -> None:
    limits = Limits(step=0.3)
    with (
        sessions(SyntheticWorld(1, 3), limits=limits) as (free,),
        UdpSimulator(SyntheticWorld(1, 3, agents=2), port=0) as shared,
        BLOCKING.connect(shared) as other,
        BLOCKING.connect(shared, limits=limits) as stuck,
    ):
        stuck.register("agent1")
        stuck.reset(1)
        other.register("agent2")
        done, late = SessionFleet().run([(free, step(free)), (stuck, step(stuck))])
        assert isinstance(late, BarrierStuck)
        np.testing.assert_array_equal(done["agent"].outputs, expected(ACTION, 1, 3, seed=1))


def test_a_killed_simulator_is_told_and_the_others_go_on(step: Work) -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as several:
        with UdpSimulator(SyntheticWorld(1, 3), port=0) as simulator:
            doomed = BLOCKING.playing(simulator, "agent", seed=9)
            link = SessionFleet()
            everybody = [several[0], doomed, several[1]]
            link.run([(s, step(s)) for s in everybody])
        for number in (2, 3):
            one, lost, other = link.run([(s, step(s)) for s in everybody])
            assert isinstance(lost, SessionLost)
            np.testing.assert_array_equal(one["agent"].outputs, expected(ACTION, number, 3, seed=1))
            np.testing.assert_array_equal(other["agent"].outputs, expected(ACTION, number, 3, seed=2))
        doomed.close()


def test_an_error_of_one_exchange_is_its_result(step: Work) -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as (one, other):
        link = SessionFleet()
        wrong, right = link.run([(one, one.core.step({})), (other, step(other))])
        assert isinstance(wrong, LocalProtocolError)
        assert "agent" in right
        other.close()
        right, closed = link.run([(one, step(one)), (other, step(other))])
        assert "agent" in right
        assert isinstance(closed, SessionClosed)


def interrupted_behind(call: Callable[..., Any]) -> Callable[..., Any]:
    def interrupted(*given: Any) -> None:
        call(*given)
        raise KeyboardInterrupt

    return interrupted


def test_an_interrupted_step_is_taken_for_no_later_one(step: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as (one, other):
        link = SessionFleet()
        for _ in range(3):
            link.run([(one, step(one)), (other, step(other))])
        with monkeypatch.context() as patch:
            for owner, begins in ((Channel, "begin"), (BlockingSession, "begin_step")):
                patch.setattr(owner, begins, interrupted_behind(getattr(owner, begins)))
            with pytest.raises(KeyboardInterrupt):
                link.begin([(one, step(one)), (other, step(other))])
        uncertain, result = link.run([(one, step(one)), (other, step(other))])
        assert isinstance(uncertain, StepUncertain)
        np.testing.assert_array_equal(result["agent"].outputs, expected(ACTION, 4, 3, seed=2))


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_all_simulators_are_told_goodbye_before_one_that_hangs_is_given_up(
    step: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, bytes]] = []

    def silent(machine: ServerMachine, _: int, data: bytes, __: float) -> None:
        if data[0] in {Code.DEREGISTER_FROM_AGENT, Code.END_COMMUNICATION}:
            told.append((id(machine), data))

    with sessions(*(SyntheticWorld(1, 3) for _ in range(3)), limits=Limits(close=0.7)) as several:
        link = SessionFleet()
        link.begin([(s, step(s)) for s in several])
        monkeypatch.setattr(ServerMachine, "receive", silent)
        link.close(several)
        assert all(session.closed for session in several)
    repeated = next((at for at, what in enumerate(told) if what in told[:at]), len(told))
    assert len({machine for machine, _ in told[:repeated]}) == 3


def test_who_waited_behind_others_and_leaves_in_a_fleet_locks_nobody_out(profile: Profile) -> None:
    with OneAtATime(SyntheticWorld(1, 3), profile) as busy, sessions(SyntheticWorld(1, 3)) as (other,):
        leaving = busy_for_a_while(busy)
        late = BLOCKING.connect(busy, limits=Limits(connect=20.0))
        leaving.join(30)
        SessionFleet().close([other, late])
        BLOCKING.connect(busy, limits=Limits(connect=20.0), reclaim_stale=False).close()


def test_sessions_that_were_given_up_free_their_agents_too() -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as several:
        given_up, _ = several
        given_up.machine.lost = SessionLost("silent for too long")
        SessionFleet().close(several)
        with BlockingSession.connect(given_up.server, profile=DOCUMENT, reclaim_stale=False) as other:
            assert all(entry.available for entry in other.agents())
