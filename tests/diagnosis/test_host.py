"""What `ospbridge doctor` looks at on a host: cores, clock, sockets, directories, hubs and leases."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from pathlib import Path

import pytest

from ospbridge.daemon.hub.listener import HubSocket
from ospbridge.diagnosis import machine
from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.installation import Requirement, check_installation, parsed, release
from ospbridge.diagnosis.machine import check_clock, check_cores, check_port, check_receive_buffer
from ospbridge.diagnosis.places import (
    check_directory,
    check_hub_sockets,
    check_leases,
    check_runtime_directory,
)
from ospbridge.observe.runtime import default_hub
from ospbridge.session.lease import Lease, LeaseFile, stale_leases

HEAD = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer\n"


def udp_line(address: str, inode: int, remote: str = "00000000:0000") -> str:
    return f"  1: {address} {remote} 07 00000000:00000000 00:00000000 00000000     0        0 {inode} 2 0 0\n"


@pytest.mark.parametrize("cores, state", [({0}, State.ADVICE), ({0, 1}, State.WELL), ({0, 1, 2}, State.WELL)])
def test_one_core_is_too_few_to_spin(cores: set[int], state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    found = check_cores()
    assert found.state is state
    assert str(len(cores)) in found.detail or "one core" in found.detail


def test_a_clock_that_is_slow_to_read_is_named_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "current_clocksource"
    source.write_text("acpi_pm\n")
    times = iter([0, 2_000 * 5_000])
    monkeypatch.setattr(machine, "perf_counter_ns", lambda: next(times))
    found = check_clock(source)
    assert found.state is State.ADVICE
    assert "5000 ns (source acpi_pm)" in found.detail
    assert "tsc" in found.fix


@pytest.mark.loopback
def test_a_receive_buffer_that_the_system_does_not_grant_comes_with_the_setting_that_does() -> None:
    found = check_receive_buffer(1 << 40)
    assert found.state is State.ADVICE
    assert f"net.core.rmem_max={1 << 40}" in found.fix
    assert check_receive_buffer(1).state is State.WELL


@pytest.mark.loopback
def test_who_listens_at_a_port_is_named() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        found = check_port(port)
        assert found.state is State.WELL
        assert f"(pid {os.getpid()})" in found.detail
    assert "free" in check_port(port).detail


@pytest.mark.parametrize(
    "other, state, told",
    [
        ("00000000:0000", State.PROBLEM, "2 sockets share it"),
        ("7F000001:1234", State.WELL, "in use by a process of another user"),
    ],
    ids=["two that share it", "one of them connected"],
)
def test_sockets_at_a_port_are_told_apart(tmp_path: Path, other: str, state: State, told: str) -> None:
    (tmp_path / "net").mkdir()
    if state is State.WELL:  # else a kernel without IPv6
        (tmp_path / "net" / "udp6").write_text(HEAD)
    lines = udp_line("0100007F:B18E", 11) + udp_line("0100007F:B18E", 12, other)
    (tmp_path / "net" / "udp").write_text(HEAD + lines)
    found = check_port(0xB18E, tmp_path)
    assert found.state is state
    assert told in found.detail


LEASE = Lease(
    server="127.0.0.1",
    server_port=45454,
    local_host="127.0.0.1",
    local_port=40001,
    handler_port=40002,
    profile="nerd",
    agents={"robot1": 1},
    events=False,
    pid=1,
)


def test_a_directory_of_ours_is_well_there_or_to_be_made_but_not_for_everybody(tmp_path: Path) -> None:
    assert check_directory("place", tmp_path).state is State.WELL
    found = check_directory("place", tmp_path / "not" / "yet")
    assert found.state is State.WELL
    assert "will be made" in found.detail
    tmp_path.chmod(0o777)
    found = check_directory("place", tmp_path)
    assert (found.state, found.fix) == (State.PROBLEM, f"chmod o-w {tmp_path}")


def test_a_directory_that_may_not_be_written_to_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert check_directory("place", tmp_path).fix == f"chmod u+wx {tmp_path}"
    found = check_directory("place", tmp_path / "new")
    assert found.state is State.PROBLEM
    assert "install -d" in found.fix


def test_a_runtime_directory_by_default_is_advised_against(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_runtime_directory().state is State.WELL
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("ospbridge.diagnosis.places.check_directory", lambda *_: check_hub_sockets()[0])
    found = check_runtime_directory()
    assert found.state is State.ADVICE
    assert "XDG_RUNTIME_DIR" in found.fix


def test_a_runtime_directory_with_too_long_a_path_for_sockets_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 120)))
    found = check_runtime_directory()
    assert found.state is State.PROBLEM
    assert "107 bytes" in found.detail


@pytest.mark.loopback
def test_a_hub_that_listens_is_well_and_what_a_dead_daemon_left_is_a_problem() -> None:
    hub = HubSocket(default_hub())
    try:
        assert [check.state for check in check_hub_sockets()] == [State.WELL]
    finally:
        hub.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(default_hub()))
    (found,) = check_hub_sockets()
    assert found.state is State.PROBLEM
    assert "a daemon died and left it" in found.detail


def test_a_lease_of_a_running_session_is_well_and_that_of_a_dead_one_a_problem() -> None:
    assert check_leases().state is State.WELL
    file = LeaseFile()
    file.write(LEASE)
    found = check_leases()
    assert (found.state, found.detail) == (State.WELL, "1 of running sessions, none of dead ones")
    file.abandon()
    found = check_leases()
    assert found.state is State.PROBLEM
    assert "robot1 of 127.0.0.1:45454" in found.detail
    assert "ospbridge connect --simulator 127.0.0.1:45454" in found.fix


def test_looking_at_leases_takes_nothing_from_a_successor() -> None:
    file = LeaseFile()
    file.write(LEASE)
    file.abandon()
    check_leases()
    (successor,) = stale_leases(LEASE.endpoint)
    assert successor.lease == LEASE
    successor.remove()


@pytest.mark.parametrize("content", ["{", "[" * 100_000])
def test_a_lease_that_cannot_be_read_is_told_by_its_file_and_taken_away(tmp_path: Path, content: str) -> None:
    (tmp_path / "1-2.lease").write_text(content)
    found = check_leases(tmp_path)
    assert found.state is State.PROBLEM
    assert "1-2.lease of an unknown simulator" in found.detail
    assert found.fix == f"nobody can read them: remove {tmp_path / '1-2.lease'}"
    assert list(stale_leases(LEASE.endpoint, tmp_path)) == []
    assert not (tmp_path / "1-2.lease").exists()


# --- installation ---------------------------------------------------------------------------------------------------


LINES = [
    "click>=8.2",
    "gymnasium<2,>=1.2",
    'onnxruntime>=1.20; extra == "onnx"',
    'minari[hdf5]>=0.5.4; extra == "minari"',
    'pillow>=10.1; extra == "minari"',
    'pytest>=8.3; extra == "test"',
    'ospbridge[onnx]; extra == "all"',
]
ALL = {"click": "8.2.1", "gymnasium": "1.2.0", "onnxruntime": "1.20", "minari": "0.5.4", "pillow": "11.0"}


def states(**changed: str | None) -> dict[str, tuple[State, str]]:
    versions: dict[str, str | None] = {**ALL, **changed}
    return {check.subject: (check.state, check.detail) for check in check_installation(LINES, versions.get)}


@pytest.mark.parametrize(
    "older, newer", [("1.9", "1.10"), ("1", "1.0.1"), ("0.5.4", "1"), ("2.46.post1", "2.47")]
)
def test_releases_are_compared_by_their_numbers(older: str, newer: str) -> None:
    assert release(older) < release(newer)
    assert not Requirement("x", newer).fits(older)
    assert Requirement("x", older).fits(newer)
    assert not Requirement("x", "", newer).fits(newer)


def test_a_dependency_that_is_missing_or_too_old_or_too_new_is_a_problem_and_named() -> None:
    for version in (None, "1.1", "2.0"):
        state, detail = states(gymnasium=version)["installation"]
        assert state is State.PROBLEM
        assert f"gymnasium {version or 'missing'} (needs gymnasium>=1.2,<2)" in detail


def test_an_extra_that_is_not_installed_is_said_with_how_to_get_it() -> None:
    state, detail = states(onnxruntime=None)["extra [onnx]"]
    assert state is State.SKIPPED
    assert "pip install 'ospbridge[onnx]'" in detail


def test_an_extra_that_is_too_old_is_a_problem() -> None:
    state, detail = states(onnxruntime="1.19.2")["extra [onnx]"]
    assert state is State.PROBLEM
    assert "onnxruntime 1.19.2 (needs onnxruntime>=1.20)" in detail


def test_every_requirement_of_the_project_is_understood() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    for line in (*project["dependencies"], *extras):
        requirement = parsed(line)
        assert requirement is not None, line
        said = re.sub(r"\[[^\]]*\]", "", line)
        assert sorted(str(requirement)) == sorted(said), line


def test_this_installation_is_well() -> None:
    assert check_installation()[0].state is State.WELL
