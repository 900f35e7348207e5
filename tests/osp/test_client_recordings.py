"""The client machine, driven by recordings of a real server, sends what the recorded client sent.

Where it does not, the difference stands in ``traces/client_differences.json`` with the deviation (D) or fault (F) of
real servers that the recorded client provoked and ours must not.
"""

from __future__ import annotations

import difflib
import json
import re

import pytest

from tests.osp.pair import RECORDINGS
from tests.osp.replaying import Comparison, connections

EXPECTED = json.loads((RECORDINGS / "client_differences.json").read_text())


def differences(comparison: Comparison) -> list[dict[str, object]]:
    matcher = difflib.SequenceMatcher(None, comparison.recorded, comparison.ours, autojunk=False)
    return [
        {"at": i1, "recorded": comparison.recorded[i1:i2], "ours": comparison.ours[j1:j2]}
        for operation, i1, i2, j1, j2 in matcher.get_opcodes()
        if operation != "equal"
    ]


@pytest.mark.parametrize("name", EXPECTED)
def test_ours_sends_what_the_recorded_client_sent(name: str) -> None:
    allowed = {row["connection"]: row["differences"] for row in EXPECTED[name]}
    found = {}
    for number, comparison in enumerate(connections(RECORDINGS / f"{name}.jsonl")):
        if rows := differences(comparison):
            found[number] = rows
    assert found == allowed


def test_every_difference_is_justified_by_a_deviation_or_fault() -> None:
    for rows in EXPECTED.values():
        for row in rows:
            assert re.match(r"[DF]\d+", row["because"]), row


def test_the_long_recording_of_a_real_world_is_followed_without_a_difference() -> None:
    sent = sum(len(comparison.ours) for comparison in connections(RECORDINGS / "o01_ode_arena.jsonl"))
    assert sent > 2000
    assert EXPECTED["o01_ode_arena"] == []
