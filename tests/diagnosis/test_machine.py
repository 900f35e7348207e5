from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from ospbridge.diagnosis import machine
from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.machine import check_clock, check_cores, check_port, check_receive_buffer

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_clock_whose_source_is_not_told_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0, 2_000 * 40])
    monkeypatch.setattr(machine, "perf_counter_ns", lambda: next(times))
    found = check_clock(tmp_path / "none")
    assert (found.state, found.detail) == (State.WELL, "reading it takes 40 ns")


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


def test_two_sockets_that_share_a_port_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "udp").write_text(
        HEAD + udp_line("0100007F:B18E", 11) + udp_line("0100007F:B18E", 12)
    )
    found = check_port(0xB18E, tmp_path)
    assert found.state is State.PROBLEM
    assert "2 sockets share it" in found.detail


def test_a_process_of_another_user_and_connected_sockets_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "udp").write_text(
        HEAD + udp_line("0100007F:B18E", 11) + udp_line("0100007F:B18E", 12, "0100007F:1234")
    )
    (tmp_path / "net" / "udp6").write_text(HEAD)
    found = check_port(0xB18E, tmp_path)
    assert found.detail == "in use by a process of another user"


def test_where_the_system_tells_nothing_the_port_is_skipped(tmp_path: Path) -> None:
    assert check_port(45454, tmp_path).state is State.SKIPPED
