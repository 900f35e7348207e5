from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import SessionLost
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.conftest import Served

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


def test_every_client_is_disconnected_and_the_agents_are_free(arena: Served) -> None:
    with BlockingSession.connect(arena.address) as other:
        other.register("robot1")
        result = arena.run("restart-communication", "--yes")
        assert "freed: robot1" in result.stdout
        arena.assert_all_free()
        with pytest.raises(SessionLost):
            other.step({"robot1": [0.0, 0.0]})


def test_nobody_to_ask_is_a_usage_error_and_disconnects_nobody(arena: Served) -> None:
    with BlockingSession.connect(arena.address) as other:
        other.register("robot1")
        result = arena.run("restart-communication", exit_code=2)
        assert "--yes" in result.stderr
        assert not arena.json("agents")[0]["available"]


def lone(profile: Profile) -> UdpSimulator:
    """Takes one client only."""
    return UdpSimulator(ArenaWorld(2), port=0, profile=profile, max_handlers=1)


def died(server: UdpSimulator, *agents: str) -> None:
    session = BlockingSession.connect(server.address)
    session.register(*agents)
    session.disown()


def leases() -> list[Path]:
    return list((runtime_directory() / "leases").glob("*.lease"))


@pytest.mark.parametrize(
    "profile, agents", [(DOCUMENT, ()), (NERD, ("robot1",))], ids=["without agents", "with an agent"]
)
def test_a_server_that_waits_for_a_dead_client_of_ours_alone_is_restarted_too(
    profile: Profile, agents: tuple[str, ...]
) -> None:
    with lone(profile) as server:
        died(server, *agents)
        result = Served(server).run("restart-communication", "--yes")
        assert ("freed: robot1" if agents else "all agents were free before") in result.stdout
        Served(server).assert_all_free()
        assert leases() == []


def test_where_others_can_join_the_dead_are_disconnected_with_them_and_nothing_is_said_for_them(
    arena: Served,
) -> None:
    died(arena.simulator, "robot1")
    told = len(leases())
    assert "freed: robot1" in arena.run("restart-communication", "--yes").stdout
    assert told == len(leases()) == 1


def test_a_lease_that_nobody_hears_is_named_with_its_process_and_its_age() -> None:
    with lone(DOCUMENT) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        died(server, "robot1")
        silent.bind(("127.0.0.1", 0))
        (file,) = leases()
        told = json.loads(file.read_text())
        file.write_text(json.dumps(told | {"handler_port": silent.getsockname()[1], "pid": 4711}))
        os.utime(file, (time.time() - 300, time.time() - 300))
        result = Served(server).run("restart-communication", "--yes", "--timeout", "0.5", exit_code=69)
    assert "process 4711 with robot1 that ended without a goodbye (lease of 5 min ago)" in result.stderr
    assert "restart the simulator" in result.stderr


def test_who_only_looks_at_a_locked_server_is_told_what_frees_it_and_that_does() -> None:
    with lone(DOCUMENT) as server:
        died(server)
        result = Served(server).run("agents", "--timeout", "0.4", exit_code=69)
        assert "a session of this process that ended without a goodbye (lease of" in result.stderr
        assert "`ospbridge restart-communication` says goodbye in its name" in result.stderr
        assert len(leases()) == 1
        Served(server).run("restart-communication", "--yes")
        assert "robot1" in Served(server).run("agents").stdout
