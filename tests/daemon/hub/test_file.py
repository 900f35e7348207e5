"""The hub's socket, removed while the daemon runs: by hand, or with a whole runtime directory."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ospbridge.daemon.hub import server as hub_server
from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from tests.daemon.running import WITHIN, LocalDaemon, in_thread, seat_of, until, values

if TYPE_CHECKING:
    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_server, "LOOK_EVERY", 0.05)


@pytest.mark.parametrize("what", ["the socket", "its directory"])
def test_who_is_attached_plays_on_and_others_come_in_again(what: str, document: UdpSimulator) -> None:
    with LocalDaemon(document.address) as daemon:
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            if what == "the socket":
                default_hub().unlink()
            else:
                shutil.rmtree(default_hub().parent)
            assert not seat.step(values(0.5)).truncated
            other = HubClient.connect(wait=WITHIN).attach("agent2")
            assert not seat.step(values(0.5)).truncated
        in_thread(lambda: other.reset(2))
        other.close()
        (line,) = daemon.lines("the hub's socket was gone, and is there again")
        assert line["hub"] == str(default_hub())
        assert daemon.end() == 0
    assert list(default_hub().parent.glob("hub*")) == []


def test_a_daemon_that_another_one_has_replaced_says_so_and_leaves_its_socket_alone(
    document: UdpSimulator,
) -> None:
    with LocalDaemon(document.address, agents=("agent1",)) as first:
        with first.stopped():
            for path in default_hub().parent.glob("hub*"):
                path.unlink()
            second = LocalDaemon(document.address, agents=("agent2",))
            second.__enter__()
        with closing(second):
            until(lambda: first.lines("the hub's socket is gone"))
            assert first.end() == 0
            (line,) = first.lines("the hub's socket is gone")
            assert f"another daemon listens at {default_hub()}" in line["reason"]
            assert [agent.name for agent in second.status().agents] == ["agent2"]
            assert second.end() == 0
