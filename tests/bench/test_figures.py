from __future__ import annotations

import numpy as np
import pytest

from ospbridge.bench.figures import Run, combine


def test_a_run_has_percentiles_in_microseconds_and_its_rate() -> None:
    run = Run.of(np.array([1e-6] * 98 + [51e-6, 51e-6]))
    assert run.p50 == pytest.approx(1.0)
    assert run.p99 == pytest.approx(51.0)
    assert run.steps_per_second == pytest.approx(100 / 200e-6)


def test_ratios_are_taken_within_a_run_before_their_median() -> None:
    # The second run was on a machine three times as slow: the ratio does not care.
    runs = [
        {"floor": Run(10.0, 20.0, 1.0), "subject": Run(20.0, 40.0, 0.5)},
        {"floor": Run(30.0, 60.0, 0.3), "subject": Run(60.0, 90.0, 0.2)},
        {"floor": Run(10.0, 20.0, 1.0), "subject": Run(50.0, 70.0, 0.1)},
    ]
    floor, subject = combine(runs, ["floor"], {})
    assert floor.ratios == {"floor": 1.0}
    assert subject.ratios == {"floor": 2.0}
    assert (subject.p50, subject.p99, subject.steps_per_second) == (50.0, 70.0, 0.2)


def test_a_difference_is_taken_within_a_run_and_to_a_subject_that_was_measured() -> None:
    runs = [
        {"plain": Run(10.0, 20.0, 1.0), "more": Run(12.0, 20.0, 1.0)},
        {"plain": Run(90.0, 90.0, 1.0), "more": Run(93.0, 93.0, 1.0)},
        {"plain": Run(10.0, 20.0, 1.0), "more": Run(90.0, 90.0, 1.0)},
    ]
    plain, more = combine(runs, [], {"more": "plain", "plain": "nobody"})
    assert more.over == {"plain": 3.0}
    assert plain.over == {}


def test_json_has_names_and_units() -> None:
    (figures,) = combine([{"floor": Run(10.123456, 20.0, 12345.678)}], ["floor"], {})
    assert figures.as_object() == {
        "name": "floor",
        "p50_us": 10.12,
        "p99_us": 20.0,
        "steps_per_second": 12345.7,
        "ratios": {"floor": 1.0},
        "over_us": {},
    }
