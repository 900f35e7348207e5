"""Pauses grow up to a limit, reasons are said at once and then ever more rarely, and nobody waits for ever unasked."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ospbridge.daemon.patience import REASONS, Patience
from ospbridge.errors import OspBridgeError, SimulatorNotFound

pytestmark = pytest.mark.trio
ABSENT = SimulatorNotFound("nothing listens")


class Said:
    """What was said, and after how many seconds."""

    def __init__(self) -> None:
        self.all: list[tuple[str, float]] = []

    def __call__(self, error: OspBridgeError, waited: float) -> None:
        self.all.append((error.message, waited))


async def test_pauses_double_up_to_the_longest(autojump_clock: trio.testing.MockClock) -> None:
    patience = Patience(None, first=1.0, longest=5.0, say=Said())
    pauses = []
    for _ in range(5):
        before = trio.current_time()
        await patience.after(ABSENT)
        pauses.append(trio.current_time() - before)
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 5.0, 5.0])


async def test_one_reason_is_said_at_once_and_then_ever_more_rarely(
    autojump_clock: trio.testing.MockClock,
) -> None:
    said = Said()
    patience = Patience(None, first=1.0, longest=1.0, say=said)
    for _ in range(500):
        await patience.after(ABSENT)
    assert said.all == [
        ("nothing listens", 0.0),
        ("nothing listens", 60.0),
        ("nothing listens", 180.0),
        (
            "nothing listens",
            420.0,
        ),
    ]


async def test_reasons_that_differ_each_time_are_not_all_said(
    autojump_clock: trio.testing.MockClock,
) -> None:
    said = Said()
    patience = Patience(None, first=1.0, longest=1.0, say=said)
    for number in range(50):
        await patience.after(SimulatorNotFound(f"silent for {number} s"))
    assert len(said.all) == REASONS


async def test_the_last_pause_ends_with_the_time_to_wait(autojump_clock: trio.testing.MockClock) -> None:
    patience = Patience(2.5, first=1.0, longest=10.0, say=Said())
    began = trio.current_time()
    await patience.after(ABSENT)
    await patience.after(ABSENT)
    assert trio.current_time() - began == pytest.approx(2.5)
    with pytest.raises(SimulatorNotFound, match=r"nothing listens, still so after 2\.5 s"):
        await patience.after(SimulatorNotFound("nothing listens"))


async def test_who_is_not_to_wait_is_told_why_at_once(autojump_clock: trio.testing.MockClock) -> None:
    said = Said()
    with pytest.raises(SimulatorNotFound, match="nothing listens"):
        await Patience(0.0, first=1.0, longest=1.0, say=said).after(ABSENT)
    assert said.all == []
