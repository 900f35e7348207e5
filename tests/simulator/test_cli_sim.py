"""The command ``ospbridge sim`` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT, PROFILES
from tests.simulator.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

pytestmark = pytest.mark.loopback


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ospbridge", "sim", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def address_of(process: subprocess.Popen[str]) -> Endpoint:
    assert process.stdout is not None
    host, _, port = process.stdout.readline().strip().rpartition(":")
    return Endpoint(host, int(port))


def running(*options: str) -> AbstractContextManager[tuple[subprocess.Popen[str], Endpoint]]:
    from contextlib import contextmanager

    @contextmanager
    def manager() -> Iterator[tuple[subprocess.Popen[str], Endpoint]]:
        process = start(*options)
        try:
            yield process, address_of(process)
        finally:
            process.kill()
            process.communicate()

    return manager()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_line_is_the_address_and_a_signal_ends_it_with_0(number: int) -> None:
    with running("--env", "CartPole-v1") as (process, address):
        assert address.host == "127.0.0.1"
        with RawClient(address, DOCUMENT) as client:
            assert client.overview() == {"cart": 1}
            process.send_signal(number)
            assert process.wait(timeout=5) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == ""
        (line,) = process.stderr.read().splitlines()
        assert json.loads(line)["agents"] == ["cart"]


#: The kernel may give a signal to any thread that does not block it; then it interrupts no wait of the main thread.
#: The same as when it comes in the moment before the loop sleeps, but each time.
IN_ANOTHER_THREAD = """
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
from ospbridge.cli import main
main(["sim", "--port", "0", "--env", "CartPole-v1", "--quiet"])
"""


def test_the_first_line_is_the_address_whatever_a_package_prints_as_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "chatty_worlds.py").write_text(
        "import gymnasium\nprint('Hello from the community')\n"
        "gymnasium.register('Chatty-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}")
    with running("--env", "chatty_worlds:Chatty-v0") as (process, address):
        assert address.host == "127.0.0.1"
        assert process.stderr is not None
        assert process.stderr.readline() == "Hello from the community\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_interrupts_no_wait_ends_it_all_the_same(number: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", IN_ANOTHER_THREAD], stdout=subprocess.PIPE, text=True)
    try:
        with RawClient(address_of(process), DOCUMENT) as client:
            assert client.overview() == {"cart": 1}
            time.sleep(0.2)  # by then it sleeps
            process.send_signal(number)
            assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.communicate()


def processor_time(pid: int) -> float:
    """Seconds that a process has used, by itself and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_signal_that_does_not_end_it_leaves_it_asleep() -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nfrom ospbridge.cli import main\n"
    )
    program += 'main(["sim", "--port", "0", "--env", "CartPole-v1", "--quiet"])'
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        address_of(process)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        before = processor_time(process.pid)
        time.sleep(0.5)
        assert processor_time(process.pid) - before < 0.25
    finally:
        process.kill()
        process.communicate()


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
    ],
)
@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_each_world_can_be_hosted_in_each_profile(
    options: tuple[str, ...], agents: list[str], profile: str
) -> None:
    with (
        running("--quiet", "--profile", profile, *options) as (process, address),
        RawClient(address, PROFILES[profile]) as client,
    ):
        found = client.overview()
        assert list(found) == agents
        for agent in found.values():
            client.register(agent)
        client.reset(3, agents=len(agents))
        process.terminate()
        assert process.wait(timeout=5) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_taken_port_is_a_configuration_error() -> None:
    with running("--quiet") as (_, address):
        refused = subprocess.run(
            [sys.executable, "-m", "ospbridge", "sim", "--port", str(address.port)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    assert refused.returncode == 78
    assert refused.stdout == ""
    assert str(address) in refused.stderr
    assert "--port 0" in refused.stderr


def test_the_ledger_holds_every_step_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with (
        running("--quiet", "--synthetic", "1,1,0", "--ledger", str(path)) as (process, address),
        RawClient(address, DOCUMENT) as client,
    ):
        client.overview()
        client.register(1)
        client.reset(9)
        for step in range(3):
            client.step(1, step / 4)
        process.kill()
        process.wait()
        name = client.name
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["kind"] for record in records] == ["reset", "step", "step", "step"]
    assert records[0]["seed"] == 9
    assert [record["agents"]["agent"]["inputs"] for record in records[1:]] == [[0.0], [0.25], [0.5]]
    assert all(record["clients"] == [name] for record in records)


@pytest.mark.parametrize(
    "options",
    [
        ("--drop", "1.5"),
        ("--stall", "-0.1"),
        ("--port", "70000"),
        ("--delay-max", "-1"),
        ("--copies", "0"),
        ("--copies", "2"),
        ("--synthetic", "1"),
        ("--synthetic", "1,x,2"),
        ("--synthetic", "1,99999,0"),
        ("--agents", "2"),
        ("--arena", "--env", "CartPole-v1"),
        ("--arena", "--synthetic", "1,1,1"),
        ("--profile", "orcs"),
        ("--no-such-option",),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(options: tuple[str, ...]) -> None:
    assert CliRunner().invoke(main, ["sim", "--port", "0", *options]).exit_code == 2


@pytest.mark.parametrize(
    "options",
    [("--env", "NoSuchEnv-v0"), ("--ledger", "/no/such/folder/ledger"), ("--host", "no.such.host.invalid")],
)
def test_what_cannot_be_had_is_a_configuration_error(options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["sim", "--port", "0", "--quiet", *options])
    assert result.exit_code == 78
    assert "Hint:" in result.output


def test_every_option_has_help() -> None:
    from ospbridge.cli.sim import sim

    for parameter in sim.params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name
    result = CliRunner().invoke(main, ["sim", "--help"])
    assert result.exit_code == 0


@pytest.mark.parametrize("world", [["--env", "CartPole-v1"], ["--synthetic", "1,1"], ["cartpole"]])
def test_a_number_of_robots_needs_the_arena(world: list[str]) -> None:
    result = CliRunner().invoke(main, ["sim", *world, "--robots", "3", "--port", "0"])
    assert result.exit_code == 2
    assert "--robots needs the arena" in result.stderr


def test_a_second_simulator_leaves_the_ledger_of_the_first_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    options = ("--synthetic", "1,1,0", "--quiet", "--ledger", str(path))
    with running(*options) as (_, address), RawClient(address, DOCUMENT) as client:
        client.overview()
        client.register(1)
        client.reset(9)
        second = CliRunner().invoke(main, ["sim", *options, "--port", str(address.port)])
        client.step(1, 0.5)
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert (second.exit_code, kinds) == (78, ["reset", "step"])
    assert f"cannot write the ledger {path}: it is being written already" in second.stderr


def test_a_ledger_whose_disk_is_full_ends_it_with_the_reason() -> None:
    with running("--synthetic", "1,1", "--quiet", "--ledger", "/dev/full") as (process, address):
        with RawClient(address, DOCUMENT) as client:
            client.register(client.overview()["agent"])
            client.send(struct.pack("<Bi", 70, 1))
            assert process.wait(20) == 78
        assert process.stderr is not None
        told = process.stderr.read()
    assert told.startswith("Error: cannot write the ledger /dev/full: No space left on device\n")
