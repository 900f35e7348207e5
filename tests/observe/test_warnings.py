"""Warnings: the latest are kept as text, and what happens again and again is said rarely."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Iterator
from unittest.mock import AsyncMock

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.observe import logs, sparing
from ospbridge.observe.logs import SAYS, take_over
from ospbridge.observe.recent import LONGEST, MOST_FIELDS, Recent
from ospbridge.observe.sparing import MOST_KEPT, SAID_AGAIN_AFTER, SparingEach, SparingMore


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
    assert len(warned.event) <= LONGEST
    assert len(warned.fields) == MOST_FIELDS
    assert dict(warned.fields)["awkward"] == "a Awkward"
    assert dict(warned.fields)["surrogate"] == "\\ud800"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(sparing, "monotonic", lambda: now[0])
    return now


def test_each_kind_of_trouble_is_said_at_once_and_again_after_a_while(clock: list[float]) -> None:
    each = SparingEach()
    for _ in range(2):
        assert [each.due(kind) for kind in ("one", "one", "other", "one")] == [True, False, True, False]
        clock[0] += SAID_AGAIN_AFTER


def test_a_trouble_that_goes_on_is_said_after_ever_longer_pauses_and_another_one_at_once(
    clock: list[float],
) -> None:
    more = SparingMore()
    said = []
    for minute in range(250):
        if more.due("one"):
            said.append(minute)
        assert not more.due("one")
        clock[0] += SAID_AGAIN_AFTER
    assert said == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert [more.due("other"), more.due("other"), more.due("one")] == [True, False, True]


def test_of_very_many_kinds_the_oldest_are_forgotten(clock: list[float]) -> None:
    each = SparingEach()
    assert all(each.due(number) for number in range(MOST_KEPT + 1))
    assert not each.due(MOST_KEPT)
    assert not each.due(1)
    assert each.due(0)
    assert len(each._next) == MOST_KEPT


@pytest.fixture(autouse=True)
def theirs() -> Iterator[logging.Logger]:
    logger = logging.getLogger(SAYS)
    handlers, propagate = logger.handlers[:], logger.propagate
    yield logger
    logger.handlers[:], logger.propagate = handlers, propagate


@pytest.mark.trio
async def test_who_is_out_of_descriptors_says_it_once(
    autojump_clock: trio.testing.MockClock, capfd: pytest.CaptureFixture[str]
) -> None:
    take_over()
    take_over()
    listener = AsyncMock(spec=trio.abc.Listener)
    listener.accept.side_effect = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with capture_logs() as events, trio.move_on_after(1.0):
        await trio.serve_listeners(AsyncMock(), [listener])
    assert listener.accept.await_count > 5
    assert [(event["event"], event["log_level"], event["reason"]) for event in events] == [
        ("cannot accept connections", "warning", "Too many open files")
    ]
    assert capfd.readouterr().err == ""
