"""What a service manager is told, and when it is not told that all is well."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.notifying import LONGEST, Notifier, Overlook, reloading, supervise
from ospbridge.daemon.settings import Settings
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint

ALIVE = ("WATCHDOG", "1")


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self._address = address

    def notifier(self, **variables: str) -> Notifier:
        return Notifier({"NOTIFY_SOCKET": self._address, **variables})

    def told(self) -> list[tuple[str, str]]:
        """All that it was told since the last time, in order."""
        found: list[tuple[str, str]] = []
        while True:
            try:
                text = self.socket.recv(65536).decode()
            except BlockingIOError:
                return found
            found += [(name, value) for name, _, value in (line.partition("=") for line in text.splitlines())]


@pytest.fixture(params=["", "@"], ids=["path", "abstract"])
def manager(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    found = Manager(f"{request.param}{tmp_path / 'notify'}")
    with found.socket:
        yield found


@pytest.fixture
def conductor(tmp_path: Path) -> Conductor:
    return Conductor(Settings(hub=tmp_path / "hub.sock", simulator=Endpoint("127.0.0.1", 45454)))


def test_a_status_is_short_and_one_line_whatever_is_in_it(manager: Manager) -> None:
    with closing(manager.notifier()) as notifier:
        notifier.tell(STATUS="missing: " + "A\x1b\n" * 40_000)
    ((name, status),) = manager.told()
    assert name == "STATUS"
    assert len(status) <= LONGEST
    assert status.isprintable()
    assert " characters ..." in status


def test_a_manager_that_is_gone_or_slow_is_no_trouble(manager: Manager) -> None:
    with closing(manager.notifier()) as notifier:
        for _ in range(10_000):
            notifier.tell(STATUS="more than its buffer holds")
    manager.socket.close()
    with closing(manager.notifier()) as notifier:
        notifier.tell(READY=1)


def test_what_the_daemon_starts_does_not_speak_for_it(tmp_path: Path) -> None:
    variables = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    with closing(Notifier(variables)) as notifier:
        assert notifier.watchdog == 3.0
    assert variables == {"HOME": "/"}


async def supervised(manager: Manager, conductor: Conductor, seconds: float) -> list[tuple[str, str]]:
    """What the manager is told in so many seconds."""
    with closing(manager.notifier(WATCHDOG_USEC="6000000")) as notifier, trio.move_on_after(seconds):
        await supervise(notifier, Overlook([conductor], [], []))
    return manager.told()


@pytest.mark.trio
async def test_who_waits_is_alive_and_says_how_it_stands(
    manager: Manager, conductor: Conductor, autojump_clock: object
) -> None:
    told = await supervised(manager, conductor, 9.5)
    assert told.count(ALIVE) >= 5
    statuses = [value for name, value in told if name == "STATUS"]
    assert statuses == ["simulator 127.0.0.1:45454 not joined yet; 0 of 0 agents driven"]


@pytest.mark.trio
async def test_a_step_that_never_ends_is_no_life(
    manager: Manager, conductor: Conductor, autojump_clock: object
) -> None:
    conductor.supervisor.busy_since = trio.current_time()
    assert ALIVE in await supervised(manager, conductor, 120.0)
    await supervised(manager, conductor, 1000.0)
    with capture_logs() as lines:
        told = await supervised(manager, conductor, 100.0)
    assert [name for name, _ in told] == ["STATUS"]
    (line,) = lines
    assert line["log_level"] == "error"
    assert line["simulators"] == ["127.0.0.1:45454"]
    conductor.supervisor.busy_since = None
    assert ALIVE in await supervised(manager, conductor, 1.0)


def test_a_manager_learns_that_a_reload_is_over_even_where_it_fails(manager: Manager) -> None:
    def fail() -> None:
        raise ConfigurationError("no", hint="yes")

    with closing(manager.notifier()) as notifier, pytest.raises(ConfigurationError):
        reloading(notifier, fail)
    told = manager.told()
    assert [name for name, _ in told] == ["RELOADING", "MONOTONIC_USEC", "READY"]
    assert int(told[1][1]) > 0
