from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import SessionLost
from ospbridge.session.blocking import BlockingSession

if TYPE_CHECKING:
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


def test_free_agents_are_told_of_too(arena: Served) -> None:
    assert "all agents were free before" in arena.run("restart-communication", "--yes").stdout
