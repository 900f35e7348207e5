"""The command ``ospbridge sim``: in this process where the process is not the point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from ospbridge.cli import main
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT, PROFILES
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpServer, UdpSimulator
from ospbridge.transport.addresses import parse_endpoint
from tests.cli.programs import invoke, started
from tests.simulator.raw import RawClient

pytestmark = pytest.mark.loopback


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """The command takes them over, and the next test wants them as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def played(monkeypatch: pytest.MonkeyPatch, *options: str, by: Callable[[Endpoint], Any]) -> Result:
    """What the command said while ``by`` talked to it; it ends when that has ended."""
    run = UdpServer.run

    def serve(server: UdpServer) -> None:
        def talk() -> None:
            try:
                by(server.address)
            finally:
                server.stop_soon()

        with ThreadPoolExecutor(1) as threads:
            talked = threads.submit(talk)
            run(server)
            talked.result()

    monkeypatch.setattr(UdpServer, "run", serve)
    return CliRunner().invoke(main, ["sim", "--port", "0", *options])


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], Endpoint]]:
    with started("sim", "--port", "0", *options) as (process, address):
        yield process, parse_endpoint(address)


# --- as a process of its own ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_line_is_the_address_and_a_signal_ends_it_with_0(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Whatever a package prints as it is imported.
    (tmp_path / "chatty_worlds.py").write_text(
        "import gymnasium\nprint('Hello from the community')\n"
        "gymnasium.register('Chatty-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}")
    with (
        running("--env", "chatty_worlds:Chatty-v0") as (process, address),
        RawClient(address, DOCUMENT) as client,
    ):
        assert address.host == "127.0.0.1"
        assert client.overview() == {"chatty": 1}
        process.send_signal(number)
        output, told = process.communicate(timeout=30)
        assert (process.returncode, output) == (0, "")
        hello, line = told.splitlines()
        assert hello == "Hello from the community"
        assert json.loads(line)["agents"] == ["chatty"]


BACKTRACKING = ["(.*)*Q", "(a|aa)+$", "(.*.*.*.*.*.*)*Q", "(.{0,30}){0,10}Q", "((((.*)*)*)*)*Q"]
"""Expressions that take a matcher which tries one way after the other longer than anybody waits."""


@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_no_expression_of_a_client_makes_it_deaf_to_others_and_to_sigterm(profile: str) -> None:
    options = ("--synthetic", "2,3", "--values", "2000", "--profile", profile, "--quiet")
    ended = threading.Event()

    def flood(client: RawClient, expression: str) -> None:
        with suppress(OSError):  # the simulator is gone, or does not keep up
            while not ended.is_set():
                client.send(b"\x28" + expression.encode() + b"\0")

    with running(*options) as (process, address), ExitStack() as stack:
        clients = [stack.enter_context(RawClient(address, PROFILES[profile])) for _ in BACKTRACKING]
        for client, expression in zip(clients, BACKTRACKING, strict=True):
            assert client.find(expression) == {}
        threads = stack.enter_context(ThreadPoolExecutor(len(clients)))
        stack.callback(ended.set)
        for client, expression in zip(clients, BACKTRACKING, strict=True):
            threads.submit(flood, client, expression)
        with RawClient(address, PROFILES[profile]) as other:
            assert other.overview() == {"agent": 1}
        process.terminate()
        assert process.wait(timeout=3) == 0


