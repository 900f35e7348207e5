from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.bench.floors import many_floor, one_floor
from ospbridge.bench.processes import Program
from ospbridge.errors import BarrierStuck
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.loopback

SIZES = ("--inputs", "3", "--outputs", "4")
OUTPUTS = np.array([0, 0.25, 0.5, 0.75], np.float32)


@pytest.fixture(params=sorted(PROFILES))
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def responder(profile: str) -> Iterator[str]:
    with Program("ospbridge.bench.responder", *SIZES, "--profile", profile) as program:
        yield program.line(20.0)


def test_a_session_finds_a_server_whose_clock_agrees_with_the_steps(responder: str, profile: str) -> None:
    for _ in range(2):
        with BlockingSession.connect(responder) as session:
            assert session.profile.name == profile
            (agent,) = session.register("agent")
            assert (len(agent.inputs), len(agent.outputs)) == (3, 4)
            assert session.reset(7)
            outcomes = [session.step({"agent": [0.1, 0.2, 0.3]})["agent"] for _ in range(50)]
            outcome = outcomes[-1]
            np.testing.assert_array_equal(outcome.outputs, OUTPUTS)
            assert float(session.get("/Simulation/SimulationTime").value) == pytest.approx(0.5)
            assert session.audit() == ""
            assert not session.take_notices()


@pytest.mark.parametrize("spin", [False, True])
def test_the_floors_exchange_the_same_datagrams(responder: str, profile: str, spin: bool) -> None:
    for _ in range(2):
        with one_floor(responder, PROFILES[profile], 3, 4, spin=spin) as step:
            for _ in range(20):
                np.testing.assert_array_equal(step(), OUTPUTS)
    with BlockingSession.connect(responder) as session:
        assert session.agents()[0].available


def test_it_ends_when_its_standard_input_does() -> None:
    with Program("ospbridge.bench.responder") as program:
        program.line(20.0)
        assert program.process.stdin is not None
        program.process.stdin.close()
        assert program.process.wait(5.0) == 0


def test_many_agents_of_one_client_step_together(profile: str) -> None:
    with Program("ospbridge.bench.responder", *SIZES, "--profile", profile, "--agents", "5") as program:
        address = program.line(20.0)
        for _ in range(2):
            with BlockingSession.connect(address) as session:
                names = [agent.name for agent in session.register(*(f"agent{n}" for n in range(1, 6)))]
                assert session.reset(7)
                for _ in range(20):
                    outcomes = session.step({name: [0.1, 0.2, 0.3] for name in names})
                    assert list(outcomes) == names
                    for outcome in outcomes.values():
                        np.testing.assert_array_equal(outcome.outputs, OUTPUTS)
                assert float(session.get("/Simulation/SimulationTime").value) == pytest.approx(0.2)
                assert session.audit() == ""
                assert not session.take_notices()


def test_agents_of_two_clients_wait_for_each_other(profile: str) -> None:
    with (
        Program("ospbridge.bench.responder", *SIZES, "--profile", profile, "--agents", "2") as program,
        BlockingSession.connect(address := program.line(20.0), limits=Limits(step=0.5)) as one,
    ):
        one.register("agent1")
        one.reset(1)
        with BlockingSession.connect(address) as other:
            other.register("agent2")
            with pytest.raises(BarrierStuck):
                one.step({"agent1": [0.0, 0.0, 0.0]})


@pytest.mark.parametrize("spin", [False, True])
def test_the_floor_of_many_agents_steps_them_together(profile: str, spin: bool) -> None:
    with Program("ospbridge.bench.responder", *SIZES, "--profile", profile, "--agents", "3") as program:
        address = program.line(20.0)
        with many_floor([address], PROFILES[profile], 3, 4, agents=3, spin=spin) as step:
            for _ in range(10):
                found = step()
                assert len(found) == 3
                for outputs in found:
                    np.testing.assert_array_equal(outputs, OUTPUTS)
        with BlockingSession.connect(address) as session:
            assert all(agent.available for agent in session.agents())


@pytest.mark.timed
@pytest.mark.parametrize("spin", [False, True])
def test_simulators_that_think_do_so_at_the_same_time(profile: str, spin: bool) -> None:
    count, think = 8, 0.05
    options = ("--profile", profile, "--simulators", str(count), "--think", str(think))
    with Program("ospbridge.bench.responder", *SIZES, *options) as program:
        addresses = [program.line(20.0) for _ in range(count)]
        with many_floor(addresses, PROFILES[profile], 3, 4, agents=1, spin=spin) as step:
            began = time.monotonic()
            for _ in range(3):
                assert len(step()) == count
            took = time.monotonic() - began
    # One after the other they would take eight times as long.
    assert 3 * think <= took < 3 * think * count


def test_a_client_that_asks_for_more_than_steps_is_answered_by_the_machine(profile: str) -> None:
    with (
        Program("ospbridge.bench.responder", *SIZES, "--profile", profile, "--think", "0.001") as program,
        BlockingSession.connect(program.line(20.0)) as session,
    ):
        session.register("agent")
        for _ in range(3):
            session.reset(1)
            for number in range(1, 6):
                session.step({"agent": [0.1, 0.2, 0.3]})
                time_there = float(session.get("/Simulation/SimulationTime").value)
                assert time_there == pytest.approx(number / 100)
            assert session.audit() == ""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core the responder never spins")
def test_what_is_asked_while_one_thinks_keeps_no_step_from_its_end(profile: str) -> None:
    """A session asks for the time where a completion takes longer than its patience."""
    with (
        Program("ospbridge.bench.responder", *SIZES, "--profile", profile, "--think", "0.4") as program,
        BlockingSession.connect(program.line(20.0), limits=Limits(step=5.0)) as session,
    ):
        session.register("agent")
        session.reset(7)
        outcome = session.step({"agent": [0.1, 0.2, 0.3]})["agent"]
        np.testing.assert_array_equal(outcome.outputs, OUTPUTS)
        assert not outcome.restored
        session.step({"agent": [0.1, 0.2, 0.3]})


@pytest.mark.timed
def test_one_that_is_to_sleep_takes_no_processor_between_steps() -> None:
    used = {}
    for words in ((), ("--sleep",)):
        with Program("ospbridge.bench.responder", *SIZES, *words) as program:
            with one_floor(program.line(20.0), PROFILES["document"], 3, 4, spin=False) as step:
                before = _on_processor(program.process.pid)
                for _ in range(200):
                    step()
                    time.sleep(0.002)
            used[words] = _on_processor(program.process.pid) - before
    assert used["--sleep",] < 0.6 * used[()]


def _on_processor(pid: int) -> int:
    """Nanoseconds that the process has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
