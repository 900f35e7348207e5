"""Joining the simulator: absent, without agents, gone and back, evicted, unfit; and agents that are freed by force."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from click.testing import Result
from structlog.testing import capture_logs

from ospbridge.daemon import service, supervisor
from ospbridge.daemon.attachment import OUT_OF_REACH
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.settings import Settings
from ospbridge.daemon.supervisor import Patience
from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    BarrierStuck,
    ConfigurationError,
    OspBridgeError,
    SessionLost,
    SimulatorNotFound,
    StepUncertain,
)
from ospbridge.hub.status import StatusReply
from ospbridge.interface import Endpoint, Match
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.rebuild import CAPACITY, Budget
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import (
    WITHIN,
    LocalDaemon,
    all_free,
    at_once,
    free_port,
    run_here,
    seat_of,
    until,
    values,
)
from tests.daemon.stage import ONE, Logs

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


# --- agents that are not there yet ------------------------------------------------------------------------------------


def awaiting(daemon: LocalDaemon, words: str) -> StatusReply:
    """The daemon's status, once it waits for that."""
    until(
        lambda: words in daemon.conductor.supervisor.connection.text,
        lambda: daemon.conductor.supervisor.connection.text,
    )
    return daemon.status()


def test_a_simulator_without_a_scene_is_joined_once_it_has_one(simulator: UdpSimulator) -> None:
    scene, simulator.machine.controls = simulator.machine.controls, []
    with LocalDaemon(simulator.address, ready=False) as daemon:
        found = awaiting(daemon, "waiting for agents")
        assert not found.ready
        assert "no agents at all" in found.connection
        assert "scene" in found.hint
        simulator.machine.controls = scene
        assert [agent.name for agent in daemon.wait_ready().agents] == ["agent1", "agent2"]
        assert daemon.status().hint == ""
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            assert not seat.step(values(0.5)).truncated
        (said,) = daemon.lines("waiting for agents")
        assert (said["level"], said["simulator"]) == ("warning", str(simulator.address))


def test_a_named_agent_that_is_not_there_is_waited_for_and_told_with_what_is(document: UdpSimulator) -> None:
    scene = document.machine.controls
    document.machine.controls = scene[1:]
    with LocalDaemon(document.address, ready=False, agents=("agent1",), wait=3600.0) as daemon:
        awaiting(daemon, "no agent 'agent1'; it offers agent2")
        shown = run_here("status")
        assert shown.exit_code == 69
        assert "waiting for agents" in shown.stdout
        assert "did you mean 'agent2'?" in shown.stderr
        (said,) = daemon.lines("waiting for agents")
        assert "it offers agent2" in said["reason"]
        with pytest.raises(SimulatorNotFound, match=r"offers agent2.*did you mean"):
            seat_of("agent1", wait=0.0)
        document.machine.controls = scene
        assert [agent.name for agent in daemon.wait_ready().agents] == ["agent1"]


@pytest.mark.parametrize("changes", [{}, {"agents": ("agent1",)}, {"quorum": 2}], ids=str)
def test_agents_that_other_clients_control_are_taken_once_they_are_free(
    simulator: UdpSimulator, changes: dict[str, Any]
) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("agent1", "agent2")
        with LocalDaemon(simulator.address, ready=False, wait=3600.0, **changes) as daemon:
            found = awaiting(daemon, "waiting for agents")
            assert "agent1" in found.connection
            assert "restart-communication" in found.hint
            assert other.controlled == ("agent1", "agent2")
            other.close()
            assert "agent1" in [agent.name for agent in daemon.wait_ready().agents]


def test_status_waits_until_the_agents_are_ready(document: UdpSimulator) -> None:
    found: list[Result] = []
    waiting = threading.Thread(target=lambda: found.append(run_here("status", "--wait", "20", "--json")))
    waiting.start()
    with LocalDaemon(document.address):
        waiting.join(30)
        (done,) = found
        assert done.exit_code == 0
        status = json.loads(done.stdout)
        assert [agent.pop("name") for agent in status["agents"]] == ["agent1", "agent2"]
        expected = {
            "ready": True,
            "simulator": str(document.address),
            "profile": "document",
            "connection": "joined",
            "pid": os.getpid(),
            "recording": None,
        }
        assert expected.items() <= status.items()
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            done = run_here("status")
        assert done.exit_code == 0
        assert f"(pid {os.getpid()})" in done.stdout
        assert "agent2  free" in done.stdout
        assert "recording" not in done.stdout


@pytest.mark.parametrize("options", [(), ("--wait", "0")], ids=["unsaid", "one_try"])
def test_agents_that_do_not_exist_or_are_taken_are_an_error_at_once_unless_they_are_to_be_waited_for(
    document: UdpSimulator, options: tuple[str, ...]
) -> None:
    once = ("connect", "--simulator", str(document.address), *options)
    done = run_here(*once, "--agent", "agnet1")
    assert done.exit_code == AgentNotFound.exit_code == 2
    assert "it offers agent1, agent2" in done.stderr
    assert "Hint: did you mean 'agent1'?" in done.stderr
    with BlockingSession.connect(document.address) as other:
        other.register("agent1", "agent2")
        done = run_here(*once)
        assert done.exit_code == AgentTaken.exit_code == 69
        assert "controlled by another client" in done.stderr