# --- what it hosts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, agents",
    [
        ((), ["robot1", "robot2"]),
        (("--arena", "--robots", "1"), ["robot1"]),
        (("--env", "CartPole-v1", "--copies", "2"), ["cart1", "cart2"]),
        (("--env", "CartPole-v1", "--env", "Pendulum-v1"), ["cart", "pendulum"]),
        (
            ("--synthetic", "2,3,1", "--agents", "2", "--values", "5", "--think", "0.001"),
            ["agent1", "agent2"],
        ),
        (("arena_two",), ["robot1", "robot2"]),
    ],
)
@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_each_world_can_be_hosted_in_each_profile(
    options: tuple[str, ...], agents: list[str], profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(address: Endpoint) -> None:
        with RawClient(address, PROFILES[profile]) as client:
            found = client.overview()
            assert list(found) == agents
            for agent in found.values():
                client.register(agent)
            client.reset(3, agents=len(agents))

    result = played(monkeypatch, "--quiet", "--profile", profile, *options, by=play)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    "options, told",
    [
        (("--drop", "1.5"), "--drop"),
        (("--port", "70000"), "--port"),
        (("--delay-max", "-1"), "--delay-max"),
        (("--copies", "2"), "--copies needs --env"),
        (("--synthetic", "1,x,2"), "is not three numbers"),
        (("--synthetic", "1,99999,0"), "at most about 16,000 values"),
        (("--agents", "2"), "need --synthetic"),
        (("--arena", "--env", "CartPole-v1"), "one simulator, one world"),
        (("cartpole", "--arena"), "one simulator, one world"),
        (("--env", "CartPole-v1", "--robots", "3"), "--robots needs the arena"),
        (("cartpole", "--robots", "3"), "--robots needs the arena"),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(options: tuple[str, ...], told: str) -> None:
    assert told in invoke("sim", "--port", "0", *options, exit_code=2).stderr


@pytest.mark.parametrize(
    "options, told",
    [
        (("--env", "NoSuchEnv-v0"), "Hint:"),
        (("--ledger", "/no/such/folder/ledger"), "Hint:"),
        (("--host", "no.such.host.invalid"), "Hint:"),
        (("worldless.toml",), "names no world to host"),
    ],
)
def test_what_cannot_be_had_is_a_configuration_error(
    options: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("worldless.toml").write_text('name = "x"\n[[agent]]\n')
    assert told in invoke("sim", "--port", "0", "--quiet", *options, exit_code=78).output


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_the_ledger_holds_every_step_at_once_and_is_left_alone_by_a_second_simulator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    options = ("--synthetic", "1,1,0", "--quiet", "--ledger", str(path))

    def play(address: Endpoint) -> None:
        with RawClient(address, DOCUMENT) as client:
            client.overview()
            client.register(1)
            client.reset(9)
            for step in range(3):
                client.step(1, step / 4)
            records = [json.loads(line) for line in path.read_text().splitlines()]
            assert [record["kind"] for record in records] == ["reset", "step", "step", "step"]
            assert records[0]["seed"] == 9
            assert [record["agents"]["agent"]["inputs"] for record in records[1:]] == [[0.0], [0.25], [0.5]]
            assert all(record["clients"] == [client.name] for record in records)
        second = invoke("sim", *options, "--port", "0", exit_code=78)
        assert f"cannot write the ledger {path}: it is being written already" in second.stderr
        assert len(path.read_text().splitlines()) == 4

    assert played(monkeypatch, *options, by=play).exit_code == 0


def test_a_pipe_that_nobody_reads_is_refused_and_one_with_a_reader_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="a pipe that nobody reads"):
        Ledger(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Ledger(pipe) as ledger:
            ledger({"n": 1})
        assert os.read(reader, 100) == b'{"n":1}\n'
    finally:
        os.close(reader)


def test_a_record_is_written_whole_or_its_loss_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger, path.open("ab", buffering=0) as file:
        # A disk that fills up takes a part first.
        monkeypatch.setattr(ledger, "_file", mock.Mock(write=lambda data: file.write(data[:3])))
        ledger({"n": 1})
        monkeypatch.undo()
    assert path.read_text() == '{"n":1}\n'
    with (
        Ledger("/dev/full") as ledger,
        pytest.raises(ConfigurationError, match="cannot write the ledger /dev/full: No space left"),
    ):
        ledger({"n": 1})


def test_a_daemon_ends_with_78_where_its_scenario_does_not_fit_the_agents(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\n[[agent]]\n[agent.observe]\noutputs = ["/cart/position"]\n')
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        options = (
            "--simulator",
            str(simulator.address),
            "--hub",
            f"unix:{tmp_path}/h",
            "--scenario",
            str(file),
        )
        ended = invoke("connect", *options, exit_code=78)
    assert "no output '/cart/position'" in ended.stderr
