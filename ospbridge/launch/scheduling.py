"""The scheduling policies and cores of a simulator's threads.

Servers of the NERD toolkit lose wake-ups between their threads where the kernel lets a woken thread preempt the one
that woke it: steps stall for 50 ms. Under SCHED_BATCH it does not, and stalls all but end. Every thread has a policy of
its own, which those that it starts inherit; users may set it without a privilege. Threads under another policy than the
ordinary one and SCHED_BATCH were given it on purpose, and keep it.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from ospbridge.errors import SimulatorNotFound, UsageError
from ospbridge.transport.addresses import is_of_this_host, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import Endpoint

__all__ = [
    "RunningSimulator",
    "Thread",
    "batch",
    "owner_of",
    "pin",
    "threads_of",
]

ROUNDS: Final = 20
"""So often the threads of a process are looked at for new ones that are not changed yet."""
RESET_ON_FORK: Final = 0x40000000
"""A flag beside the policy, which stays as it is."""
POLICIES: Final = {
    number: name
    for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE")
    if (number := getattr(os, name, 6 if name == "SCHED_DEADLINE" else None)) is not None
}
"""Names by number; Python has none for the last."""


@dataclass(frozen=True, slots=True)
class RunningSimulator:
    """The process that listens at a simulator's port: ``command`` as it was started, for people."""

    address: Endpoint
    pid: int
    command: str
    owner: str
    """The user it runs as; empty where that cannot be told."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a process: its policy by name, and the cores that it may run on."""

    id: int
    policy: str
    cores: frozenset[int]


def owner_of(simulator: Endpoint) -> RunningSimulator:
    """The process of this host that listens at that UDP address.

    Raises UsageError for an address of another host, on a platform without SCHED_BATCH, where several processes share
    the port, and where this user may not see whose it is; SimulatorNotFound where nobody listens there;
    ConfigurationError for a host name that does not resolve.
    """
    if not hasattr(os, "SCHED_BATCH"):
        raise UsageError(
            "this platform has no SCHED_BATCH, so there is nothing to tune",
            hint="run simulator and bridge on Linux, whose scheduler has it",
        )
    address = resolve(simulator)
    if not is_of_this_host(address.host):
        raise UsageError(
            f"{simulator} is not an address of this host, and only processes of this host can be tuned",
            hint=f"on the simulator's host: ospbridge tune 127.0.0.1:{simulator.port}",
        )
    owners = _listening(address)
    if not owners:
        raise SimulatorNotFound(f"no process of this host listens at UDP {address}")
    if None in owners:
        raise UsageError(
            f"UDP {address} belongs to a process that {_me()} may not see: another user's, or one of another container",
            hint=f"as root, outside of any container: {_with_sudo(simulator)}",
        )
    pids = sorted(pid for pid in owners if pid is not None)
    if len(pids) > 1:
        raise UsageError(
            f"{len(pids)} processes share UDP {address}: pids {', '.join(map(str, pids))}",
            hint="end all but one: each gets a part of the datagrams",
        )
    try:
        process = psutil.Process(pids[0])
        with process.oneshot():
            command = shlex.join(process.cmdline()) or process.name()
            return RunningSimulator(simulator, process.pid, command, process.username())
    except psutil.AccessDenied:
        return RunningSimulator(simulator, pids[0], "?", "")
    except psutil.NoSuchProcess:
        raise _ended(simulator, pids[0]) from None


def _listening(address: Endpoint) -> set[int | None]:
    """Processes with an unconnected socket at the address, or else at its port of any address; None: unknown ones."""
    wanted = _plain(address.host)
    exact: set[int | None] = set()
    anywhere: set[int | None] = set()
    for found in psutil.net_connections("udp"):
        if found.raddr or not found.laddr or found.laddr.port != address.port:
            continue
        bound = _plain(found.laddr.ip)
        if bound == wanted:
            exact.add(found.pid)
        elif bound.is_unspecified and (bound.version in {wanted.version, 6}):
            anywhere.add(found.pid)
    return exact or anywhere


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def threads_of(simulator: RunningSimulator) -> list[Thread]:
    """All threads that it has now. Raises SimulatorNotFound where it ended."""
    found = []
    for thread in _ids(simulator):
        try:
            number = os.sched_getscheduler(thread) & ~RESET_ON_FORK
            cores = frozenset(os.sched_getaffinity(thread))
        except ProcessLookupError:
            continue
        found.append(Thread(thread, POLICIES.get(number, f"policy {number}"), cores))
    return found


def batch(simulator: RunningSimulator, *, undo: bool = False) -> None:
    """Put all threads of the ordinary policy under SCHED_BATCH, those that are started meanwhile too; or back.

    Raises UsageError where this user may not do that, SimulatorNotFound where the simulator ended.
    """
    before, after = os.SCHED_OTHER, os.SCHED_BATCH
    if undo:
        before, after = after, before

    def change(thread: int) -> bool:
        policy = os.sched_getscheduler(thread)
        if policy & ~RESET_ON_FORK != before:
            return False
        os.sched_setscheduler(thread, after | (policy & RESET_ON_FORK), os.sched_param(0))
        return True

    _each(simulator, change)


def pin(simulator: RunningSimulator, core: int | None) -> None:
    """Let all threads run on that core only; None: on all. Raises as ``batch``, and for a core that there is not."""
    cores = set(range(os.cpu_count() or 1)) if core is None else {core}
    moved: set[int] = set()

    def move(thread: int) -> bool:
        # Of cores that the thread is not given all the same, as within a container, it would be found wanting for ever.
        if thread in moved or os.sched_getaffinity(thread) == cores:
            return False
        os.sched_setaffinity(thread, cores)
        moved.add(thread)
        return True

    try:
        _each(simulator, move)
    except OSError as error:
        there = sorted(os.sched_getaffinity(0))
        raise UsageError(
            f"pid {simulator.pid} cannot run on core {', '.join(map(str, sorted(cores)))}: {error.strerror}",
            hint=f"name one of the cores {', '.join(map(str, there))}",
        ) from None


def _each(simulator: RunningSimulator, change: Callable[[int], bool]) -> None:
    """Change threads until none is left to be changed: one that is started meanwhile may have inherited the old way."""
    for _ in range(ROUNDS):
        changed = False
        for thread in _ids(simulator):
            try:
                changed = change(thread) or changed
            except ProcessLookupError:
                continue
            except PermissionError:
                whose = f" of user {simulator.owner}" if simulator.owner else ""
                raise UsageError(
                    f"{_me()} may not change the scheduling of pid {simulator.pid}{whose}",
                    hint=_with_sudo(simulator.address),
                ) from None
        if not changed:
            return


def _ids(simulator: RunningSimulator) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in Path(f"/proc/{simulator.pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        raise _ended(simulator.address, simulator.pid) from None


def _ended(address: Endpoint, pid: int) -> SimulatorNotFound:
    return SimulatorNotFound(f"pid {pid}, which listened at UDP {address}, has ended")


def _me() -> str:
    return f"user {psutil.Process().username()}"


def _with_sudo(address: Endpoint) -> str:
    # Which sudo finds wherever it is installed.
    return f'sudo "$(command -v ospbridge)" tune {address}'
