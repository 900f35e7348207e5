"""Simulators to join, in either profile, and a session of one that exists only in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from ospbridge.daemon import launching, supervisor
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.stage import FakeSession, Logs


@pytest.fixture
def simulator(profile: Profile) -> Iterator[UdpSimulator]:
    """Two agents with two inputs and three outputs each."""
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=profile) as running:
        yield running


@pytest.fixture
def document() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as running:
        yield running


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as entries:
        yield Logs(entries)


@pytest.fixture
def session() -> FakeSession:
    """Of two agents, in memory."""
    return FakeSession("a", "b")


@pytest.fixture(params=[True, False], ids=["leading", "never leading"])
def spin(request: pytest.FixtureRequest) -> bool:
    """Whether a task of the hub may lead; all must be the same where none does."""
    return bool(request.param)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a simulator or for its agents, or sees to a session while nobody plays, looks very often."""
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE", "LONGEST_PAUSE_FOR_AGENTS"):
        monkeypatch.setattr(supervisor, pause, 0.02)
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(launching, "LOOK_EVERY", 0.02)
