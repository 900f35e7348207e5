"""``ospbridge connect --dashboard``: a page of a whole daemon, that neither delays it nor outlives it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, run_program

pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]

WITHIN = 20.0
TOKEN = "a-token-of-some-length"


def port_of(daemon: Daemon) -> int:
    (entry,) = daemon.lines("dashboard open")
    return int(urlsplit(entry["url"]).port or 0)


class Events:
    """A stream of events, read by a thread that may wait for them."""

    def __init__(self, port: int, query: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)
        self._connection.request("GET", f"/events{query}")
        self._response = self._connection.getresponse()
        assert self._response.status == 200

    def next(self, kind: str) -> Any:
        give_up = time.monotonic() + WITHIN
        while time.monotonic() < give_up:
            line = self._response.readline()
            assert line, "the stream has ended"
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
        kinds = {kind for kind, _, _ in events.next("changed")}
        assert kinds == {"daemon", "simulator", "agent", "history"}
        seat = HubClient.connect().attach(agents[0])
        seat.reset(5)
        events.until("agent", "state", "playing")
        seat.step(np.full(len(seat.interface.inputs), 0.5, np.float32))
        points = events.next("points")
        assert points[0][1] in {"reset", "step"}
        events.close()
        seat.close()
        assert daemon.end() == 0


def test_the_daemon_ends_in_time_though_a_page_is_open(tmp_path: Path) -> None:
    with (
        UdpSimulator(ArenaWorld(1), port=0) as simulator,
        Daemon(simulator.address, "--dashboard", "127.0.0.1:0", directory=tmp_path) as daemon,
    ):
        events = Events(port_of(daemon))
        events.next("changed")
        with socket.create_connection(("127.0.0.1", port_of(daemon))) as unread:
            unread.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            asked = time.monotonic()
            assert daemon.end(signal.SIGTERM) == 0
            assert time.monotonic() - asked < 3.0
        events.close()


def test_what_the_daemon_warned_of_stands_there(tmp_path: Path) -> None:
    with (
        UdpSimulator(ArenaWorld(1), port=0) as simulator,
        Daemon(simulator.address, "--dashboard", "127.0.0.1:0", directory=tmp_path) as daemon,
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(default_hub()))
            stranger.sendall(b"\x04\x00\x00\x00abcd")
            stranger.recv(100)
        events = Events(port_of(daemon))
        events.until("warning", "event", "a client was dismissed")
        events.close()
        assert daemon.end() == 0


def test_a_token_is_asked_for_where_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    options = ("--dashboard", "0.0.0.0:0", "--dashboard-token", str(file))
    with (
        UdpSimulator(ArenaWorld(1), port=0) as simulator,
        Daemon(simulator.address, *options, directory=tmp_path) as daemon,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port_of(daemon), timeout=WITHIN)
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 200)):
            connection.request("GET", "/", headers=headers)
            response = connection.getresponse()
            response.read()
            assert response.status == status
        connection.close()
        assert daemon.end() == 0
        assert TOKEN not in daemon.log.read_text()


@pytest.mark.parametrize(
    "options, told",
    [
        (("--dashboard", "0.0.0.0:0"), "no token is asked for"),
        (("--dashboard", "127.0.0.1:0", "--dashboard-token", "/nowhere"), "cannot be read"),
        (
            ("--dashboard", "127.0.0.1:0", "--dashboard-host", "https://lab.example"),
            "write lab.example alone",
        ),
    ],
)
def test_what_cannot_work_ends_the_daemon_before_it_begins(options: tuple[str, ...], told: str) -> None:
    done = run_program("connect", *options)
    assert done.returncode == 78
    assert told in done.stderr
    assert "Hint:" in done.stderr


@pytest.mark.parametrize("option", ["--dashboard-token", "--dashboard-host"])
def test_what_is_said_of_a_dashboard_that_nobody_asked_for_is_told(option: str, tmp_path: Path) -> None:
    key = option.removeprefix("--").replace("-", "_")
    said = '["lab.example"]' if key == "dashboard_host" else '"lab.example"'
    file = tmp_path / "bridge.toml"
    file.write_text(f"[daemon]\n{key} = {said}\n[[simulator]]\naddress = '127.0.0.1:45454'\n")
    for code, words in (
        (2, ("connect", option, "lab.example")),
        (78, ("connect", "--config", str(file))),
        (78, ("config", "show", "--config", str(file))),
    ):
        done = run_program(*words)
        assert f"{option} was given, but no dashboard" in done.stderr
        assert "--dashboard [HOST:]PORT" in done.stderr
        assert done.returncode == code


def test_an_address_in_use_is_told_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_program("connect", "--dashboard", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 78
    assert "cannot listen" in done.stderr
    assert "port 0" in done.stderr
