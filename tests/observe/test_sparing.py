"""What happens again and again is said rarely, and each kind of it for itself."""

from __future__ import annotations

import pytest

from ospbridge.observe import sparing
from ospbridge.observe.sparing import MOST_KEPT, SAID_AGAIN_AFTER, SparingEach


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(sparing, "monotonic", lambda: now[0])
    return now


def test_each_kind_of_trouble_is_said_at_once_and_again_after_a_while(clock: list[float]) -> None:
    each = SparingEach()
    assert [each.due("one"), each.due("one"), each.due("other"), each.due("one")] == [
        True,
        False,
        True,
        False,
    ]
    clock[0] += SAID_AGAIN_AFTER
    assert [each.due("one"), each.due("one"), each.due("other")] == [True, False, True]


def test_of_very_many_kinds_the_oldest_are_forgotten(clock: list[float]) -> None:
    each = SparingEach()
    assert all(each.due(number) for number in range(MOST_KEPT + 1))
    assert not each.due(MOST_KEPT)
    assert not each.due(1)
    assert each.due(0)
    assert len(each._next) == MOST_KEPT
