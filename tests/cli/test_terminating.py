"""SIGTERM ends each program within three seconds, whatever it is at; and closing takes two at most.

What these programs are at would take a minute or for ever, and a busy machine is given its time: that they end at all
before that shows that their limits are kept, which are small constants.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import trio

from ospbridge.daemon.service import LEAVE_WITHIN
from ospbridge.envs.hub import AgentHandle
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import LEAVE, HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import WITHIN, asked_on, in_background, started, until
from tests.daemon import running
from tests.daemon.relay.learner import TinyLearner, drive, learning
from tests.daemon.running import Daemon, all_free, free_port, seat_of, values
from tests.sink.clients import episodes, said

pytestmark = [pytest.mark.loopback, pytest.mark.timeout(120)]
EXIT, CLOSE = 20.0, 20.0
LONG = "60"
"""Seconds for which a world thinks, or a disk hangs."""
SOON = 0.3
"""Seconds for what is given up in the end, in place of one or two."""
HASTY = f"""
from ospbridge.cli import sim
from ospbridge.osp.timing import Limits
sim.STEP_WITHIN = Limits.__init__.__kwdefaults__["close"] = {SOON}
from ospbridge.__main__ import run
run()
"""


def ended(process: subprocess.Popen[Any]) -> bool:
    """Whether it ends by itself long before what it is at."""
    process.send_signal(signal.SIGTERM)
    return process.wait(EXIT) == 0


class Stage:
    """A simulator of this process with two agents, and a daemon that has joined it."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.stack = stack
        self.directory = directory
        self.simulator: UdpSimulator | None = None

    def served(self, *, agents: int = 2, inputs: int = 2, outputs: int = 3) -> str:
        world = SyntheticWorld(inputs, outputs, agents=agents)
        self.simulator = self.stack.enter_context(UdpSimulator(world, port=0, profile=DOCUMENT))
        return str(self.simulator.address)

    def program(self, *words: object, code: str = "") -> tuple[subprocess.Popen[str], str]:
        """A command, and the address that is its first line."""
        return self.stack.enter_context(started(*words, code=code))

    def daemon(self, simulator: object, *options: str, wait: bool = True, hasty: bool = False) -> Daemon:
        with pytest.MonkeyPatch.context() as patch:
            if hasty:
                patch.setattr(running, "PROGRAM", (sys.executable, "-c", HASTY))
            made = Daemon(simulator, *options, directory=self.directory, wait=wait)
        return self.stack.enter_context(made)

    def seat(self, agent: str) -> AgentHandle:
        seat = seat_of(agent)
        self.stack.callback(seat.close)
        return seat


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack, tmp_path)


# --- the daemon ----------------------------------------------------------------------------------------------------


def silence_there(stage: Stage) -> Daemon:
    sock = stage.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.bind(("127.0.0.1", 0))
    daemon = stage.daemon(f"127.0.0.1:{sock.getsockname()[1]}", wait=False)
    daemon.status()
    asked_on(daemon.process)
    return daemon


def step_waits_for_a_client(stage: Stage) -> Daemon:
    """Somebody who is no environment of the daemon has the other agent, and does not step."""
    address = stage.served()
    daemon = stage.daemon(address, "--agent", "agent1")
    other = stage.stack.enter_context(BlockingSession.connect(address))
    other.register("agent2")
    seat = stage.seat("agent1")

    def play() -> None:
        seat.reset(1)
        seat.step(values(0.5))

    in_background(play)
    other.reset(1)
    other.step({"agent2": values(0.0)})
    until(lambda: _votes(daemon) > 1)
    return daemon


def step_waits_for_an_environment(stage: Stage) -> Daemon:
    """Episodes were recorded and wait for an upstream that is away, one is under way, and somebody half asks."""
    options = ("--rllink", f"127.0.0.1:{free_port()}", "--rllink-mode", "observe", "--rllink-unannotated")
    record = ("--record", str(stage.directory / "recorded"))
    daemon = stage.daemon(stage.served(), "--quorum", "2", *options, *record)
    one, two = stage.seat("agent1"), stage.seat("agent2")

    def play() -> None:
        for seed in range(1, 10):
            one.reset(seed)
            one.step(values(0.5))

    in_background(play)
    for seed in range(1, 10):
        two.reset(seed)
        if seed < 9:
            two.step(values(0.5))
    daemon.wait_until("playing", "agent1")
    until(lambda: daemon.lines("upstream away"))
    client = HubClient.connect()
    stage.stack.callback(client.close)
    client.send(bytearray(b"\x40\0\0\0half"), 1.0)
    return daemon


def simulator_stopped_in_a_step(stage: Stage) -> Daemon:
    program, address = stage.program("sim", "--synthetic", "2,3,0", "--port", "0", "--quiet")
    daemon = stage.daemon(address, hasty=True)
    seat = stage.seat("agent")
    seat.reset(1)
    before = _votes(daemon)
    os.kill(program.pid, signal.SIGSTOP)
    in_background(lambda: seat.step(values(0.5)))
    until(lambda: _votes(daemon) > before)
    return daemon


def weights_awaited_for_the_first_time(stage: Stage) -> Daemon:
    """It asks, and the server does not answer before it has other things done."""
    learner = TinyLearner()
    learner.thinks = float(LONG)
    address = stage.stack.enter_context(learning(learner))
    daemon = stage.daemon(stage.served(inputs=1, outputs=1), *drive(address))
    until(lambda: daemon.lines("upstream connected"))
    return daemon


