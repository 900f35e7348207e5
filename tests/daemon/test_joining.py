"""Joining the simulator: absent, gone and back, evicted; what cannot be joined; and agents that are freed by force."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.daemon import supervisor
from ospbridge.daemon.attachment import OUT_OF_REACH
from ospbridge.daemon.supervisor import Patience
from ospbridge.errors import AgentTaken, BarrierStuck, SessionLost, SimulatorNotFound
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.rebuild import CAPACITY, Budget
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import LocalDaemon, all_free, at_once, free_port, run_here, seat_of, until, values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator


pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("impatient")]


def restart_communication(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(str(simulator.address), reclaim_stale=False) as other:
        other.restart_communication()


# --- a simulator that is not there -----------------------------------------------------------------------------------


def test_an_absent_simulator_is_waited_for_and_said_once() -> None:
    address = Endpoint("127.0.0.1", free_port())
    with LocalDaemon(address, ready=False) as daemon:
        until(lambda: daemon.lines("waiting for the simulator"))
        assert not daemon.status().ready
        with pytest.raises(SimulatorNotFound, match=str(address)):
            seat_of("agent", wait=0.0)
        with UdpSimulator(SyntheticWorld(2, 3), port=address.port, profile=DOCUMENT):
            assert [agent.name for agent in daemon.wait_ready().agents] == ["agent"]
            assert daemon.end() == 0
        assert len(daemon.lines("waiting for the simulator")) == 1


@pytest.mark.trio
async def test_pauses_double_and_what_is_waited_for_is_said_ever_more_rarely_until_time_is_up(
    autojump_clock: object,
) -> None:
    said: list[float] = []
    patience = Patience(901.5, first=1.0, longest=5.0, say=lambda _, waited: said.append(waited))
    pauses = []
    for _ in range(182):
        before = trio.current_time()
        await patience.after(SimulatorNotFound("nothing listens"))
        pauses.append(trio.current_time() - before)
    assert [*pauses[:4], pauses[-1]] == pytest.approx([1.0, 2.0, 4.0, 5.0, 4.5])
    assert said == [0.0, 62.0, 182.0, 422.0]
    with pytest.raises(SimulatorNotFound, match=r"nothing listens, still so after 901\.5 s"):
        await patience.after(SimulatorNotFound("nothing listens"))


# --- a session that is lost ------------------------------------------------------------------------------------------


def test_a_session_that_is_lost_again_and_again_ends_the_daemon(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CAPACITY == 10
    monkeypatch.setattr(supervisor, "Budget", partial(Budget, capacity=2))
    with LocalDaemon(document.address) as daemon:
        for lost in range(3):
            daemon.rebuilt(lost)
            restart_communication(document)
        assert daemon.wait() == 75
        assert "lost too often" in str(daemon.error)
        assert all_free(document)


def test_a_simulator_that_dies_while_nobody_plays_is_noticed() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=DOCUMENT) as simulator:
        daemon = LocalDaemon(simulator.address)
        daemon.__enter__()
    with closing(daemon):
        until(lambda: not daemon.conductor.ready and daemon.lines("the session is given up"))
        assert len(daemon.lines("the session is given up")) == 1


def test_a_simulator_that_comes_back_is_joined_again() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=DOCUMENT) as simulator:
        daemon = LocalDaemon(simulator.address)
        daemon.__enter__()
        seat = seat_of("agent")
        seat.reset(1)
        seat.step(values(0.5))
    with closing(daemon), closing(seat):
        cut = seat.step(values(0.5))
        assert (cut.truncated, cut.terminated) == (True, False)
        assert cut.reason
        with UdpSimulator(SyntheticWorld(2, 3), port=simulator.address.port, profile=DOCUMENT):
            assert seat.reset(4).info["osp_seed"] == 4
            assert not seat.step(values(0.5)).truncated
            assert daemon.status().rebuilds == 1
            assert daemon.end() == 0


def test_who_plays_while_another_client_restarts_the_communication_is_truncated_and_plays_on(
    simulator: UdpSimulator,
) -> None:
    with LocalDaemon(simulator.address) as daemon, closing(seat_of("agent1")) as seat:
        seat.reset(1)
        last = seat.step(values(0.5))
        restart_communication(simulator)
        cut = seat.step(values(0.25))
        assert (cut.truncated, cut.terminated) == (True, False)
        assert cut.reason
        assert cut.info["reason"] == cut.reason
        assert cut.observation.tolist() == last.observation.tolist()
        assert seat.reset(2).info["osp_seed"] == 2
        assert not seat.step(values(0.5)).truncated
        assert daemon.status().rebuilds == 1


def test_an_eviction_is_noticed_while_nobody_plays(simulator: UdpSimulator) -> None:
    with LocalDaemon(simulator.address) as daemon:
        restart_communication(simulator)
        daemon.rebuilt()
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            assert not seat.step(values(0.5)).truncated


def test_an_agent_that_another_client_took_meanwhile_is_told_as_that_clients(document: UdpSimulator) -> None:
    with LocalDaemon(document.address) as daemon, closing(seat_of("agent2")) as seat, ExitStack() as stack:
        # It would take its agents again as soon as it hears that they are free.
        with daemon.stopped():
            restart_communication(document)
            other = stack.enter_context(BlockingSession.connect(document.address, reclaim_stale=False))
            other.register("agent2")
        daemon.rebuilt()
        with pytest.raises(SessionLost, match="agent 'agent2' is another client's since") as lost:
            seat.reset(1)
        with pytest.raises(AgentTaken, match="another client of the simulator controls it") as taken:
            seat_of("agent2")
        assert lost.value.hint == taken.value.hint == OUT_OF_REACH
        (said,) = daemon.lines("agents are missing")
        assert (said["agents"], said["held_by_others"]) == (["agent2"], ["agent2"])


# --- beside other clients --------------------------------------------------------------------------------------------


def test_resets_of_others_are_acknowledged_while_nobody_plays(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(str(simulator.address)) as other:
        other.register("agent2")
        with LocalDaemon(simulator.address) as daemon, closing(seat_of("agent1")) as seat:
            assert [agent.name for agent in daemon.status().agents] == ["agent1"]

            def step(number: float) -> object:
                return other.step({"agent2": values(number)})

            for seed in (1, 2):
                at_once(partial(seat.reset, seed), lambda: (other.reset(seed), step(0.0)))  # noqa: B023
                for _ in range(3):
                    at_once(lambda: seat.step(values(0.5)), partial(step, 0.25))
            assert daemon.status().steps == 8


@pytest.mark.parametrize(
    "options, code, words",
    [
        (("--quorum", "3"), 78, "can never be met"),
        (("--hub", "unix:/proc/nowhere/hub"), 78, "cannot listen"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    document: UdpSimulator, options: tuple[str, ...], code: int, words: str
) -> None:
    done = run_here("connect", "--simulator", str(document.address), *options)
    assert done.exit_code == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert all_free(document)


# --- agents that others hold ------------------------------------------------------------------------------------------


RESTARTED = "the communication is restarted"


@pytest.fixture
def vanished(simulator: UdpSimulator, tmp_path: Path) -> Iterator[BlockingSession]:
    """A client of another kind that took an agent, and will never vote or leave: it left no lease of ours."""
    session = BlockingSession.connect(simulator.address, leases=tmp_path / "elsewhere")
    session.register("agent1")
    with session:
        yield session


def test_an_agent_that_somebody_holds_is_taken_where_force_is_allowed(
    simulator: UdpSimulator, vanished: BlockingSession
) -> None:
    with LocalDaemon(simulator.address, force_restart=True, agents=("agent1",)) as daemon:
        (said,) = daemon.lines(RESTARTED)
        assert said["agents"] == ["agent1"]
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            seat.step(values(0.1))
        with pytest.raises(SessionLost):
            vanished.reset(1)


@pytest.mark.parametrize("agents", [("agent2",), ("agent1", "agent9")], ids=["others", "not all there"])
def test_nobody_is_disconnected_for_agents_that_are_not_wanted_or_not_all_there(
    simulator: UdpSimulator, vanished: BlockingSession, agents: tuple[str, ...]
) -> None:
    with LocalDaemon(simulator.address, ready=False, force_restart=True, agents=agents, wait=0.0) as daemon:
        until(lambda: daemon.error or daemon.conductor.ready)
        vanished.agents()
        assert vanished.controlled == ("agent1",)


@pytest.mark.usefixtures("vanished")
def test_a_world_that_waits_for_others_is_freed_where_force_is_allowed(simulator: UdpSimulator) -> None:
    with LocalDaemon(
        simulator.address, force_restart=True, agents=("agent2",), limits=Limits(reset=0.5)
    ) as daemon:
        with closing(seat_of("agent2")) as seat:
            with pytest.raises(BarrierStuck, match="agent1"):
                seat.reset(1)
            until(lambda: daemon.lines(RESTARTED) and daemon.conductor.ready)
            seat.reset(2)
            seat.step(values(0.1))
        (said,) = daemon.lines(RESTARTED)
        assert said["agents"] == ["agent1"]


def test_those_who_come_back_are_not_disconnected_for_ever(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons that want the same agent would evict each other without end."""
    monkeypatch.setattr("ospbridge.daemon.supervisor.RESTARTS", 2)
    refused = "the communication is not restarted again so soon"

    def done(times: int) -> bool:
        return len([*daemon.lines(RESTARTED), *daemon.lines(refused)]) == times

    with LocalDaemon(document.address, force_restart=True, agents=("agent1",)) as daemon:
        for times in range(1, 4):
            with ExitStack() as stack:
                with daemon.stopped():
                    with BlockingSession.connect(document.address) as other:
                        other.restart_communication()
                    other = stack.enter_context(BlockingSession.connect(document.address))
                    other.register("agent1")
                until(partial(done, times))
                if times < 3:
                    daemon.rebuilt(times)
        assert (len(daemon.lines(RESTARTED)), len(daemon.lines(refused))) == (2, 1)
