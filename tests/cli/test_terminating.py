"""SIGTERM ends each program within three seconds, whatever it is at; and closing takes two at most.

Measured from the signal to the exit, so that what Python takes to start does not count.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

import ospbridge
from ospbridge.errors import BarrierStuck, OspBridgeError
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.learner import TinyLearner, drive, learning
from tests.daemon.running import PROGRAM, Daemon, all_free, free_port, seat_of, values
from tests.sink.clients import episodes, said

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.session.hub_seat import HubSeat

assert ospbridge.__version__
pytestmark = [pytest.mark.loopback, pytest.mark.timeout(60)]
EXIT = 3.0
CLOSE = 2.0
MEASURED = 0.4
"""Seconds that a busy machine may add to what a program takes."""
WITHIN = 20.0


def seconds_to_exit(process: subprocess.Popen[Any]) -> float:
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN) == 0
    return time.monotonic() - begun


def in_background(call: Callable[[], object]) -> threading.Thread:
    """Something that waits for what never comes, until what it waits for ends."""

    def run() -> None:
        with suppress(OspBridgeError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


class Stage:
    """A simulator of this process with two agents, and a daemon that has joined it."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.stack = stack
        self.directory = directory
        self.simulator: UdpSimulator | None = None

    def served(self, *, agents: int = 2, inputs: int = 2, outputs: int = 3, think: float = 0.0) -> str:
        world = SyntheticWorld(inputs, outputs, agents=agents, think=think)
        self.simulator = self.stack.enter_context(UdpSimulator(world, port=0, profile=DOCUMENT))
        return str(self.simulator.address)

    def program(self) -> subprocess.Popen[str]:
        """A simulator in a process of its own, whose address is its first line."""
        process = subprocess.Popen(
            [*PROGRAM, "sim", "--synthetic", "2,3,0", "--port", "0", "--quiet"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.stack.callback(process.communicate)
        self.stack.callback(process.kill)
        return process

    def daemon(self, simulator: object, *options: str, wait: bool = True) -> Daemon:
        made = Daemon(simulator, *options, directory=self.directory, wait=wait)
        return self.stack.enter_context(made)

    def seat(self, agent: str) -> HubSeat:
        seat = seat_of(agent)
        self.stack.callback(seat.close)
        return seat

    def silent_tcp(self) -> str:
        listener = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack, tmp_path)


def address_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


# --- the daemon ----------------------------------------------------------------------------------------------------


def nobody_there(stage: Stage) -> Daemon:
    daemon = stage.daemon(f"127.0.0.1:{free_port()}", wait=False)
    daemon.status()
    return daemon


def silence_there(stage: Stage) -> Daemon:
    sock = stage.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.bind(("127.0.0.1", 0))
    daemon = stage.daemon(f"127.0.0.1:{sock.getsockname()[1]}", wait=False)
    daemon.status()
    return daemon


def step_under_way(stage: Stage) -> Daemon:
    daemon = stage.daemon(stage.served(think=0.3))
    seat = stage.seat("agent1")
    seat.reset(1)
    in_background(lambda: [seat.step(values(0.5)) for _ in range(1000)])
    time.sleep(0.4)
    return daemon


def step_waits_for_a_client(stage: Stage) -> Daemon:
    """Somebody who is no environment of the daemon has the other agent, and does not step."""
    address = stage.served()
    daemon = stage.daemon(address, "--agent", "agent1")
    other = stage.stack.enter_context(BlockingSession.connect(address))
    other.register("agent2")
    seat = stage.seat("agent1")
    ready = threading.Event()

    def play() -> None:
        seat.reset(1)
        ready.set()
        seat.step(values(0.5))

    in_background(play)
    other.reset(1)
    other.step({"agent2": values(0.0)})
    assert ready.wait(WITHIN)
    time.sleep(0.3)
    return daemon


def reset_waits_for_a_client(stage: Stage) -> Daemon:
    address = stage.served()
    daemon = stage.daemon(address, "--agent", "agent1")
    stage.stack.enter_context(BlockingSession.connect(address)).register("agent2")
    seat = stage.seat("agent1")
    in_background(lambda: seat.reset(1))
    daemon.wait_until("waiting for reset", "agent1")
    return daemon


def step_waits_for_an_environment(stage: Stage) -> Daemon:
    """Episodes were recorded and wait for an upstream that is away, one is under way, and somebody half asks."""
    options = ("--rllink", f"127.0.0.1:{free_port()}", "--rllink-mode", "observe", "--rllink-unannotated")
    record = ("--record", str(stage.directory / "recorded"))
    daemon = stage.daemon(stage.served(), "--quorum", "2", *options, *record)
    one, two = stage.seat("agent1"), stage.seat("agent2")

    def play() -> None:
        for seed in range(1, 30):
            one.reset(seed)
            one.step(values(0.5))

    in_background(play)
    for seed in range(1, 30):
        two.reset(seed)
        if seed < 29:
            two.step(values(0.5))
    daemon.wait_until("playing", "agent1")
    until(lambda: daemon.lines("upstream away"))
    client = HubClient.connect()
    stage.stack.callback(client.close)
    client.send(bytearray(b"\x40\0\0\0half"), 1.0)
    time.sleep(0.2)
    return daemon


def reset_waits_for_a_quorum(stage: Stage) -> Daemon:
    daemon = stage.daemon(stage.served(), "--quorum", "2")
    seat = stage.seat("agent1")
    in_background(lambda: seat.reset(1))
    daemon.wait_until("waiting for reset", "agent1")
    return daemon


def simulator_stopped_in_a_step(stage: Stage) -> Daemon:
    program = stage.program()
    daemon = stage.daemon(address_of(program))
    seat = stage.seat("agent")
    seat.reset(1)
    os.kill(program.pid, signal.SIGSTOP)
    in_background(lambda: seat.step(values(0.5)))
    time.sleep(0.4)
    return daemon


def weights_awaited_for_the_first_time(stage: Stage) -> Daemon:
    """It asks, and the server does not answer before it has other things done."""
    learner = TinyLearner()
    learner.thinks = 30.0
    address = stage.stack.enter_context(learning(learner))
    daemon = stage.daemon(stage.served(inputs=1, outputs=1), *drive(address))
    until(lambda: daemon.lines("upstream connected"))
    return daemon


def upstream_and_simulator_stopped(stage: Stage) -> Daemon:
    program = stage.program()
    daemon = stage.daemon(address_of(program), *drive(stage.silent_tcp()))
    time.sleep(0.3)
    os.kill(program.pid, signal.SIGSTOP)
    return daemon


@pytest.mark.parametrize(
    "state",
    [
        nobody_there,
        silence_there,
        step_under_way,
        step_waits_for_a_client,
        reset_waits_for_a_client,
        step_waits_for_an_environment,
        reset_waits_for_a_quorum,
        simulator_stopped_in_a_step,
        upstream_and_simulator_stopped,
        weights_awaited_for_the_first_time,
    ],
    ids=lambda state: state.__name__.replace("_", " "),
)
def test_the_daemon_ends_within_three_seconds(state: Callable[[Stage], Daemon], stage: Stage) -> None:
    daemon = state(stage)
    assert seconds_to_exit(daemon.process) < EXIT, daemon.log.read_text()
    assert daemon.lines("left")
    if stage.simulator is not None:
        assert daemon_agents_free(stage.simulator)


def daemon_agents_free(simulator: UdpSimulator) -> bool:
    """A step or reset that waited for another client leaves the agent of that one taken."""
    with BlockingSession.connect(str(simulator.address), reclaim_stale=False) as session:
        return all(entry.available for entry in session.agents() if entry.name != "agent2")


@pytest.mark.slow
def test_while_weights_are_due_it_ends_within_three_seconds_too_and_the_learner_delivers_them(
    stage: Stage,
) -> None:
    learner = TinyLearner()
    address = stage.stack.enter_context(learning(learner))
    daemon = stage.daemon(stage.served(inputs=1, outputs=1), *drive(address))
    until(lambda: len(learner.batches) > 1)
    learner.thinks = 6.0
    until(lambda: _stands_still(daemon))
    learned = len(learner.batches)
    assert seconds_to_exit(daemon.process) < EXIT
    assert daemon.lines(
        "another process waits for the upstream's weights, since some servers end when they cannot deliver them"
    )
    simulator = stage.simulator
    assert simulator is not None
    assert all_free(simulator)
    until(lambda: learner.delivered > learned)
    assert learner.wrong == []


def _stands_still(daemon: Daemon) -> bool:
    before = daemon.status().steps
    time.sleep(0.2)
    return daemon.status().steps == before


# --- the simulator and the sink ------------------------------------------------------------------------------------


def program(stage: Stage, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """An ``ospbridge`` command, and the address that is its first line."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    stage.stack.callback(process.communicate)
    stage.stack.callback(process.kill)
    return process, address_of(process)


@pytest.mark.parametrize("state", ["in a step", "in a barrier"])
def test_a_simulator_ends_within_three_seconds(state: str, stage: Stage) -> None:
    think = "20" if state == "in a step" else "0"
    options = ("--synthetic", "1,1,0", "--agents", "2", "--think", think, "--port", "0")
    process, address = program(stage, "sim", *options)
    one, two = BlockingSession.connect(address), BlockingSession.connect(address)
    stage.stack.callback(one.close)
    stage.stack.callback(two.close)
    one.register("agent1")
    two.register("agent2")
    steps = [in_background(lambda: one.step({"agent1": [0.0]}))]
    if state == "in a step":
        steps.append(in_background(lambda: two.step({"agent2": [0.0]})))
    time.sleep(0.3)
    assert seconds_to_exit(process) < EXIT
    for step in steps:
        step.join(WITHIN)


def test_a_sink_ends_within_three_seconds(stage: Stage) -> None:
    process, address = program(
        stage, "sink", "--listen", "127.0.0.1:0", "--record", str(stage.directory / "in")
    )
    host, _, port = address.partition(":")
    stage.stack.enter_context(socket.create_connection((host, int(port))))
    client = stage.stack.enter_context(socket.create_connection((host, int(port))))
    client.sendall(b"00001000half")
    time.sleep(0.2)
    assert seconds_to_exit(process) < EXIT


def asked_on(process: subprocess.Popen[Any]) -> None:
    """Two signals at once, and then one after the other until it has ended."""

    def ask() -> None:
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.001)

    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    in_background(ask)


HANGS = """
import os, pathlib, sys, threading
hanging, *words = sys.argv[1:]
def hang(_):
    pathlib.Path(hanging).touch()
    threading.Event().wait(60)
os.fsync = hang
sys.argv = ["ospbridge", *words]
from ospbridge.__main__ import run
run()
"""


def test_a_sink_ends_within_three_seconds_while_its_disk_hangs_and_it_is_asked_again_and_again(
    stage: Stage,
) -> None:
    hanging = stage.directory / "hanging"
    words = ("sink", "--listen", "127.0.0.1:0", "--record", str(stage.directory / "in"))
    process = subprocess.Popen(
        [PROGRAM[0], "-c", HANGS, str(hanging), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stage.stack.callback(process.communicate)
    stage.stack.callback(process.kill)
    host, _, port = address_of(process).partition(":")
    client = stage.stack.enter_context(socket.create_connection((host, int(port))))
    client.sendall(said(episodes([0, 1])))
    until(hanging.exists)

    asked_on(process)
    assert seconds_to_exit(process) < EXIT


@pytest.mark.parametrize("name", ["connect", "sim", "sink"])
def test_a_program_that_is_asked_again_and_again_ends_as_one_that_is_asked_once(
    name: str, stage: Stage
) -> None:
    if name == "connect":
        process: subprocess.Popen[Any] = stage.daemon(stage.served()).process
    elif name == "sim":
        process, _ = program(stage, "sim", "--synthetic", "1,1,0", "--port", "0")
    else:
        process, _ = program(
            stage, "sink", "--listen", "127.0.0.1:0", "--record", str(stage.directory / "in")
        )
    asked_on(process)
    assert seconds_to_exit(process) < EXIT


# --- closing -------------------------------------------------------------------------------------------------------


def seconds_to_close(thing: Any) -> float:
    begun = time.monotonic()
    thing.close()
    return time.monotonic() - begun


def killed(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait(WITHIN)


def stopped(process: subprocess.Popen[Any]) -> None:
    os.kill(process.pid, signal.SIGSTOP)


def made(address: str, agent: str, kind: str) -> Any:
    if kind == "session":
        session = BlockingSession.connect(address)
        session.register(agent)
        return session
    if kind == "vector":
        return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, simulator=address, agents=agent)
    return gymnasium.make("ospbridge/Agent-v0", simulator=address, agent=agent)


@pytest.mark.parametrize("end", [killed, stopped], ids=["killed", "stopped"])
def test_closing_takes_two_seconds_at_most_whatever_became_of_the_simulator(
    end: Callable[[subprocess.Popen[Any]], None], stage: Stage
) -> None:
    process, address = program(stage, "sim", "--synthetic", "2,3,0", "--agents", "3", "--port", "0")

    def whole_life(agent: str, kind: str) -> float:
        thing = made(address, agent, kind)
        ready.wait(WITHIN)
        return seconds_to_close(thing)

    # In threads of their own, since one thread has one environment of a simulator.
    ready = threading.Barrier(4, timeout=WITHIN, action=lambda: end(process))
    kinds = {"agent1": "session", "agent2": "environment", "agent3": "vector"}
    with ThreadPoolExecutor(3) as pool:
        lives = [pool.submit(whole_life, agent, kind) for agent, kind in kinds.items()]
        ready.wait(WITHIN)
        assert max(life.result(WITHIN) for life in lives) < CLOSE + MEASURED


def test_closing_in_a_barrier_that_is_stuck_takes_two_seconds_at_most(stage: Stage) -> None:
    address = stage.served()
    other = stage.stack.enter_context(BlockingSession.connect(address))
    other.register("agent2")
    env = gymnasium.make("ospbridge/Agent-v0", simulator=address, agent="agent1", reset_timeout=0.6)
    with pytest.raises(BarrierStuck):
        env.reset(seed=1)
    assert seconds_to_close(env) < CLOSE


def test_closing_in_the_midst_of_a_step_takes_two_seconds_at_most(stage: Stage) -> None:
    process, address = program(stage, "sim", "--synthetic", "2,3,0", "--think", "20", "--port", "0")
    assert process.poll() is None
    session = BlockingSession.connect(address, limits=Limits(step=0.6, query=0.5))
    session.register("agent")
    with pytest.raises(OspBridgeError):
        session.step({"agent": [0.0, 0.0]})
    assert seconds_to_close(session) < CLOSE + MEASURED


@pytest.mark.parametrize("kind", ["environment", "vector"])
def test_closing_at_the_hub_takes_two_seconds_at_most_while_the_daemon_is_stopped(
    kind: str, stage: Stage
) -> None:
    daemon = stage.daemon(stage.served(agents=1))
    env = (
        gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1)
        if kind == "vector"
        else gymnasium.make("ospbridge/Agent-v0")
    )
    env.reset(seed=1)
    stopped(daemon.process)
    assert seconds_to_close(env) < CLOSE
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert seconds_to_exit(daemon.process) < EXIT
