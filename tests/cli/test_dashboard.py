"""``ospbridge connect --dashboard``: a page of a whole daemon, that neither delays it nor outlives it."""

from __future__ import annotations

import signal
import socket
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from ospbridge.envs.hub import AgentHandle
from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import invoke
from tests.daemon.running import Daemon
from tests.dashboard.visitors import ask, listening_to

pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")

pytestmark = pytest.mark.loopback

TOKEN = "a-token-of-some-length"


def port_of(daemon: Daemon, event: str = "dashboard open") -> int:
    (entry,) = daemon.lines(event)
    return int(urlsplit(entry["url"]).port or 0)


@pytest.mark.trio
async def test_it_shows_the_daemon_and_the_moments_of_an_agent(tmp_path: Path) -> None:
    with (
        UdpSimulator(ArenaWorld(2), port=0) as simulator,
        Daemon(simulator.address, "--dashboard", "127.0.0.1:0", directory=tmp_path) as daemon,
    ):
        agents = [agent.name for agent in daemon.status().agents]
        async with listening_to(port_of(daemon), f"?agent={agents[0]}") as events:
            kinds = {kind for kind, _, _ in await events.next("changed")}
            assert kinds == {"daemon", "simulator", "agent", "history"}
            seat = AgentHandle.attach(HubClient.connect(), agents[0])
            seat.reset(5)
            while (await events.part("agent"))["state"] != "playing":
                pass
            seat.step(np.full(len(seat.interface.inputs), 0.5, np.float32))
            assert (await events.next("points"))[0][1] in {"reset", "step"}
            seat.close()
            # What the daemon warned of stands there.
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(default_hub()))
                stranger.sendall(b"\x04\x00\x00\x00abcd")
                stranger.recv(100)
            while (await events.part("warning"))["event"] != "a client was dismissed":
                pass
            # It ends though pages are open that read nothing.
            assert daemon.end(signal.SIGTERM) == 0


@pytest.mark.trio
async def test_a_token_is_asked_for_where_one_is_named_and_metrics_need_none(tmp_path: Path) -> None:
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
        assert (await ask(port)).status == 401
        assert (await ask(port, Authorization=f"Bearer {TOKEN}")).status == 200
        if measured:
            assert (await ask(port_of(daemon, "metrics open"), "/metrics")).status == 200
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