def test_a_scenario_that_is_for_none_of_the_agents_is_told(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, meant=(Match(name="agnt*"),)) as daemon:
        (line,) = daemon.lines("the scenario matches no agent")
    assert (line["matches"], line["agents"]) == (["'agnt*'"], ["agent1", "agent2"])


# --- between a session's first word and its agents --------------------------------------------------------------------


@pytest.fixture
def subscribing(monkeypatch: pytest.MonkeyPatch) -> list[OspBridgeError]:
    """What is raised instead of asking the simulator for events and values, one a time."""
    errors: list[OspBridgeError] = []
    subscribe = TrioSession.subscribe

    async def subscribed(session: TrioSession, tasks: Any) -> None:
        if errors:
            raise errors.pop(0)
        await subscribe(session, tasks)

    monkeypatch.setattr(TrioSession, "subscribe", subscribed)
    return errors


def made(simulator: UdpSimulator) -> Conductor:
    return Conductor(Settings(hub=Path("hub"), simulator=simulator.address))


@asynccontextmanager
async def running(simulator: UdpSimulator) -> AsyncIterator[Conductor]:
    conductor = made(simulator)

    async def run() -> NoReturn:
        await conductor.run()
        raise AssertionError("it ended")

    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until_so(lambda: conductor.ready)
            yield conductor
            nursery.cancel_scope.cancel()


async def until_so(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.005)


@pytest.mark.trio
async def test_one_of_several_simulators_that_was_lost_too_often_is_joined_again_after_a_while(
    document: UdpSimulator, subscribing: list[OspBridgeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor, other = made(document), made(document)
    subscribing += [SessionLost("it fell silent", hint="wait") for _ in range(CAPACITY + 1)]
    left = [conductor, other]
    pauses = trio.Event()
    sleep = trio.sleep

    async def asleep(seconds: float) -> None:
        if seconds == service.LOST_PAUSE:
            assert left == [other]
            assert conductor.supervisor.connection.given_up
            assert "joined again within 60 s" in conductor.supervisor.connection.hint
            await pauses.wait()
        else:
            await sleep(seconds)

    monkeypatch.setattr(trio, "sleep", asleep)
    with capture_logs() as logs, trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service._keep, conductor, left)
            await until_so(lambda: conductor.supervisor.connection.given_up)
            pauses.set()
            await until_so(lambda: conductor.ready)
            assert not conductor.supervisor.connection.given_up
            assert left == [other, conductor]
            nursery.cancel_scope.cancel()
    (told,) = [line for line in logs if line["event"].startswith("a simulator is left alone")]
    assert "lost too often" in told["reason"]


@pytest.mark.trio
async def test_steps_in_doubt_since_datagrams_come_twice_give_up_no_simulator(
    document: UdpSimulator,
) -> None:
    async with running(document) as conductor:
        supervised = conductor.supervisor
        for count in range(CAPACITY + 3):
            await until_so(lambda: conductor.ready)
            supervised.busy_since = trio.current_time()
            async with supervised.turn():
                supervised.give_up(StepUncertain("counted twice", by_network=True))
            supervised.busy_since = None
            supervised.changed()
            while conductor.rebuilds <= count:
                await trio.sleep(0.005)
        await until_so(lambda: conductor.ready)


@pytest.mark.trio
async def test_a_simulator_that_comes_back_without_what_a_task_wants_is_told_and_tried_again(
    document: UdpSimulator, subscribing: list[OspBridgeError], monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    monkeypatch.setattr(supervisor, "UNFIT_PAUSE", 0.1)
    async with running(document) as conductor:
        subscribing += [ConfigurationError("there is no such event", hint="name another")] * 3
        async with await TrioSession.connect(document.address, reclaim_stale=False) as other:
            await other.restart_communication()
        await until_so(lambda: conductor.supervisor.connection.text == "there is no such event")
        with pytest.raises(SimulatorNotFound, match="there is no such event"):
            conductor.attach(["agent1"], ONE)
        await until_so(lambda: conductor.ready)
        assert len(conductor.attach(["agent1"], ONE)) == 1
        assert conductor.rebuilds == 1
    (said,) = logs.of("the simulator came back otherwise")
    assert (said["reason"], said["hint"]) == ("there is no such event", "name another")


@pytest.mark.trio
async def test_a_lack_of_descriptors_is_waited_out_and_told(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    async def lacking(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.05)
    async with running(document) as conductor:
        with monkeypatch.context() as patched:
            patched.setattr(TrioSession, "connect", lacking)
            conductor.supervisor.give_up(SessionLost("a test gives it up", hint="wait"))
            conductor.supervisor.changed()
            await until_so(lambda: "Too many open files" in conductor.supervisor.connection.text)
            assert "ulimit" in conductor.supervisor.connection.hint
        await until_so(lambda: conductor.ready)
    assert [line for line in logs if "Too many open files" in line.get("reason", "")]
