"""The UDP driver: addresses, several clients, strangers, bursts, faults, stopping."""

from __future__ import annotations

import errno
import math
import os
import queue
import socket
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError, SessionClosed
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.ipv6 import needs_ipv6
from tests.simulator.raw import RawClient

pytestmark = pytest.mark.loopback


def player(simulator: UdpSimulator, profile: Profile, *agents: int) -> RawClient:
    client = RawClient(simulator.address, profile)
    client.overview()
    for agent in agents:
        client.register(agent)
    return client


def test_a_port_that_is_taken_is_refused_with_the_next_step(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator:
        with pytest.raises(ConfigurationError, match=str(simulator.address)) as refused:
            UdpSimulator(SyntheticWorld(1, 1), port=simulator.address.port)
        assert "--port 0" in refused.value.hint
    UdpSimulator(SyntheticWorld(1, 1), port=simulator.address.port).close()


@pytest.mark.parametrize("port", [70_000, -1, "45454", None])
def test_what_is_no_port_is_refused(port: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 to 65535"):
        UdpSimulator(SyntheticWorld(1, 1), port=port)


def test_a_profile_by_its_name_is_refused_with_the_way_to_it() -> None:
    with pytest.raises(ConfigurationError, match="got 'nerd'") as refused:
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile="nerd")  # type: ignore[arg-type]
    assert "import" in refused.value.hint


def test_a_host_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot resolve"):
        UdpSimulator(SyntheticWorld(1, 1), host="no.such.host.invalid", port=0)
    with pytest.raises(ConfigurationError, match="cannot listen at") as refused:
        UdpSimulator(SyntheticWorld(1, 1), host="192.0.2.1", port=0)
    for host in (".", "x" * 64):
        with pytest.raises(ConfigurationError, match="it can be no host's name"):
            UdpSimulator(SyntheticWorld(1, 1), host=host, port=0)
    # Another port would not help.
    assert "this host has no such address" in refused.value.hint
    assert "--port" not in refused.value.hint


def test_an_address_of_a_kind_that_the_kernel_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused_by_kernel(*_: object) -> Any:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    # As where Linux was started with ipv6.disable=1.
    monkeypatch.setattr(socket, "socket", refused_by_kernel)
    with pytest.raises(ConfigurationError, match="cannot listen at ::1:0: Address family") as refused:
        UdpSimulator(SyntheticWorld(1, 1), host="::1", port=0)
    assert "no IPv6" in refused.value.hint


def test_the_handler_answers_from_a_port_of_its_own(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator,
        RawClient(simulator.address, profile) as client,
    ):
        assert client.socket.getpeername()[1] != simulator.address.port


def test_two_clients_step_together_and_the_ledger_knows_who_asked(profile: Profile) -> None:
    records: list[dict[str, Any]] = []
    world = SyntheticWorld(2, 3, 1, agents=2)
    with UdpSimulator(world, port=0, profile=profile, ledger=records.append) as simulator:
        clients = [player(simulator, profile, 1), player(simulator, profile, 2)]

        def play(index: int) -> None:
            client = clients[index]
            client.reset(5)
            for step in range(1, 201):
                inputs = np.array([step / 256, index], np.float32)
                client.vote(index + 1, inputs)
                outputs, _, _ = client.completion()
                assert np.array_equal(outputs, expected(inputs, step, 3, seed=5))

        failures: list[BaseException] = []

        def guarded(index: int) -> None:
            try:
                play(index)
            except BaseException as error:  # noqa: BLE001  # handed to the test
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        names = [client.name for client in clients]
        for client in clients:
            client.close()
    assert not failures
    assert [record["kind"] for record in records] == ["reset"] + ["step"] * 200
    for step, record in enumerate(records[1:], 1):
        assert record["n"] == step
        assert sorted(record["clients"]) == sorted(names)
        for index, name in enumerate(names):
            entry = record["agents"][f"agent{index + 1}"]
            assert entry == {"inputs": [step / 256, index], "client": name, "votes": [name]}


def test_a_datagram_of_a_stranger_to_a_handler_is_ignored_f14(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator,
        player(simulator, profile, 1) as client,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        for _ in range(10):
            stranger.sendto(b"\x07", client.socket.getpeername())
        client.reset(1)
        client.step(1, 0.0)
        assert simulator.machine.handlers == 1


def test_a_dead_handler_refuses_what_is_sent_to_it_f28(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator,
        player(simulator, profile, 1) as client,
    ):
        client.send(b"\x07")
        client.read(8)
        time.sleep(0.05)
        client.send(b"\x5a")
        with pytest.raises(ConnectionRefusedError):
            client.read(0)


def test_a_vanished_client_does_not_disturb_the_others(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile) as simulator:
        observer = player(simulator, profile)
        observer.close()
        with player(simulator, profile, 1) as client:
            for seed in range(1, 4):
                client.reset(seed)
                client.step(1, 0.5)


def test_ten_thousand_values_and_a_wide_agent_list_completely(profile: Profile) -> None:
    world = SyntheticWorld(1000, 1999, 1, values=10_000)
    with (
        UdpSimulator(world, port=0, profile=profile) as simulator,
        player(simulator, profile) as client,
    ):
        rcvbuf = client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        if rcvbuf < 4_000_000:
            pytest.skip(f"the kernel allows a receive buffer of {rcvbuf} bytes only")
        assert len(client.info(1)) == 3000
        assert len(client.find("/Synthetic/Value/0....")) == 10_000


def test_garbage_on_both_ports_does_no_harm(profile: Profile) -> None:
    reports: list[dict[str, int]] = []
    rng = np.random.default_rng(3)
    simulator = UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile, report=reports.append)
    with simulator, player(simulator, profile, 1) as client:
        main = (simulator.address.host, simulator.address.port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for size in (0, 1, 30, 1500, 9000, 60_000):
                stranger.sendto(rng.bytes(size), main)
        for size in (0, 1, 30, 1500, 9000, 60_000):
            client.send(b"\xff" * size)
        client.reset(1)
        client.step(1, 0.0)
    assert reports
    assert set(reports[0]) == {"unknown command"}


@pytest.mark.parametrize("stops", [False, True])
def test_what_is_ignored_right_behind_a_report_is_told_though_nothing_more_comes(stops: bool) -> None:
    reports: queue.Queue[dict[str, int]] = queue.Queue()
    simulator = UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT, report=reports.put)
    with simulator, player(simulator, DOCUMENT, 1) as client:
        client.send(b"\xff")
        told = [reports.get(timeout=20)]
        client.send(b"\xff")
        client.info(1)
        if not stops:
            told.append(reports.get(timeout=20))
    if stops:
        told.append(reports.get(timeout=20))
    assert told == [{"unknown command": 1}, {"unknown command": 2}]


def test_a_late_completion_comes_through_the_timer(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile, stall=1.0) as simulator,
        player(simulator, profile, 1) as client,
    ):
        client.reset(1)
        start = time.monotonic()
        client.step(1, 0.5)
        assert 0.045 < time.monotonic() - start < 0.5


