"""Daemons and environments: in processes of their own, or a daemon in a thread of this one, which starts at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
import structlog
import trio
from click.testing import CliRunner
from structlog.testing import LogCapture

from ospbridge.cli import main
from ospbridge.daemon.service import serve
from ospbridge.daemon.settings import Settings
from ospbridge.envs.hub import AgentHandle
from ospbridge.errors import OspBridgeError
from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import default_hub
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping, Sequence

    from click.testing import Result
    from numpy.typing import NDArray

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.notifying import Overlook
    from ospbridge.daemon.service import Companion
    from ospbridge.daemon.settings import Feeding
    from ospbridge.hub.status import StatusReply
    from tests.daemon.forked import ForkedSimulator

PROGRAM = (sys.executable, "-m", "ospbridge")
WITHIN = 30.0
"""Seconds that anything may take on a busy machine."""


def until(condition: Callable[[], object], why: Callable[[], object] = lambda: None) -> None:
    """Look again and again; ``why`` tells what is wrong where it never comes."""
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up, why()
        time.sleep(0.005)


@contextmanager
def captured_logs() -> Iterator[list[Any]]:
    """As structlog's ``capture_logs``, with what is bound to the context; older releases leave that out."""
    processors, capture = structlog.get_config()["processors"], LogCapture()
    before = processors.copy()
    processors[:] = [structlog.contextvars.merge_contextvars, capture]
    try:
        yield capture.entries
    finally:
        processors[:] = before


class AnyDaemon:
    """At ``hub``, None for the default one."""

    hub: str | None

    def status(self, wait: float = 60.0, hub: str | None = None) -> StatusReply:
        with closing(HubClient.connect(hub or self.hub, wait=wait)) as client:
            return client.status()

    def wait_until(self, state: str, agent: str) -> None:
        """Until that agent's driver is in that state."""
        until(lambda: {a.name: a.state for a in self.status().agents}[agent] == state, self.status)


class LocalDaemon(AnyDaemon):
    """What ``ospbridge connect`` runs, in a thread: all but the command line, the signals and the death of a process.

    ``changes`` are settings. Until it is left, it has what is logged; one within another's context shares that.
    """

    _captured: list[MutableMapping[str, Any]] | None = None

    def __init__(
        self,
        simulator: Endpoint,
        *,
        ready: bool = True,
        companions: Sequence[Companion] = (),
        feedings: Sequence[Feeding] = (),
        **changes: Any,
    ) -> None:
        settings = Settings(simulator=simulator, **{"hub": default_hub(), "spin": False, **changes})
        self.hub = f"unix:{settings.hub}"
        self._ready = ready
        self._begun = threading.Event()
        self._send, signals = trio.open_memory_channel[int](10)
        self._serve = partial(serve, [settings], feedings, signals, companions=[self._begin, *companions])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stack = ExitStack()
        self.error: BaseException | None = None
        """What it ended with."""

    async def _begin(self, overlook: Overlook) -> None:
        self.overlook = overlook
        self._token = trio.lowlevel.current_trio_token()
        self._begun.set()

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is told to who waits
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.error = error
        finally:
            self._begun.set()

    @property
    def conductor(self) -> Conductor:
        (conductor,) = self.overlook.conductors
        return conductor

    def __enter__(self) -> Self:
        if LocalDaemon._captured is None:
            LocalDaemon._captured = self._stack.enter_context(captured_logs())
            self._stack.callback(setattr, LocalDaemon, "_captured", None)
        self._logs = LocalDaemon._captured
        self._thread.start()
        assert self._begun.wait(WITHIN)
        if self._ready:
            self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._stack:
            self.end()

    def wait_ready(self) -> StatusReply:
        until(lambda: self.error or self.conductor.ready, lambda: self.conductor.supervisor.connection.text)
        if self.error is not None:
            raise self.error
        return self.status()

    def rebuilt(self, times: int = 1) -> None:
        """Until the session was lost and is there again."""
        until(lambda: self.conductor.rebuilds >= times and self.conductor.ready)

    def run(self, call: Callable[[], object]) -> None:
        """In its own thread."""
        trio.from_thread.run_sync(call, trio_token=self._token)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """As if its process did not run."""
        stands, goes_on = threading.Event(), threading.Event()
        self._token.run_sync_soon(stands.set)
        self._token.run_sync_soon(goes_on.wait, WITHIN)
        assert stands.wait(WITHIN)
        try:
            yield
        finally:
            goes_on.set()

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [{"level": line["log_level"], **line} for line in list(self._logs) if line["event"] == event]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        if self._thread.is_alive():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._send.send_nowait, number)
        return self.wait()

    def wait(self) -> int:
        self._thread.join(WITHIN)
        assert not self._thread.is_alive()
        if self.error is None:
            return 0
        assert isinstance(self.error, OspBridgeError), repr(self.error)
        return self.error.exit_code


