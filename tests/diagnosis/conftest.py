"""Probing in a hurry: the servers of these tests are in the same process, and silent for good where they are silent."""

from __future__ import annotations

from typing import Final

import pytest

from ospbridge.diagnosis import conformance, connecting, greeting, line, stage
from ospbridge.diagnosis.line import Line

SILENCE: Final = 0.12
"""A busy machine may take longer now and then: what rests on silence is tried three times."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = (SILENCE, 2 * SILENCE, 10 * SILENCE)
    for module in (connecting, greeting, line, stage):
        monkeypatch.setattr(module, "SILENCE", SILENCE)
    for module in (conformance, connecting):
        monkeypatch.setattr(module, "SETTLING", 0.05)
    monkeypatch.setattr(line, "WAITS", waits)
    monkeypatch.setattr(line, "LEAVING", waits[:1])
    for method, named, value in (
        ("heard", "wait", SILENCE),
        ("ask", "waits", waits),
        ("give_back", "waits", waits),
    ):
        monkeypatch.setitem(getattr(Line, method).__kwdefaults__, named, value)
    monkeypatch.setattr(stage, "UNFIRED", 2 * SILENCE)
    monkeypatch.setattr(stage, "SOON", 3 * SILENCE)
