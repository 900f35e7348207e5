"""The latest warnings: kept as text, few, and without any harm to what is logged."""

from __future__ import annotations

import io
import json

import pytest

from ospbridge.observe import logs
from ospbridge.observe.recent import LONGEST, MOST_FIELDS, Recent


@pytest.fixture
def recent() -> Recent:
    found = Recent(most=3)
    logs.configure(stream=io.StringIO(), recent=found)
    return found


def test_warnings_and_errors_are_kept_and_nothing_below(recent: Recent) -> None:
    log = logs.get("ospbridge.daemon")
    log.info("joined")
    log.warning("slow", seconds=2)
    log.error("lost", reason="gone")
    slow, lost = recent.warnings
    assert (slow.number, slow.level, slow.event) == (1, "warning", "slow")
    assert dict(slow.fields) == {"logger_name": "ospbridge.daemon", "seconds": "2"}
    assert slow.time.endswith("Z")
    assert (lost.number, lost.level, dict(lost.fields)["reason"]) == (2, "error", "gone")


def test_only_the_latest_are_kept_and_go_on_counting(recent: Recent) -> None:
    for number in range(5):
        logs.get("x").warning("again", at=number)
    assert [warned.number for warned in recent.warnings] == [3, 4, 5]


def test_what_is_logged_is_written_as_before() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream, recent=Recent())
    logs.get("x").warning("slow", seconds=2)
    written = json.loads(stream.getvalue())
    assert (written["event"], written["seconds"]) == ("slow", 2)


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_whatever_is_logged_becomes_short_text(recent: Recent) -> None:
    recent(
        None,
        "warning",
        {
            "event": "x" * 10_000,
            "awkward": Awkward(),
            "surrogate": "\ud800",
            **{f"more {at}": at for at in range(MOST_FIELDS)},
        },
    )
    (warned,) = recent.warnings
    assert len(warned.event) == LONGEST
    assert len(warned.fields) == MOST_FIELDS
    assert dict(warned.fields)["awkward"] == "a Awkward"
    assert dict(warned.fields)["surrogate"] == "\\ud800"
