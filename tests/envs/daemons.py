"""A daemon in a process of its own, as users run it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from ospbridge.session.hub_client import HubClient

READY_WITHIN: Final = 30.0


@contextmanager
def reached(way: str, simulator: object, hub: Path, *options: str) -> Iterator[dict[str, Any]]:
    """What environments are told of where agents are: "direct", or through a "hub" made with ``options``."""
    if way == "direct":
        yield {"simulator": str(simulator)}
        return
    with connected(simulator, hub, *options):
        yield {"bridge": f"unix:{hub}"}


@contextmanager
def connected(simulator: object, hub: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``ospbridge connect`` with its agents ready; ended by SIGTERM."""
    daemon = subprocess.Popen(
        [
            *(sys.executable, "-m", "ospbridge", "connect"),
            *("--simulator", str(simulator), "--hub", f"unix:{hub}", *options),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await_ready(daemon, f"unix:{hub}")
        yield daemon
    finally:
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGTERM)
        try:
            daemon.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.communicate()
            raise


def await_ready(daemon: subprocess.Popen[str], bridge: str) -> None:
    """Until its simulator is joined."""
    give_up = time.monotonic() + READY_WITHIN
    with closing(HubClient.connect(bridge, wait=READY_WITHIN)) as client:
        while not client.status().ready:
            assert daemon.poll() is None, "the daemon ended"
            assert time.monotonic() < give_up, "the simulator was not joined"
            time.sleep(0.01)
