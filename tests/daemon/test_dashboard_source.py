"""What a page that looks on learns of the daemon: how it stands, what it warned of, and what happens to an agent."""

from __future__ import annotations

import pytest

from ospbridge.daemon import dashboard_source as bounds
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.dashboard_source import DashboardSource
from ospbridge.daemon.overlook import Overlook
from ospbridge.dashboard.source import Source
from ospbridge.errors import AgentNotFound, SimulatorNotFound
from ospbridge.hub.replies import Kind
from ospbridge.observe.recent import Recent
from tests.daemon.stage import FakeSession, alone, conductor_of, play


def looking_at(conductor: Conductor) -> DashboardSource:
    return DashboardSource(Overlook([conductor], [], []), Recent())


def as_the_dashboard_wants_it(source: DashboardSource) -> Source:
    """mypy sees whether it fits: neither room may import the other."""
    return source


@pytest.mark.trio
async def test_an_agent_is_watched_from_now_on(session: FakeSession) -> None:
    conductor, a = await alone(session)
    with looking_at(conductor).watching("", "a") as watching:
        assert [name for name, _, _ in watching.description.outputs] == ["/out"]
        await play(conductor, a, 0.5)
        await play(conductor, a, 0.25)
        found = await watching.moments()
        assert [(m.kind, m.step) for m in found.moments] == [(Kind.STEP, 1), (Kind.STEP, 2)]
        await play(conductor, a, 0.25)
        assert [m.step for m in (await watching.moments()).moments] == [3]
    assert conductor.observers.channels == {}


@pytest.mark.trio
async def test_who_looks_rarely_is_told_the_latest_only(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_AT_ONCE", 3)
    conductor, a = await alone(session)
    with looking_at(conductor).watching("", "a") as watching:
        for _ in range(10):
            await play(conductor, a, 0.5)
        found = await watching.moments()
    assert [m.step for m in found.moments] == [8, 9, 10]
    assert found.dropped == 7


@pytest.mark.trio
async def test_what_is_not_there_is_said(session: FakeSession) -> None:
    source = looking_at(conductor_of(session))
    with pytest.raises(AgentNotFound), source.watching("", "nobody"):
        pass
    with pytest.raises(SimulatorNotFound), source.watching("elsewhere", "a"):
        pass
