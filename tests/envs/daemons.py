"""A daemon in a process of its own, as users run it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
        ready = subprocess.run(
            [sys.executable, "-m", "ospbridge", "status", "--hub", f"unix:{hub}", "--wait", "20"],
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert ready.returncode == 0, ready.stderr
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