def _votes(daemon: Daemon) -> int:
    return daemon.status().datagrams.sent.get("NEXT_SIMULATION_STEP", 0)


@pytest.mark.parametrize(
    "state",
    [
        silence_there,
        step_waits_for_a_client,
        step_waits_for_an_environment,
        simulator_stopped_in_a_step,
        weights_awaited_for_the_first_time,
    ],
    ids=lambda state: state.__name__.replace("_", " "),
)
def test_the_daemon_ends_within_three_seconds(state: Callable[[Stage], Daemon], stage: Stage) -> None:
    assert LEAVE_WITHIN < 3.0
    daemon = state(stage)
    assert ended(daemon.process), daemon.log.read_text()
    assert daemon.lines("left")
    if stage.simulator is not None:
        # A step or reset that waited for another client leaves the agent of that one taken.
        with BlockingSession.connect(str(stage.simulator.address), reclaim_stale=False) as session:
            assert all(entry.available for entry in session.agents() if entry.name != "agent2")


class HeldLearner(TinyLearner):
    """Learns no more while it is held."""

    held = False

    async def _answer(self, *asked: Any) -> bool:
        while self.held:
            await trio.sleep(0.02)
        return await super()._answer(*asked)


def test_while_weights_are_due_it_ends_within_three_seconds_too_and_the_learner_delivers_them(
    stage: Stage,
) -> None:
    learner = HeldLearner()
    address = stage.stack.enter_context(learning(learner))
    daemon = stage.daemon(stage.served(inputs=1, outputs=1), *drive(address))
    until(lambda: len(learner.batches) > 1)
    learner.held = True
    until(lambda: _stands_still(daemon))
    learned = len(learner.batches)
    assert ended(daemon.process)
    assert daemon.lines(
        "another process waits for the upstream's weights, since some servers end when they cannot deliver them"
    )
    assert stage.simulator is not None
    assert all_free(stage.simulator)
    learner.held = False
    until(lambda: learner.delivered > learned)
    assert learner.wrong == []


def _stands_still(daemon: Daemon) -> bool:
    before = daemon.status().steps
    time.sleep(0.1)
    return daemon.status().steps == before


# --- the simulator and the sink ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["in a step", "in a barrier"])
def test_a_simulator_ends_within_three_seconds(state: str, stage: Stage) -> None:
    think = LONG if state == "in a step" else "0"
    process, address = stage.program(
        *("sim", "--synthetic", "1,1,0", "--agents", "2", "--think", think, "--port", "0"), code=HASTY
    )
    one, two = BlockingSession.connect(address), BlockingSession.connect(address)
    stage.stack.callback(one.close)
    stage.stack.callback(two.close)
    one.register("agent1")
    two.register("agent2")
    steps = [in_background(lambda: one.step({"agent1": [0.0]}))]
    if state == "in a step":
        steps.append(in_background(lambda: two.step({"agent2": [0.0]})))
    else:
        asked_on(process)
    time.sleep(0.2)
    assert ended(process)
    for step in steps:
        step.join(WITHIN)


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


def test_a_sink_ends_within_three_seconds(stage: Stage) -> None:
    """Somebody has said half of a message, its disk hangs, and it is asked again and again."""
    hanging = stage.directory / "hanging"
    words = ("sink", "--listen", "127.0.0.1:0", "--record", stage.directory / "in")
    process, address = stage.program(hanging, *words, code=HANGS)
    host, _, port = address.partition(":")
    half, client = (stage.stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(2))
    half.sendall(b"00001000half")
    client.sendall(said(episodes([0, 1])))
    until(hanging.exists)
    asked_on(process)
    assert ended(process)


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
        session = BlockingSession.connect(address, limits=Limits(query=60.0))
        session.register(agent)
        return session
    options: dict[str, Any] = {"simulator": address, "query_timeout": 60.0}
    if kind == "vector":
        return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, agents=agent, **options)
    return gymnasium.make("ospbridge/Agent-v0", agent=agent, **options)


@pytest.mark.parametrize("end", [killed, stopped], ids=["killed", "stopped"])
def test_closing_takes_two_seconds_at_most_whatever_became_of_the_simulator(
    end: Callable[[subprocess.Popen[Any]], None], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Limits().close == 2.0
    monkeypatch.setitem(Limits.__init__.__kwdefaults__, "close", SOON)  # type: ignore[arg-type]  # there are some
    process, address = stage.program("sim", "--synthetic", "2,3,0", "--agents", "3", "--port", "0")

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
        assert max(life.result(WITHIN) for life in lives) < CLOSE


def test_closing_at_the_hub_takes_two_seconds_at_most_while_the_daemon_is_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LEAVE <= 2.0
    monkeypatch.setattr("ospbridge.session.hub_client.LEAVE", SOON)
    daemon = stage.daemon(stage.served(), "--reset-policy", "any")
    envs = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, agents="agent1")
    env = gymnasium.make("ospbridge/Agent-v0", agent="agent2")
    stopped(daemon.process)
    assert seconds_to_close(env) < CLOSE
    assert seconds_to_close(envs) < CLOSE
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert ended(daemon.process)