def test_the_acknowledgement_leaves_before_the_world_thinks(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1, think=0.4), port=0, profile=profile) as simulator,
        player(simulator, profile, 1) as client,
    ):
        client.reset(1)
        client.vote(1, np.array([0.5], np.float32))
        acknowledged = time.monotonic()
        client.completion()
        assert time.monotonic() - acknowledged > 0.1


def lost_steps(seed: int) -> list[bool]:
    """Which of sixteen INITs and ENDs were never answered, with faults of this seed."""
    plan = FaultPlan(drop=0.2, seed=seed)
    lost = []
    with UdpSimulator(SyntheticWorld(1, 1), port=0, faults=plan) as simulator:
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with client:
            client.settimeout(0.05)
            for _ in range(16):
                client.sendto(struct.pack("<Bii", 5, 1, 1), (simulator.address.host, simulator.address.port))
                try:
                    _, handler = client.recvfrom(100)
                except TimeoutError:
                    lost.append(True)
                else:
                    lost.append(False)
                    client.sendto(b"\x07", handler)
                    try:
                        client.recv(100)
                    except TimeoutError:
                        lost.append(True)
    return lost


def test_faults_on_the_wire_are_replayed_by_their_seed() -> None:
    first = lost_steps(4)
    assert any(first)
    assert not all(first)
    assert lost_steps(4) == first
    assert lost_steps(5) != first


