from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ospbridge.diagnosis import installation, machine
from ospbridge.diagnosis.checks import well
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import invoke, started
from tests.daemon.running import free_port

pytestmark = pytest.mark.loopback


@pytest.fixture(autouse=True)
def healthy_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What these tests are not about is well: the host that runs them may be any."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(installation, "check_installation", lambda: [well("installation", "")])
    monkeypatch.setattr(machine, "check_port", lambda port: well(f"UDP port {port}", ""))


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(ArenaWorld(2), port=0) as running:
        yield running


run = partial(invoke, "doctor")


def checks(*args: str, exit_code: int = 0) -> dict[str, Any]:
    found = json.loads(run(*args, "--json", exit_code=exit_code).stdout)
    for check in found:
        assert set(check) == {"subject", "state", "detail", "fix"}
        assert check["state"] in {"ok", "advice", "problem", "skipped"}
        assert bool(check["fix"]) == (check["state"] in {"advice", "problem"})
    return {check["subject"]: check for check in found}


def test_what_is_asked_of_a_simulator_can_be_traced(simulator: UdpSimulator, tmp_path: Path) -> None:
    file = tmp_path / "doctor.jsonl"
    checks("--simulator", str(simulator.address), "--trace", str(file))
    kinds = [json.loads(line).get("note", "") for line in file.read_text().splitlines()]
    assert any(kind.startswith("INIT_COMMUNICATION_ACK") for kind in kinds), kinds
    assert any(kind.startswith("GET_AGENT_OVERVIEW") for kind in kinds)


def test_all_well_is_exit_code_0() -> None:
    found = checks()
    assert {"installation", "cores", "clock", "receive buffer", "UDP port 45454"} <= set(found)
    assert {"runtime directory", "state directory", "hub", "leases"} <= set(found)


def test_a_simulator_that_answers_is_told_with_its_agents_and_left_as_it_was(simulator: UdpSimulator) -> None:
    found = checks("--simulator", str(simulator.address))[f"simulator {simulator.address}"]
    assert found["detail"] == "answers (profile document); 2 agents, 2 of them free"
    assert simulator.machine.handlers == 0


def test_a_simulator_whose_agents_are_all_taken_is_advised_about(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(simulator.address) as other:
        other.register("robot1", "robot2")
        found = checks("--simulator", str(simulator.address))[f"simulator {simulator.address}"]
    assert found["state"] == "advice"
    assert "restart-communication" in found["fix"]


def test_a_simulator_of_this_host_that_may_stall_is_advised_about_with_the_cure() -> None:
    with started("sim", "--arena", "--robots", "1", "--port", "0", "--profile", "nerd") as (process, address):
        subject = f"scheduling of {address}"
        found = checks("--simulator", address)[subject]
        assert found["state"] == "advice"
        assert found["fix"] == f"ospbridge tune {address}"
        assert f"pid {process.pid}: " in found["detail"]
        assert "under SCHED_OTHER" in found["detail"]
        invoke("tune", address)
        assert checks("--simulator", address)[subject]["state"] == "ok"


def test_a_simulator_that_is_not_there_is_a_problem_with_its_fix_and_exit_code_1() -> None:
    address = f"127.0.0.1:{free_port()}"
    found = checks("--simulator", address, exit_code=1)[f"simulator {address}"]
    assert found["state"] == "problem"
    assert "nothing listens" in found["detail"]
    assert "start the simulator" in found["fix"]
    result = run("--simulator", address, exit_code=1)
    assert result.stdout.splitlines()[0].split() == ["SUBJECT", "STATE", "WHAT", "WAS", "FOUND"]
    assert f"problem: simulator {address}: start the simulator" in result.stderr
    assert result.stderr.splitlines()[-1] == "1 problem to mend"


def test_a_daemon_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    found = checks("--hub", f"unix:{tmp_path}/hub", exit_code=1)[f"daemon unix:{tmp_path}/hub"]
    assert "no daemon listens" in found["detail"]
    assert "ospbridge connect" in found["fix"]


def test_a_configuration_is_checked_and_its_simulators_too(simulator: UdpSimulator, tmp_path: Path) -> None:
    file = tmp_path / "connect.toml"
    file.write_text(f'[[simulator]]\nname = "left"\naddress = "{simulator.address}"\n')
    found = checks("--config", str(file))
    assert found["configuration"]["detail"] == f"{file}: simulator {simulator.address} (left)"
    assert found[f"simulator {simulator.address}"]["state"] == "ok"
    assert f"UDP port {simulator.address.port}" in found


def test_a_variable_that_sets_nothing_is_advised_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSPBRIDGE_CONNECT_STEP_TIMEOUT", "5")
    monkeypatch.setenv("OSPBRIDGE_AGENTS_AS_JSON", "1")
    found = checks()["variables"]
    assert found["state"] == "ok"
    assert "OSPBRIDGE_CONNECT_STEP_TIMEOUT" in found["detail"]
    monkeypatch.setenv("OSPBRIDGE_CONNECT_RECRD", "runs")
    found = checks()["variables"]
    assert (found["state"], found["detail"]) == ("advice", "no option is set by OSPBRIDGE_CONNECT_RECRD")
    assert "OSPBRIDGE_CONNECT_RECORD" in found["fix"]


def test_a_dependency_that_cannot_be_imported_is_told_instead_of_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("ospbridge.diagnosis.reaching", raising=False)
    monkeypatch.setitem(sys.modules, "ospbridge.diagnosis.reaching", None)
    found = checks(exit_code=1)
    assert "cannot be imported" in found["import"]["detail"]
    assert "installation" in found


# --- conformance ----------------------------------------------------------------------------------------------------


probe = partial(invoke, "conformance")


def test_json_is_exactly_as_promised_and_deviations_are_no_error() -> None:
    with UdpSimulator(ArenaWorld(1), port=0, profile=NERD) as simulator:
        result = probe(str(simulator.address), "--json")
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
        result = probe(str(simulator.address), "--trace", str(trace))
    lines = result.stdout.splitlines()
    assert lines[0] == f"{simulator.address}: profile document; agents: robot1"
    assert lines[1].split()[:3] == ["ID", "DEVIATION", "VERDICT"]
    assert len(lines) == 27
    assert "25 deviations: " in result.stderr
    text = trace.read_text()
    assert "INIT_COMMUNICATION" in text
    assert "D8 codes 75 and 76 are swapped" in text
