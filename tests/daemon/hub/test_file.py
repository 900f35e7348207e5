"""The hub's socket, removed while the daemon runs: by hand, or with a whole runtime directory."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.places import check_hub_sockets
from ospbridge.session.hub_client import HubClient, default_hub
from tests.daemon.running import Daemon, in_thread, seat_of, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback
WITHIN = 10.0


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.parametrize("what", ["the socket", "its directory"])
def test_who_is_attached_plays_on_and_others_come_in_again(
    what: str, document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, directory=tmp_path) as daemon:
        seat = seat_of("agent1")
        seat.reset(1)
        if what == "the socket":
            default_hub().unlink()
        else:
            shutil.rmtree(default_hub().parent)
        assert not seat.step(values(0.5)).truncated
        other = HubClient.connect(wait=WITHIN).attach("agent2")
        assert not seat.step(values(0.5)).truncated
        seat.close()
        in_thread(lambda: other.reset(2))
        other.close()
        (line,) = daemon.lines("the hub's socket was gone, and is there again")
        assert line["hub"] == str(default_hub())
        assert daemon.end() == 0
    assert list(default_hub().parent.glob("hub*")) == []


def test_doctor_says_that_a_daemon_runs_whose_socket_is_gone(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, directory=tmp_path) as daemon:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        default_hub().unlink()
        (found,) = check_hub_sockets()
        assert found.state is State.PROBLEM
        assert f"somebody removed its socket {default_hub()}" in found.detail
        os.kill(daemon.process.pid, signal.SIGCONT)
        until(default_hub().exists)
        (found,) = check_hub_sockets()
        assert found.state is State.WELL


def test_a_daemon_that_another_one_has_replaced_says_so_and_leaves_its_socket_alone(
    document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, "--agent", "agent1", directory=tmp_path) as first:
        os.kill(first.process.pid, signal.SIGSTOP)
        for path in default_hub().parent.glob("hub*"):
            path.unlink()
        with Daemon(document.address, "--agent", "agent2", directory=tmp_path) as second:
            os.kill(first.process.pid, signal.SIGCONT)
            until(lambda: first.lines("the hub's socket is gone"))
            assert first.end() == 0
            (line,) = first.lines("the hub's socket is gone")
            assert f"another daemon listens at {default_hub()}" in line["reason"]
            assert [agent.name for agent in second.status().agents] == ["agent2"]
            assert second.end() == 0