def test_delayed_and_doubled_datagrams_arrive(profile: Profile) -> None:
    plan = FaultPlan(delay=1.0, delay_max=0.02, seed=1)
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile, faults=plan) as simulator,
        RawClient(simulator.address, profile) as client,
    ):
        client.send(b"\x32\x09\0\0\0")
        assert client.read(51)[1:5] == b"\xff\xff\xff\xff"
    with UdpSimulator(
        SyntheticWorld(1, 1), port=0, profile=profile, faults=FaultPlan(duplicate=1.0)
    ) as simulator:
        with RawClient(simulator.address, profile) as client:
            client.read(6)
        assert simulator.machine.handlers == 2


def test_an_agent_that_no_datagram_can_hold_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="agent has 1 input and 20000 outputs") as refused:
        UdpSimulator(SyntheticWorld(1, 20_000), port=0)
    assert "wrapper" in refused.value.hint
    UdpSimulator(SyntheticWorld(1, 20_000), port=0, profile=NERD).close()


def test_the_largest_agent_that_is_accepted_steps(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(16_370, 16_370), port=0, profile=profile) as simulator,
        player(simulator, profile, 1) as client,
    ):
        client.reset(1)
        client.vote(1, np.zeros(16_370, np.float32))
        assert len(client.read(85)) == (profile.datagram_limit or 21 + 4 * 16_370 + 2) - 2


@pytest.mark.parametrize("spin", [False, True])
def test_it_serves_whether_it_polls_or_sleeps(profile: Profile, spin: bool) -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile, spin=spin) as simulator,
        player(simulator, profile, 1) as client,
    ):
        client.reset(1)
        for step in range(1, 51):
            if step % 10 == 0:
                time.sleep(0.01)
            outputs, _, _ = client.step(1, 0.5)
            assert outputs == expected(np.array([0.5], np.float32), step, 1, seed=1)


def test_it_starts_once_and_stops_at_once() -> None:
    simulator = UdpSimulator(SyntheticWorld(1, 1), port=0).start()
    with pytest.raises(RuntimeError):
        simulator.start()
    start = time.monotonic()
    simulator.stop()
    simulator.stop()
    simulator.stop_soon()
    assert time.monotonic() - start < 5


def test_one_that_was_stopped_cannot_be_started_again() -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        pass
    for again in (simulator.start, simulator.run, simulator.__enter__):
        with pytest.raises(
            SessionClosed, match=f"the simulator at {simulator.address} was stopped"
        ) as caught:
            again()
        assert caught.value.hint == "make a new one"


@needs_ipv6
def test_ipv6_is_served() -> None:
    simulator = UdpSimulator(SyntheticWorld(1, 1), host="::1", port=0)
    with simulator, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        client.settimeout(2.0)
        client.sendto(struct.pack("<Bii", 5, 1, 1), (simulator.address.host, simulator.address.port))
        assert client.recv(100)[0] == 6
        assert str(simulator.address).startswith("[::1]:")


@pytest.mark.parametrize("stall", [-0.1, 1.1, math.nan])
def test_an_impossible_stall_is_refused(stall: float) -> None:
    with pytest.raises(ConfigurationError, match="stall"):
        UdpSimulator(SyntheticWorld(1, 1), port=0, stall=stall)
