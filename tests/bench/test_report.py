from __future__ import annotations

import math

import pytest

from ospbridge.bench.report import Against, Panel, Quantity, Report, Row, combine

TIMES = (Quantity("p50_us", "P50 us"), Quantity("steps_per_second", "STEPS/s", digits=0))


def test_ratios_are_taken_within_a_run_before_their_median() -> None:
    # The second run was on a machine three times as slow: the ratio does not care.
    runs = [
        {"floor": {"p50_us": 10.0}, "subject": {"p50_us": 20.0}},
        {"floor": {"p50_us": 30.0}, "subject": {"p50_us": 60.0}},
        {"floor": {"p50_us": 10.0}, "subject": {"p50_us": 50.0}},
    ]
    floor, subject = combine(runs, [Against("floor", "p50_us", dict.fromkeys(runs[0], "floor"))])
    assert floor.ratios == {"floor": 1.0}
    assert subject == Row("subject", {"p50_us": 50.0}, {"floor": 2.0})


def test_each_row_may_be_compared_with_another_one() -> None:
    runs = [{"one": {"n": 2.0}, "ten": {"n": 10.0}, "ten more": {"n": 15.0}, "alone": {}}]
    rows = combine(
        runs,
        [
            Against("one", "n", {"ten": "one", "alone": "one"}),
            Against("fewer", "n", {"ten more": "ten", "ten": "not measured"}),
        ],
    )
    assert [row.ratios for row in rows] == [{}, {"one": 5.0}, {"fewer": 1.5}, {}]


def test_a_difference_is_taken_within_a_run_and_to_a_subject_that_was_measured() -> None:
    runs = [
        {"plain": {"p50_us": 10.0}, "more": {"p50_us": 12.0}},
        {"plain": {"p50_us": 90.0}, "more": {"p50_us": 93.0}},
        {"plain": {"p50_us": 10.0}, "more": {"p50_us": 90.0}},
    ]
    plain, more = combine(runs, over={"more": "plain", "plain": "nobody"})
    assert more.over == {"plain": 3.0}
    assert plain.over == {}


def report(*rows: Row, over: str = "") -> Report:
    return Report("step", "A step", {"steps": 10}, TIMES, rows, (Panel("times", ("p50_us",)),), over, cores=2)


def test_json_has_names_and_units_and_null_where_nothing_was_measured() -> None:
    rows = (Row("floor", {"p50_us": 10.123456}, {"floor": 1.0}), Row("x", {"steps_per_second": math.inf}))
    assert report(*rows).as_object() == {
        "measured": "step",
        "title": "A step",
        "steps": 10,
        "cores": 2,
        "subjects": [
            {"name": "floor", "p50_us": 10.12, "steps_per_second": None, "ratios": {"floor": 1.0}},
            {"name": "x", "p50_us": None, "steps_per_second": None, "ratios": {}},
        ],
    }


def test_json_has_differences_where_there_may_be_some() -> None:
    told = report(Row("more", {}, {}, {"plain": 1.234}), Row("plain", {}), over="us").as_object()
    assert [each["over_us"] for each in told["subjects"]] == [{"plain": 1.23}, {}]


def test_what_rows_are_compared_with_comes_once_and_in_order() -> None:
    made = report(Row("a", {}, {"x": 1.0}), Row("b", {}, {"y": 2.0, "x": 1.0}, {"a": 1.0}))
    assert made.ratios == ("x", "y")
    assert made.plain == ("a",)
    assert made.row("b").ratios["y"] == pytest.approx(2.0)
