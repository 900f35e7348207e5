"""``ospbridge connect --dashboard``: a page of a whole daemon, that neither delays it nor outlives it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import WITHIN, invoke
from tests.daemon.running import Daemon

pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")

pytestmark = pytest.mark.loopback

TOKEN = "a-token-of-some-length"


def port_of(daemon: Daemon, event: str = "dashboard open") -> int:
    (entry,) = daemon.lines(event)
    return int(urlsplit(entry["url"]).port or 0)


class Events:
    """A stream of events, read by a thread that may wait for them."""

    def __init__(self, port: int, query: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)
        self._connection.request("GET", f"/events{query}")
        self._response = self._connection.getresponse()
        assert self._response.status == 200

    def next(self, kind: str) -> Any:
        for line in self._response:
            if line == f"event: {kind}\n".encode():
                return json.loads(self._response.readline().removeprefix(b"data: "))
        raise AssertionError(f"no event {kind}")

    def until(self, kind: str, field: str, value: object) -> None:
        """Until a part of that kind says so."""
        while not any(
            part is not None and part[field] == value for of, _, part in self.next("changed") if of == kind
        ):
            pass

    def close(self) -> None:
        self._connection.close()


def test_it_shows_the_daemon_and_the_moments_of_an_agent(tmp_path: Path) -> None:
    with (
        UdpSimulator(ArenaWorld(2), port=0) as simulator,
        Daemon(simulator.address, "--dashboard", "127.0.0.1:0", directory=tmp_path) as daemon,
    ):
        agents = [agent.name for agent in daemon.status().agents]
        events = Events(port_of(daemon), f"?agent={agents[0]}")
        assert {kind for kind, _, _ in events.next("changed")} == {"daemon", "simulator", "agent", "history"}
        seat = HubClient.connect().attach(agents[0])
        seat.reset(5)
        events.until("agent", "state", "playing")
        seat.step(np.full(len(seat.interface.inputs), 0.5, np.float32))
        assert events.next("points")[0][1] in {"reset", "step"}
        seat.close()
        # What the daemon warned of stands there.
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(default_hub()))
            stranger.sendall(b"\x04\x00\x00\x00abcd")
            stranger.recv(100)
        events.until("warning", "event", "a client was dismissed")
        # It ends though a page is open, and another one reads nothing.
        with socket.create_connection(("127.0.0.1", port_of(daemon))) as unread:
            unread.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert daemon.end(signal.SIGTERM) == 0
        events.close()


def status_of(port: int, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def test_a_token_is_asked_for_where_one_is_named_and_metrics_need_none(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    options = ["--dashboard", "0.0.0.0:0", "--dashboard-token", str(file)]
    measured = find_spec("prometheus_client") is not None
    if measured:
        options += ["--metrics", "127.0.0.1:0"]
    with (
        UdpSimulator(ArenaWorld(1), port=0) as simulator,
        Daemon(simulator.address, *options, directory=tmp_path) as daemon,
    ):
        port = port_of(daemon)
        assert status_of(port, "/") == 401
        assert status_of(port, "/", Authorization=f"Bearer {TOKEN}") == 200
        if measured:
            assert status_of(port_of(daemon, "metrics open"), "/metrics") == 200
        assert daemon.end() == 0
        assert TOKEN not in daemon.log.read_text()


def test_what_is_said_of_a_dashboard_that_nobody_asked_for_is_told(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text('[daemon]\ndashboard_host = ["lab.example"]\n')
    for wanted, words in (
        (2, ("connect", "--dashboard-host", "lab.example")),
        (78, ("config", "show", "--config", str(file))),
    ):
        assert "--dashboard-host was given, but no dashboard" in invoke(*words, exit_code=wanted).stderr


def test_what_cannot_work_ends_the_daemon_before_it_begins() -> None:
    assert "no token is asked for" in invoke("connect", "--dashboard", "0.0.0.0:0", exit_code=78).stderr
    words = ("--dashboard", "127.0.0.1:0", "--dashboard-token", "/nowhere")
    assert "cannot be read" in invoke("connect", *words, exit_code=78).stderr
