"""Daemons and environments in processes of their own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ospbridge.errors import OspBridgeError
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ospbridge.hub.status import StatusReply
    from ospbridge.session.hub_seat import HubSeat

PROGRAM = (sys.executable, "-m", "ospbridge")


class Daemon:
    """``ospbridge connect``; its log goes to ``log``. Without ``simulator`` the options name what there is.

    ``hub`` is where it is asked for its status, by default the default hub.
    """

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
            self.process = subprocess.Popen(
                [*PROGRAM, "connect", *named, *level, *options],
                stderr=log,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds: float = 20.0) -> StatusReply:
        give_up = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, self.log.read_text()
            found = self.status(give_up - time.monotonic())
            if found.ready:
                return found
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.02)

    def status(self, wait: float = 20.0, hub: str | None = None) -> StatusReply:
        client = HubClient.connect(hub or self.hub, wait=wait)
        try:
            return client.status()
        finally:
            client.close()

    def wait_until(self, state: str, agent: str, seconds: float = 20.0) -> None:
        """Until that agent's driver is in that state."""
        give_up = time.monotonic() + seconds
        while {a.name: a.state for a in self.status().agents}[agent] != state:
            assert time.monotonic() < give_up, self.status()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


PLAYER = """
import sys
import numpy as np
from ospbridge.session.hub_client import HubClient
agent, steps, value = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
seat = HubClient.connect().attach(agent)
print("attached", flush=True)
feedback = seat.reset(5)
print("playing", flush=True)
for _ in range(steps):
    feedback = seat.step(np.full(len(seat.interface.inputs), value, np.float32))
    assert not feedback.truncated, feedback.reason
print("played", flush=True)
sys.stdin.readline()
"""


def start(agent: str, steps: int, value: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PLAYER, agent, str(steps), str(value)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def await_line(player: subprocess.Popen[str], line: str) -> None:
    assert player.stdout is not None
    assert player.stdout.readline().strip() == line


def finish(player: subprocess.Popen[str]) -> None:
    player.communicate("\n", timeout=20)
    assert player.returncode == 0


def values(number: float) -> NDArray[np.float32]:
    return np.full(2, number, np.float32)


def seat_of(agent: str | None, *, wait: float = 10.0) -> HubSeat:
    return HubClient.connect(wait=wait).attach(agent)


def all_free(simulator: UdpSimulator) -> bool:
    with BlockingSession.connect(str(simulator.address), reclaim_stale=False) as session:
        return all(entry.available for entry in session.agents())


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def in_thread(call: Callable[[], object]) -> None:
    """Run it in another thread, so that it counts as another's, and raise what it raises."""
    errors: list[OspBridgeError] = []

    def run() -> None:
        try:
            call()
        except OspBridgeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    if errors:
        raise errors[0]


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An ``ospbridge`` command to its end."""
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False)
