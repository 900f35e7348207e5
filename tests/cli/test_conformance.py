from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

pytestmark = pytest.mark.loopback


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["conformance", *args])


def test_json_is_exactly_as_promised_and_deviations_are_no_error() -> None:
    with UdpSimulator(ArenaWorld(1), port=0, profile=NERD) as simulator:
        result = run(str(simulator.address), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == {"simulator", "profile", "agents", "deviations"}
    assert (found["simulator"], found["profile"], found["agents"]) == (
        str(simulator.address),
        "nerd",
        ["robot1"],
    )
    assert [deviation["id"] for deviation in found["deviations"]] == [f"D{n}" for n in range(1, 26)]
    for deviation in found["deviations"]:
        assert set(deviation) == {"id", "title", "document", "server", "verdict", "detail", "invasive"}
        assert deviation["verdict"] in {"seen", "not seen", "not tried"}
        assert deviation["detail"]
    assert found["deviations"][7]["verdict"] == "seen"


def test_the_table_says_profile_verdicts_and_their_sum_and_the_trace_what_was_said(tmp_path: Path) -> None:
    trace = tmp_path / "probing.jsonl"
    with UdpSimulator(ArenaWorld(1), port=0, profile=DOCUMENT) as simulator:
        result = run(str(simulator.address), "--trace", str(trace))
    lines = result.stdout.splitlines()
    assert lines[0] == f"{simulator.address}: profile document; agents: robot1"
    assert lines[1].split()[:3] == ["ID", "DEVIATION", "VERDICT"]
    assert len(lines) == 27
    assert "25 deviations: " in result.stderr
    text = trace.read_text()
    assert "INIT_COMMUNICATION" in text
    assert "D8 codes 75 and 76 are swapped" in text


def test_a_trace_that_finds_no_room_is_told_beside_the_output() -> None:
    with UdpSimulator(ArenaWorld(1), port=0, profile=DOCUMENT) as simulator:
        result = run(str(simulator.address), "--trace", "/dev/full", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)
    assert "trace ended" in result.stderr


def test_no_simulator_there_is_exit_code_69_and_two_lines() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    result = run(address)
    assert result.exit_code == 69
    error, hint = result.stderr.splitlines()
    assert error == f"Error: nothing listens at {address} (connection refused)"
    assert hint.startswith("Hint: ")


def test_a_port_that_says_nothing_is_given_up_after_the_timeout() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        result = run(f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.3")
    assert result.exit_code == 69
    assert "no OSP 1.1 server answered" in result.stderr


def test_an_address_that_is_none_is_a_usage_error() -> None:
    assert run("127.0.0.1:what").exit_code == 2
    assert run().exit_code == 2
