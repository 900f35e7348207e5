"""What the tests of recordings and spools rely on."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["in memory too", "on disk only"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where entries of spools are that have been written."""
    if request.param == "on disk only":
        monkeypatch.setattr("ospbridge.record.spool_recent.LARGEST", -1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spools wait neither long for more of what is put, nor for a disk that refuses."""
    monkeypatch.setattr("ospbridge.record.spool.GATHER", 0.005)
    monkeypatch.setattr("ospbridge.record.spool.GATHER_MANY", 0.01)
    monkeypatch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.01)
