"""The machine: its cores and clock, how much a UDP socket may hold, and who listens at the simulator's port.

Linux tells this under ``/proc`` and ``/sys``; where it does not, the check is skipped.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.checks import Check, advice, problem, skipped, well
from ospbridge.toml.nearest import nearest
from ospbridge.transport.addresses import LOOPBACK
from ospbridge.transport.udp import RECEIVE_BUFFER, open_udp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["check_clock", "check_cores", "check_port", "check_receive_buffer", "check_variables"]

PROC: Final = Path("/proc")
CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
READS: Final = 2_000
SLOW_CLOCK: Final = 1_000
"""Nanoseconds for reading the clock; a step reads it a dozen times."""
HUB_CORES: Final = 3
"""The environment's, the daemon's and the simulator's."""


def check_cores() -> Check:
    """Whether a core is to spare, so that receivers may spin before they sleep."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        return advice(
            "cores",
            "this process may use one core: receivers sleep at once, which makes each step slower",
            "give it two or more (taskset, CPUAffinity=, docker --cpuset-cpus); the simulator needs one of its own",
        )
    if cores < HUB_CORES:
        return well(
            "cores", f"{cores} cores: environments of their own spin; those of a hub would take {HUB_CORES}"
        )
    return well("cores", f"{cores} cores: receivers spin before they sleep")


def check_clock(source: Path = CLOCK_SOURCE) -> Check:
    """Whether reading the clock is cheap."""
    began = perf_counter_ns()
    for _ in range(READS):
        monotonic()
    each = (perf_counter_ns() - began) / READS
    name = ""
    with suppress(OSError):
        name = source.read_text().strip()
    detail = f"reading it takes {each:.0f} ns" + f" (source {name})" * bool(name)
    if each > SLOW_CLOCK:
        return advice(
            "clock",
            f"{detail}: every step pays for it",
            "choose a faster source, such as tsc: see /sys/devices/system/clocksource/clocksource0/"
            "available_clocksource",
        )
    return well("clock", detail)


def check_receive_buffer(wanted: int = RECEIVE_BUFFER) -> Check:
    """Whether a socket gets the receive buffer that listings of large simulators need."""
    subject = "receive buffer"
    with open_udp(LOOPBACK) as sock:
        # The kernel says twice what it grants: half of it is for its own bookkeeping.
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    if granted >= wanted:
        return well(subject, f"{granted // 1024} KiB")
    return advice(
        subject,
        f"{granted // 1024} KiB of the {wanted // 1024} KiB asked for: listings of thousands of variables "
        "lose pieces and take longer",
        f"sudo sysctl -w net.core.rmem_max={wanted} (to keep it: a line in /etc/sysctl.d/)",
    )


def check_port(port: int, proc: Path = PROC) -> Check:
    """Who listens at a UDP port of this host."""
    subject = f"UDP port {port}"
    try:
        sockets = list(_sockets_at(port, proc))
    except OSError as error:
        return skipped(subject, f"{proc}/net/udp cannot be read: {error.strerror}")
    if not sockets:
        return well(subject, "free: no simulator listens there on this host")
    owners = _owners({inode for _, inode in sockets}, proc)
    names = [owners.get(inode, "a process of another user") for _, inode in sockets]
    addresses = [address for address, _ in sockets]
    if len(addresses) > len(set(addresses)):
        return problem(
            subject,
            f"{len(sockets)} sockets share it: {', '.join(names)}; each gets a part of the datagrams",
            "end all but one",
        )
    return well(subject, f"in use by {', '.join(dict.fromkeys(names))}")


def _sockets_at(port: int, proc: Path) -> Iterator[tuple[str, str]]:
    """Address and inode of every unconnected UDP socket at the port."""
    for name in ("udp", "udp6"):
        path = proc / "net" / name
        if name == "udp6" and not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if len(fields) < 10:
                continue
            address, _, number = fields[1].rpartition(":")
            connected = fields[2].rpartition(":")[2] != "0000"
            if int(number, 16) == port and not connected:
                yield address, fields[9]


def _owners(inodes: set[str], proc: Path) -> dict[str, str]:
    """Name and id of the processes that hold these sockets, as far as this user may see."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, str] = {}
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    inode = wanted.get(str(descriptor.readlink()))
                    if inode is not None:
                        name = (process / "comm").read_text().strip()
                        found[inode] = f"{name} (pid {process.name})"
    return found


OURS: Final = "OSPBRIDGE_"
SUBJECT: Final = "variables"


def check_variables(known: Collection[str]) -> Check:
    """Whether each that is set is one of those ``known``: a misspelt one is passed over in silence by all commands."""
    given = sorted(name for name in os.environ if name.startswith(OURS))
    strange = [name for name in given if name not in known]
    if strange:
        meant = " ".join(filter(None, (nearest(name, known) for name in strange)))
        return advice(
            SUBJECT,
            f"no option is set by {', '.join(strange)}",
            meant
            or "OSPBRIDGE_, the command, and the option as it is written: docs/reference/cli.md lists them all",
        )
    return well(
        SUBJECT, f"options are set by {', '.join(given)}" if given else f"no option is set by {OURS}..."
    )
