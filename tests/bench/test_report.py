"""What runs are made into: figures, ratios within a run, rows, JSON and pictures; and the cores that they have."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from ospbridge.bench.cores import apart
from ospbridge.bench.figures import QUANTITIES, Run, timed
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


def test_a_run_has_percentiles_in_microseconds_its_rate_and_the_processor_time_of_a_step() -> None:
    run = Run.of(np.array([1e-6] * 85 + [11e-6] * 13 + [51e-6, 51e-6]), 400e-6)
    assert (run.p50, run.p90, run.p99) == pytest.approx((1.0, 11.0, 51.0))
    assert run.steps_per_second == pytest.approx(100 / 330e-6)
    assert run.processor == pytest.approx(4.0)
    assert set(run.values()) == {quantity.key for quantity in QUANTITIES}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_what_is_measured_keeps_off_one_core_and_may_use_it_again_afterwards() -> None:
    cores = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    timed(lambda: seen.append(os.sched_getaffinity(0)), 2, 1)
    assert seen == [cores - {max(cores)}] * 3
    with pytest.raises(RuntimeError), apart():
        raise RuntimeError
    assert os.sched_getaffinity(0) == cores


def test_each_report_has_its_panels_with_a_bar_a_row() -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    from ospbridge.bench.drawing import draw_reports
    from ospbridge.plot.looks import Looks, drawing

    rows = (
        Row("floor", {"p50_us": 10.0}, {"floor": 1.0}),
        Row("subject", {"p50_us": 900.0}, {"floor": 90.0}),
    )
    with drawing(Looks()):
        figure = draw_reports([report(*rows), Report("c", "Nothing to draw", {}, TIMES, rows)], Looks())
    (times,) = figure.axes
    assert len(times.patches) == 2
    assert [label.get_text() for label in times.get_yticklabels()] == ["floor", "subject"]
    # The first row stands above.
    assert times.yaxis_inverted()
