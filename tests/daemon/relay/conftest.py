"""What relays are tested with: short pauses, and two agents to observe."""

from __future__ import annotations

from pathlib import Path

import pytest

from ospbridge.daemon.conductor import Conductor
from tests.daemon.relay.observing import Feed
from tests.daemon.stage import FakeSession, conductor_of

PAUSES = {
    "rllink.connecting.RECYCLING": 0.02,
    "rllink.connecting.LONGEST_PAUSE": 0.1,
    "rllink.connecting.REFUSED_AGAIN": 0.02,
    "rllink.connecting.LONGEST_REFUSED": 0.1,
    "daemon.relay.driver.UNFIT": 0.05,
    "daemon.relay.driver.RECOVER": 0.01,
    "daemon.relay.uploader.LOOK_AGAIN": 0.02,
    "daemon.relay.uploader.LINGER": 0.01,
    "daemon.relay.learner.PAUSE": 0.01,
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of ours needs no pause between two connections, and tests none for more steps."""
    for name, seconds in PAUSES.items():
        monkeypatch.setattr(f"ospbridge.{name}", seconds)


@pytest.fixture
def conductor() -> Conductor:
    """Two agents; an episode of "a" ends with its fifth step."""
    session = FakeSession("a", "b")
    session.ending = {"a": 5}
    return conductor_of(session)


@pytest.fixture
def feed(conductor: Conductor, tmp_path: Path) -> Feed:
    return Feed(conductor, tmp_path)