def run_here(*arguments: str) -> Result:
    """An ``ospbridge`` command that ends by itself, in this process.

    It leaves the log to whoever has it: a daemon beside it would go on to write where the command did.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", lambda **_: None)
        for changes_the_process in ("allow_many", "collect_seldom"):
            patch.setattr(f"ospbridge.cli.connect.{changes_the_process}", lambda: None)
        return CliRunner().invoke(main, arguments)


class Daemon(AnyDaemon):
    """``ospbridge connect``; its log goes to ``log``. Without ``simulator`` the options name what there is."""

    def __init__(
        self,
        simulator: object,
        *options: str,
        directory: Path,
        wait: bool = True,
        hub: str | None = None,
        level: tuple[str, ...] = ("--log-level", "debug"),
    ) -> None:
        self.hub = hub
        self.log = directory / f"daemon-{time.monotonic_ns()}.log"
        named = [] if simulator is None else ["--simulator", str(simulator)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*PROGRAM, "connect", *named, *level, *options], stderr=log)
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds: float = 60.0) -> StatusReply:
        give_up = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, self.log.read_text()
            found = self.status(give_up - time.monotonic())
            if found.ready:
                return found
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.02)

    def lines(self, event: str) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [entry for entry in entries if entry["event"] == event]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class SinkProcess:
    """``ospbridge sink``, at one port whenever it runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port(socket.SOCK_STREAM)}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, "sink", "--listen", self.address, "--record", str(self.directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.address

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=10)
            self._process = None

    @property
    def files(self) -> int:
        return sum(1 for path in self.directory.glob("*.npz"))

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


PLAYER = """
import sys
import numpy as np
from ospbridge.envs.hub import AgentHandle
from ospbridge.session.hub_client import HubClient
agent, steps, value, hub = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] or None
seat = AgentHandle.attach(HubClient.connect(hub), agent)
print("attached", flush=True)
seat.reset(5)
print("playing", flush=True)
for _ in range(steps):
    feedback = seat.step(np.full(len(seat.interface.inputs), value, np.float32))
    assert not feedback.truncated, feedback.reason
print("played", flush=True)
"""


@contextmanager
def player(agent: str, steps: int, value: float, hub: str = "") -> Iterator[subprocess.Popen[str]]:
    """An environment in a process of its own, which says "attached", "playing" and "played"."""
    command = [sys.executable, "-c", PLAYER, agent, str(steps), str(value), hub]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def await_lines(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdout is not None
    for line in lines:
        assert process.stdout.readline().strip() == line


def values(number: float) -> NDArray[np.float32]:
    return np.full(2, number, np.float32)


def seat_of(agent: str | None, *, wait: float = 10.0) -> AgentHandle:
    return AgentHandle.attach(HubClient.connect(wait=wait), agent)


def all_free(simulator: UdpSimulator | ForkedSimulator) -> bool:
    with BlockingSession.connect(str(simulator.address), reclaim_stale=False) as session:
        return all(entry.available for entry in session.agents())


def free_port(kind: int = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def at_once(*calls: Callable[[], object]) -> None:
    """Each in a thread of its own, so that it counts as another's; raises what one of them raises."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for begun in [pool.submit(call) for call in calls]:
            begun.result(WITHIN)


# --- what the kernel tells of a process: to see that nothing piles up in it -------------------------------------------


def descriptors(pid: int | str = "self") -> int:
    """How many are open; of this process one more, for the look itself."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def threads(pid: int | str = "self") -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def resident(pid: int | str = "self") -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
