"""The scheduling of a simulator's threads: whose they are, what becomes of them, and what is in the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ospbridge.errors import OspBridgeError, SimulatorNotFound, UsageError
from ospbridge.interface import Endpoint
from ospbridge.launch import scheduling
from ospbridge.launch.scheduling import RunningSimulator, batch, owner_of, pin, threads_of
from tests.daemon.running import free_port
from tests.ipv6 import needs_ipv6
from tests.launch.listening import THREADS, Listening, listening

loopback = pytest.mark.loopback
SIMULATOR = RunningSimulator(Endpoint("127.0.0.1", 45454), 4711, "NerdSim -p 45454", "somebody")


@pytest.fixture
def process() -> Iterator[Listening]:
    with listening() as running:
        yield running


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def policies(simulator: RunningSimulator) -> dict[str, int]:
    return dict(Counter(thread.policy for thread in threads_of(simulator)))


def raised(call: Callable[..., object], *given: object) -> OspBridgeError:
    with pytest.raises(OspBridgeError) as caught:
        call(*given)
    assert caught.value.hint
    return caught.value


# --- the process ------------------------------------------------------------------------------------------------------


@loopback
@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", pytest.param("::", marks=needs_ipv6)])
def test_a_simulator_is_known_by_its_port_wherever_it_is_bound_to(bound: str) -> None:
    with listening(bound) as running:
        found = owner_of(running.address)
        assert (found.pid, found.address) == (running.pid, running.address)
        assert found.command.endswith(f" {bound} 0")


@loopback
def test_of_two_at_one_port_that_with_the_very_address_is_meant() -> None:
    with listening() as running, listening("127.0.0.2", port=running.address.port, host="127.0.0.2") as other:
        assert owner_of(running.address).pid == running.pid
        assert owner_of(other.address).pid == other.pid


@loopback
def test_several_that_share_a_port_are_named(process: Listening) -> None:
    with listening(port=process.address.port) as other:
        error = raised(owner_of, process.address)
    assert isinstance(error, UsageError)
    assert ", ".join(map(str, sorted((process.pid, other.pid)))) in error.message


@loopback
def test_a_port_of_nobody_is_told() -> None:
    port = free_port()
    error = raised(owner_of, Endpoint("127.0.0.1", port))
    assert isinstance(error, SimulatorNotFound)
    assert f"no process of this host listens at UDP 127.0.0.1:{port}" in error.message


def test_another_host_is_told_with_the_command_for_it() -> None:
    error = raised(owner_of, Endpoint("192.0.2.7", 45454))
    assert "192.0.2.7:45454 is not an address of this host" in error.message
    assert error.hint.endswith("ospbridge tune 127.0.0.1:45454")


def test_a_process_that_may_not_be_seen_is_told_with_the_way_to_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = SimpleNamespace(laddr=SimpleNamespace(ip="127.0.0.1", port=45454), raddr=(), pid=None)
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [unknown])
    error = raised(owner_of, Endpoint("127.0.0.1", 45454))
    assert "may not see" in error.message
    assert 'sudo "$(command -v ospbridge)" tune 127.0.0.1:45454' in error.hint


def test_a_platform_without_the_policy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "SCHED_BATCH")
    assert "no SCHED_BATCH" in raised(owner_of, Endpoint("127.0.0.1", 45454)).message


@loopback
def test_one_that_ended_meanwhile_is_told() -> None:
    with listening() as running:
        found = owner_of(running.address)
    for call, *given in ((threads_of,), (batch,), (pin, None)):
        assert "has ended" in raised(call, found, *given).message


# --- its threads ------------------------------------------------------------------------------------------------------


@loopback
def test_all_threads_come_under_the_policy_and_back_and_new_ones_inherit_it(process: Listening) -> None:
    simulator = owner_of(process.address)
    there = os.sched_getaffinity(0)
    core = max(there)
    assert policies(simulator) == {"SCHED_OTHER": THREADS}
    batch(simulator)
    pin(simulator, core)
    process.start_thread()
    assert policies(simulator) == {"SCHED_BATCH": THREADS + 1}
    assert {thread.cores for thread in threads_of(simulator)} == {frozenset({core})}
    batch(simulator)
    batch(simulator, undo=True)
    pin(simulator, None)
    process.start_thread()
    assert policies(simulator) == {"SCHED_OTHER": THREADS + 2}
    assert all(there <= thread.cores for thread in threads_of(simulator))


@loopback
def test_a_core_that_there_is_not_is_told_with_those_that_there_are(process: Listening) -> None:
    error = raised(pin, owner_of(process.address), 1023)
    assert "cannot run on core 1023" in error.message
    assert ", ".join(map(str, sorted(os.sched_getaffinity(0)))) in error.hint


class Kernel:
    """Threads by their ids, with their policies; some come when others are looked at, and some are gone then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.policies = {1: os.SCHED_OTHER}
        self.coming: list[int] = []
        self.going: set[int] = set()
        self.looks = 0
        monkeypatch.setattr(scheduling, "_ids", self.ids)
        monkeypatch.setattr(os, "sched_getscheduler", self.policy)
        monkeypatch.setattr(os, "sched_setscheduler", self.change)

    def ids(self, simulator: RunningSimulator) -> list[int]:
        self.looks += 1
        found = sorted(self.policies)
        if self.coming:
            # Of a thread that was not changed yet.
            self.policies[self.coming.pop()] = os.SCHED_OTHER
        return found

    def policy(self, thread: int) -> int:
        if thread in self.going:
            raise ProcessLookupError
        return self.policies[thread]

    def change(self, thread: int, policy: int, _: Any) -> None:
        self.policies[thread] = policy


def test_threads_that_come_meanwhile_are_changed_too_and_those_that_go_are_no_error(kernel: Kernel) -> None:
    kernel.policies = dict.fromkeys((1, 2, 3), os.SCHED_OTHER)
    kernel.coming = [12, 11, 10]
    kernel.going = {2}
    batch(SIMULATOR)
    del kernel.policies[2]
    assert kernel.policies == dict.fromkeys((1, 3, 10, 11, 12), os.SCHED_BATCH)


def test_a_simulator_that_starts_threads_for_ever_is_left_after_a_while(kernel: Kernel) -> None:
    kernel.coming = list(range(1000, 100, -1))
    batch(SIMULATOR)
    assert kernel.looks == scheduling.ROUNDS


def test_policies_that_somebody_chose_are_kept_and_so_is_the_flag_beside_one(kernel: Kernel) -> None:
    flagged = os.SCHED_OTHER | scheduling.RESET_ON_FORK
    before = {1: os.SCHED_FIFO, 2: os.SCHED_IDLE, 3: flagged, 4: os.SCHED_OTHER}
    kernel.policies = dict(before)
    batch(SIMULATOR)
    assert kernel.policies == before | {3: os.SCHED_BATCH | scheduling.RESET_ON_FORK, 4: os.SCHED_BATCH}
    batch(SIMULATOR, undo=True)
    assert kernel.policies == before


def test_what_this_user_may_not_do_is_told_with_the_command_of_who_may(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    error = raised(batch, SIMULATOR)
    assert "may not change the scheduling of pid 4711 of user somebody" in error.message
    assert 'sudo "$(command -v ospbridge)" tune 127.0.0.1:45454' in error.hint
    assert kernel.policies == {1: os.SCHED_OTHER}
