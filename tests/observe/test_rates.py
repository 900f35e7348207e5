"""Counters over time: rates, quantiles and bars."""

from __future__ import annotations

from math import inf, nan

import pytest

from ospbridge.observe.rates import Window, quantile, sparkline


def looked(*counts: float) -> Window:
    window = Window()
    for at, count in enumerate(counts):
        window.look(float(at), [count])
    return window


def test_a_counter_that_falls_begins_anew() -> None:
    assert looked(100, 200, 3).rate(10.0) is None
    assert looked(100, 200, 3, 5).rate(10.0) == 2.0


@pytest.mark.parametrize(
    "counts, share, value",
    [
        ([0, 10, 0, 0], 0.5, 1.5),
        ([0, 10, 0, 0], 1.0, 2.0),
        ([10, 0, 10, 0], 0.5, 1.0),
        ([10, 0, 10, 0], 0.75, 3.0),
        ([0, 0, 0, 7], 0.5, 4.0),
        ([0, 0, 0, 0], 0.5, None),
    ],
)
def test_a_quantile_is_read_off_between_the_bounds(
    counts: list[float], share: float, value: float | None
) -> None:
    assert quantile(share, counts, [1.0, 2.0, 4.0]) == value


@pytest.mark.parametrize(
    "values, width, bars",
    [
        ([], 3, ""),
        ([3.0, 3.0], 3, "▁▁"),
        ([0.0, 7.0, 3.0], 3, "▁█▄"),
        ([nan, inf, 0.0, 1.0], 4, "▁█"),
        ([9.0, 0.0, 1.0, 0.0], 3, "▁█▁"),
    ],
)
def test_bars_stand_between_the_least_and_the_largest_of_the_latest(
    values: list[float], width: int, bars: str
) -> None:
    assert sparkline(values, width) == bars
