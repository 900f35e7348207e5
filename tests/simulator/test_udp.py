"""The UDP driver: addresses, several clients, strangers, bursts, faults, stopping."""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import until
from tests.ipv6 import needs_ipv6
from tests.simulator.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.osp.world import World

pytestmark = pytest.mark.loopback


def player(simulator: UdpSimulator, profile: Profile, *agents: int) -> RawClient:
    client = RawClient(simulator.address, profile)
    client.overview()
    for agent in agents:
        client.register(agent)
    return client


@contextmanager
def played(
    profile: Profile = DOCUMENT, world: World | None = None, **options: Any
) -> Iterator[tuple[UdpSimulator, RawClient]]:
    """A simulator, and a client that controls its first agent."""
    with (
        UdpSimulator(world or SyntheticWorld(1, 1), port=0, profile=profile, **options) as simulator,
        player(simulator, profile, 1) as client,
    ):
        yield simulator, client


def test_a_port_that_is_taken_is_refused_with_the_next_step(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator:
        with pytest.raises(ConfigurationError, match=str(simulator.address)) as refused:
            UdpSimulator(SyntheticWorld(1, 1), port=simulator.address.port)
        assert "--port 0" in refused.value.hint
    UdpSimulator(SyntheticWorld(1, 1), port=simulator.address.port).stop()


@pytest.mark.parametrize(
    "option, told",
    [
        ({"port": 70_000}, "expected 0 to 65535"),
        ({"port": "45454"}, "expected 0 to 65535"),
        ({"profile": "nerd"}, "got 'nerd'"),
        ({"stall": 1.1}, "stall"),
        ({"stall": math.nan}, "stall"),
        ({"host": "no.such.host.invalid"}, "cannot resolve"),
        ({"host": "."}, "it can be no host's name"),
        ({"host": "x" * 64}, "it can be no host's name"),
        # Another port would not help.
        ({"host": "192.0.2.1"}, r"cannot listen at [^-]*\(this host has no such address[^-]*$"),
    ],
)
def test_what_cannot_be_listened_at_or_hosted_so_is_refused(option: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        UdpSimulator(SyntheticWorld(1, 1), **{"port": 0, **option})


def test_two_clients_step_together_and_the_ledger_knows_who_asked(profile: Profile) -> None:
    records: list[dict[str, Any]] = []
    world = SyntheticWorld(2, 3, 1, agents=2)
    with UdpSimulator(world, port=0, profile=profile, ledger=records.append) as simulator:
        clients = [player(simulator, profile, 1), player(simulator, profile, 2)]

        def play(index: int) -> None:
            client = clients[index]
            client.reset(5)
            for step in range(1, 51):
                inputs = np.array([step / 256, index], np.float32)
                client.vote(index + 1, inputs)
                outputs, _, _ = client.completion()
                assert np.array_equal(outputs, expected(inputs, step, 3, seed=5))

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(play, range(2)))
        names = [client.name for client in clients]
        for client in clients:
            client.close()
    assert [record["kind"] for record in records] == ["reset"] + ["step"] * 50
    for step, record in enumerate(records[1:], 1):
        assert record["n"] == step
        assert sorted(record["clients"]) == sorted(names)
        for index, name in enumerate(names):
            entry = record["agents"][f"agent{index + 1}"]
            assert entry == {"inputs": [step / 256, index], "client": name, "votes": [name]}


def test_a_handler_ignores_strangers_and_is_gone_when_its_client_has_left(profile: Profile) -> None:
    with (
        played(profile) as (simulator, client),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        for _ in range(10):
            stranger.sendto(b"\x07", client.socket.getpeername())
        assert client.socket.getpeername()[1] != simulator.address.port
        client.reset(1)
        client.step(1, 0.0)
        assert simulator.machine.handlers == 1
        # A dead handler refuses what is sent to it.
        client.send(b"\x07")
        client.read(8)
        with pytest.raises(ConnectionRefusedError):  # noqa: PT012
            while True:
                client.send(b"\x5a")
                time.sleep(0.001)


def test_a_vanished_client_does_not_disturb_the_others(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=profile) as simulator:
        observer = player(simulator, profile)
        observer.close()
        with player(simulator, profile, 1) as client:
            for seed in range(1, 4):
                client.reset(seed)
                client.step(1, 0.5)


def test_garbage_on_both_ports_does_no_harm(profile: Profile) -> None:
    reports: list[dict[str, int]] = []
    rng = np.random.default_rng(3)
    with played(profile, report=reports.append) as (simulator, client):
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


class Thoughtful(SyntheticWorld):
    """Thinks in each step until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.go_on = threading.Event()

    def step(self) -> None:
        assert self.go_on.wait(30)
        super().step()


def test_the_acknowledgement_leaves_before_the_world_thinks(profile: Profile) -> None:
    world = Thoughtful()
    with UdpSimulator(world, port=0, profile=profile) as simulator, player(simulator, profile, 1) as client:
        client.reset(1)
        client.vote(1, np.array([0.5], np.float32))
        world.go_on.set()
        client.completion()


def test_a_nerd_handler_whose_datagram_met_a_closed_port_hears_nobody_any_more(profile: Profile) -> None:
    world = Thoughtful()
    with (
        UdpSimulator(world, port=0, profile=profile) as simulator,
        player(simulator, profile) as observer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as successor,
    ):
        client = player(simulator, profile, 1)
        own, handler = client.socket.getsockname(), client.socket.getpeername()
        client.vote(1, np.zeros(1, np.float32))
        client.close()
        world.go_on.set()
        until(lambda: simulator.machine.steps)
        assert observer.get(0) == "", "the completion has left"
        successor.bind(own)
        successor.connect(handler)
        successor.settimeout(0.2 if profile.deaf_after_closed_port else 30.0)
        successor.send(struct.pack("<Bi", 86, 1))
        successor.send(struct.pack("<Bi", 105, 1))
        if profile.deaf_after_closed_port:
            with pytest.raises(TimeoutError):
                successor.recv(100)
            assert simulator.machine.controlled == 1
        else:
            assert successor.recv(100)[0] == 106


def test_delayed_and_doubled_datagrams_arrive(profile: Profile) -> None:
    plan = FaultPlan(delay=1.0, delay_max=0.02, seed=1)
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile, faults=plan) as simulator,
        RawClient(simulator.address, profile) as client,
    ):
        client.send(b"\x32\x09\0\0\0")
        assert client.read(51)[1:5] == b"\xff\xff\xff\xff"
    plan = FaultPlan(duplicate=1.0)
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile, faults=plan) as simulator:
        with RawClient(simulator.address, profile) as client:
            client.read(6)
        assert simulator.machine.handlers == 2


def test_an_agent_that_no_datagram_can_hold_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="agent has 1 input and 16371 outputs") as refused:
        UdpSimulator(SyntheticWorld(1, 16_371), port=0)
    assert "wrapper" in refused.value.hint
    # The largest one that is accepted steps.
    with played(DOCUMENT, SyntheticWorld(16_370, 16_370)) as (_, client):
        client.reset(1)
        client.vote(1, np.zeros(16_370, np.float32))
        assert len(client.read(85)) == 21 + 4 * 16_370
    # A server of the other kind cuts its datagrams.
    with played(NERD, SyntheticWorld(1, 16_371)) as (_, client):
        client.reset(1)
        client.vote(1, np.zeros(1, np.float32))
        assert len(client.read(85)) == (NERD.datagram_limit or 0) - 2


def test_it_serves_though_it_polls() -> None:
    with played(spin=True) as (_, client):
        client.reset(1)
        for step in range(1, 51):
            if step % 10 == 0:
                time.sleep(0.01)
            outputs, _, _ = client.step(1, 0.5)
            assert outputs == expected(np.array([0.5], np.float32), step, 1, seed=1)


@needs_ipv6
def test_ipv6_is_served() -> None:
    simulator = UdpSimulator(SyntheticWorld(1, 1), host="::1", port=0)
    with simulator, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        client.settimeout(30.0)
        client.sendto(struct.pack("<Bii", 5, 1, 1), (simulator.address.host, simulator.address.port))
        assert client.recv(100)[0] == 6
        assert str(simulator.address).startswith("[::1]:")
