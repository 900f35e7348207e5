"""Many sessions side by side: nobody waits for another's simulator, and errors stay where they happen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest

from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    SessionClosed,
    SessionLost,
    StepUncertain,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.straight import StraightWay
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.fleet_link import FleetLink, cores_wanted
from ospbridge.session.link import Link
from ospbridge.session.seeing_off import SeeingOff
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.session.one_at_a_time import OneAtATime

pytestmark = pytest.mark.loopback
ACTION = np.array([0.25], np.float32)


@contextmanager
def sessions(
    *worlds: SyntheticWorld,
    profile: Profile = DOCUMENT,
    client: str | Profile = "auto",
    limits: Limits | None = None,
    **options: Any,
) -> Iterator[list[BlockingSession]]:
    """A session for each world's only agent, after a reset with its number as the seed.

    ``profile`` is the simulators', ``client`` what the sessions take it for.
    """
    with ExitStack() as stack:
        found = []
        for seed, world in enumerate(worlds, 1):
            simulator = stack.enter_context(UdpSimulator(world, port=0, profile=profile, **options))
            session = stack.enter_context(
                BlockingSession.connect(str(simulator.address), profile=client, limits=limits)
            )
            session.register("agent")
            session.reset(seed)
            found.append(session)
        yield found


Work: TypeAlias = Callable[[BlockingSession], Any]
"""A step of a session, as a fleet takes it."""


def by_exchange(session: BlockingSession) -> Any:
    return session.conversation.step(dict.fromkeys(session.controlled, ACTION))


def on_its_way(session: BlockingSession) -> Any:
    session.conversation.fill(dict.fromkeys(session.controlled, ACTION))
    return session.conversation.go_on


@pytest.fixture(params=[by_exchange, on_its_way])
def step(request: pytest.FixtureRequest) -> Work:
    found: Work = request.param
    return found


class Fleet(FleetLink):
    """Tells what steps brought alike, whichever way they took."""

    def finish(self) -> list[Any]:
        results = super().finish()
        return [found.outcomes() if isinstance(found, StraightWay) else found for found in results]


def test_each_gets_the_outcome_of_its_own_simulator(profile: Profile, step: Work) -> None:
    with sessions(*(SyntheticWorld(1, 3) for _ in range(5)), profile=profile) as several:
        link = Fleet()
        for number in range(1, 40):
            for seed, result in enumerate(link.run([(s, step(s)) for s in several]), 1):
                np.testing.assert_array_equal(result["agent"].outputs, expected(ACTION, number, 3, seed=seed))
        link.leave(several)
        assert all(session.closed for session in several)


def test_all_is_well_with_lost_doubled_and_late_datagrams(step: Work) -> None:
    # A machine that is busy for longer than the patience would leave a session unsure of a lost datagram.
    patient = replace(DOCUMENT, patience=1.0)
    faults = FaultPlan(drop=0.01, duplicate=0.02, delay=0.05, delay_max=0.02, seed=4)
    with sessions(*(SyntheticWorld(1, 3) for _ in range(4)), faults=faults, client=patient) as several:
        link = Fleet()
        for number in range(1, 40):
            for seed, result in enumerate(link.run([(s, step(s)) for s in several]), 1):
                np.testing.assert_array_equal(result["agent"].outputs, expected(ACTION, number, 3, seed=seed))
        assert all(session.audit() == "" for session in several)


@pytest.mark.parametrize("seed", range(3))
def test_steps_of_several_agents_in_halves_are_right_with_lost_and_late_datagrams(
    profile: Profile, seed: int
) -> None:
    patient = replace(profile, patience=0.6)
    faults = FaultPlan(drop=0.005, delay=0.05, delay_max=0.02, seed=seed)
    names = ["agent", "other", "third"]
    worlds = [SyntheticWorld(1, 3, names=names) for _ in range(3)]
    with sessions(*worlds, profile=profile, faults=faults, client=patient) as several:
        for number, session in enumerate(several, 1):
            session.register(*names)
            session.reset(number)
        link, trusted = Fleet(), dict(enumerate(several, 1))
        for number in range(1, 25):
            action = np.array([number / 50], np.float32)
            for session in trusted.values():
                session.conversation.fill(dict.fromkeys(names, action))
            work = [(session, session.conversation.go_on) for session in trusted.values()]
            for at, result in zip(tuple(trusted), link.run(work), strict=True):
                if isinstance(result, StepUncertain):
                    # The network did what cannot be told apart; an environment ends the episode.
                    del trusted[at]
                    continue
                for name in names:
                    np.testing.assert_array_equal(result[name].outputs, expected(action, number, 3, seed=at))
        assert trusted


@pytest.mark.parametrize("spin", [False, True])
def test_thinking_simulators_think_at_the_same_time(spin: bool, step: Work) -> None:
    with sessions(*(SyntheticWorld(1, 3, think=0.2) for _ in range(6))) as several:
        link = Fleet(spin=spin, cores=1)
        link.run([(s, step(s)) for s in several])
        started = time.monotonic()
        link.run([(s, step(s)) for s in several])
        assert time.monotonic() - started < 3 * 0.2


def test_one_that_is_held_up_keeps_its_limit_and_the_others_have_their_results(step: Work) -> None:
    limits = Limits(step=0.5)
    with (
        sessions(SyntheticWorld(1, 3), limits=limits) as (free,),
        UdpSimulator(SyntheticWorld(1, 3, agents=2), port=0) as shared,
        BlockingSession.connect(str(shared.address)) as other,
        BlockingSession.connect(str(shared.address), limits=limits) as stuck,
    ):
        stuck.register("agent1")
        stuck.reset(1)
        other.register("agent2")
        link = Fleet()
        started = time.monotonic()
        done, late = link.run([(free, step(free)), (stuck, step(stuck))])
        assert 0.4 < time.monotonic() - started < 5
        assert isinstance(late, BarrierStuck)
        np.testing.assert_array_equal(done["agent"].outputs, expected(ACTION, 1, 3, seed=1))


def test_a_killed_simulator_is_told_and_the_others_go_on(step: Work) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "ospbridge", "sim", "--synthetic", "1,3,0", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    address = program.stdout.readline().strip()
    try:
        with (
            sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as several,
            BlockingSession.connect(address, limits=Limits(query=0.5, step=1.0, close=0.5)) as doomed,
        ):
            doomed.register("agent")
            doomed.reset(9)
            link = Fleet()
            everybody = [several[0], doomed, several[1]]
            link.run([(s, step(s)) for s in everybody])
            os.kill(program.pid, signal.SIGKILL)
            program.wait()
            one, lost, other = link.run([(s, step(s)) for s in everybody])
            assert isinstance(lost, SessionLost)
            np.testing.assert_array_equal(one["agent"].outputs, expected(ACTION, 2, 3, seed=1))
            np.testing.assert_array_equal(other["agent"].outputs, expected(ACTION, 2, 3, seed=2))
            _, again, _ = link.run([(s, step(s)) for s in everybody])
            assert isinstance(again, SessionLost)
    finally:
        program.kill()
        program.communicate()


def test_an_error_of_one_exchange_is_its_result(step: Work) -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as (one, other):
        link = Fleet()
        wrong, right = link.run([(one, one.conversation.step({})), (other, step(other))])
        assert isinstance(wrong, LocalProtocolError)
        assert "agent" in right
        other.close()
        right, closed = link.run([(one, step(one)), (other, step(other))])
        assert "agent" in right
        assert isinstance(closed, SessionClosed)


def test_begin_and_finish_are_the_halves_of_run(step: Work) -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as several:
        link = Fleet()
        link.begin([(s, step(s)) for s in several])
        with pytest.raises(LocalProtocolError, match="under way"):
            link.begin([(s, step(s)) for s in several])
        time.sleep(0.4)
        assert all("agent" in result for result in link.finish())
        assert not any(session.machine.guarded for session in several)
        assert link.finish() == []


def test_a_step_that_was_interrupted_as_it_began_is_not_taken_for_the_next_one(
    step: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_that_step(step) as (link, one, other):
        with monkeypatch.context() as patch:
            for begins in ("begin", "set_off"):
                patch.setattr(Link, begins, interrupted_behind(getattr(Link, begins)))
            with pytest.raises(KeyboardInterrupt):
                link.begin([(one, step(one)), (other, step(other))])
        uncertain, result = link.run([(one, step(one)), (other, step(other))])
        assert isinstance(uncertain, StepUncertain)
        np.testing.assert_array_equal(result["agent"].outputs, expected(ACTION, 4, 3, seed=2))


@contextmanager
def two_that_step(step: Work) -> Iterator[tuple[FleetLink, BlockingSession, BlockingSession]]:
    """Behind three steps, of which the later ones are on their straight way."""
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as (one, other):
        link = Fleet()
        for _ in range(3):
            link.run([(one, step(one)), (other, step(other))])
        yield link, one, other


def interrupted_behind(call: Callable[..., Any]) -> Callable[..., Any]:
    def interrupted(*given: Any) -> None:
        call(*given)
        raise KeyboardInterrupt

    return interrupted


def test_what_an_interrupted_step_brought_is_not_taken_for_the_result_of_what_follows(
    step: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_that_step(step) as (link, one, other):
        link.begin([(one, step(one)), (other, step(other))])
        with monkeypatch.context() as patch:
            patch.setattr(Link, "result", interrupted_behind(Link.result))
            with pytest.raises(KeyboardInterrupt):
                link.finish()
        assert link.run([(s, s.conversation.get("/Simulation/SimulationTime")) for s in (one, other)]) == [
            s.get("/Simulation/SimulationTime") for s in (one, other)
        ]


def test_what_is_read_late_is_no_silence_where_several_agents_vote_one_by_one(step: Work) -> None:
    worlds = (SyntheticWorld(1, 3, names=["agent", "other"]) for _ in range(2))
    with sessions(*worlds, profile=NERD) as several:
        for session in several:
            session.register("other")
            session.reset(1)
        link = Fleet()
        link.begin([(s, step(s)) for s in several])
        time.sleep(0.4)
        assert all(result.keys() == {"agent", "other"} for result in link.finish())
        assert not any(session.machine.guarded for session in several)


def test_leaving_in_the_middle_of_a_step_takes_less_than_two_seconds(step: Work) -> None:
    with sessions(*(SyntheticWorld(1, 3, think=0.05) for _ in range(3))) as several:
        link = Fleet()
        link.begin([(s, step(s)) for s in several])
        started = time.monotonic()
        link.leave(several)
        assert time.monotonic() - started < 2
        assert all(session.closed for session in several)


def test_leaving_simulators_that_hang_takes_two_seconds_for_all() -> None:
    with ExitStack() as stack:
        programs = [
            subprocess.Popen(
                [sys.executable, "-m", "ospbridge", "sim", "--synthetic", "1,3,0", "--port", "0"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for program in programs:
            stack.callback(program.communicate)
            stack.callback(program.kill)
        several = []
        for program in programs:
            assert program.stdout is not None
            several.append(BlockingSession.connect(program.stdout.readline().strip()))
            several[-1].register("agent")
        for program in programs:
            os.kill(program.pid, signal.SIGSTOP)
        started = time.monotonic()
        Fleet().leave(several)
        assert time.monotonic() - started < 2.5


def test_leaving_servers_that_owe_answers_takes_two_seconds_for_all() -> None:
    with sessions(*(SyntheticWorld(1, 3) for _ in range(12))) as several:
        for session in several:
            session._others = SeeingOff.beside(session._socket, session.server, session.profile, 1)
        started = time.monotonic()
        Fleet().leave(several)
        assert time.monotonic() - started < 1


@pytest.mark.parametrize("silent", [False, True])
def test_who_waited_behind_others_and_leaves_in_a_fleet_locks_nobody_out(
    profile: Profile, silent: bool
) -> None:
    with (
        OneAtATime(SyntheticWorld(1, 3), profile) as busy,
        sessions(SyntheticWorld(1, 3)) as (other,),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody,
    ):
        first = BlockingSession.connect(busy.address)
        leaving = threading.Timer(1.3, first.close)
        leaving.start()
        late = BlockingSession.connect(busy.address, limits=Limits(connect=8.0))
        leaving.join(10)
        if silent:
            nobody.bind(("127.0.0.1", 0))
            other._socket.connect(nobody.getsockname())
        Fleet().leave([other, late])
        BlockingSession.connect(busy.address, limits=Limits(connect=2.0), reclaim_stale=False).close()


def test_sessions_that_were_given_up_free_their_agents_too() -> None:
    with sessions(SyntheticWorld(1, 3), SyntheticWorld(1, 3)) as several:
        given_up, _ = several
        given_up.machine.lost = SessionLost("silent for too long")
        Fleet().leave(several)
        with BlockingSession.connect(given_up.server, reclaim_stale=False) as other:
            assert all(entry.available for entry in other.agents())


def test_only_simulators_of_this_machine_want_a_core_of_it() -> None:
    assert cores_wanted(["127.0.0.1"]) == 2
    assert cores_wanted(["10.0.0.1", "10.0.0.2", "robots.example"]) == 2
    assert cores_wanted(["127.0.0.1", "::1", "localhost", "10.0.0.1"]) == 4
