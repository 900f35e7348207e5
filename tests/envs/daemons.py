"""Daemons: in this process, which is quick, or in one of their own, as users run them, which may be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from ospbridge.cli.configured import configuration
from ospbridge.cli.connect import connect
from ospbridge.daemon.service import serve
from ospbridge.session.hub_client import HubClient

READY_WITHIN: Final = 30.0


@contextmanager
def reached(way: str, simulator: object, hub: Path, *options: str) -> Iterator[dict[str, Any]]:
    """What environments are told of where agents are: "direct", or through a "hub" made with ``options``."""
    if way == "direct":
        yield {"simulator": str(simulator)}
        return
    with hosted(simulator, hub, *options):
        yield {"bridge": f"unix:{hub}"}


@contextmanager
def hosted(simulator: object, hub: Path, *options: str) -> Iterator[None]:
    """What ``ospbridge connect`` runs, in a thread of this process, with its agents ready."""
    context = connect.make_context(
        "connect", ["--simulator", str(simulator), "--hub", f"unix:{hub}", *options]
    )
    with context.scope(cleanup=False):
        found = configuration(context, None)
        settings, feedings = found.settings(), found.feedings()
    asking, asked = trio.open_memory_channel[int](1)
    place: list[trio.lowlevel.TrioToken] = []
    failed: list[BaseException] = []

    async def serving() -> None:
        place.append(trio.lowlevel.current_trio_token())
        await serve(settings, feedings, asked)

    def run() -> None:
        try:
            trio.run(serving)
        except BaseException as error:  # noqa: BLE001  # another thread tells it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        await_ready(lambda: not failed, f"unix:{hub}")
        yield
    finally:
        if thread.is_alive():
            place[0].run_sync_soon(asking.send_nowait, signal.SIGTERM)
        thread.join(READY_WITHIN)
    assert not failed, failed


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
        await_ready(lambda: daemon.poll() is None, f"unix:{hub}")
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


def await_ready(lives: Callable[[], bool], bridge: str) -> None:
    """Until its simulator is joined."""
    give_up = time.monotonic() + READY_WITHIN
    with closing(HubClient.connect(bridge, wait=READY_WITHIN)) as client:
        while not client.status().ready:
            assert lives(), "the daemon ended"
            assert time.monotonic() < give_up, "the simulator was not joined"
            time.sleep(0.01)
