from __future__ import annotations

from pathlib import Path

import pytest

from ospbridge.errors import SessionLost
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.conftest import Served

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
