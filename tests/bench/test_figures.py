from __future__ import annotations

import time

import numpy as np
import pytest

from ospbridge.bench.figures import QUANTITIES, Run, timed


def test_a_run_has_percentiles_in_microseconds_its_rate_and_the_processor_time_of_a_step() -> None:
    run = Run.of(np.array([1e-6] * 85 + [11e-6] * 13 + [51e-6, 51e-6]), 400e-6)
    assert run.p50 == pytest.approx(1.0)
    assert run.p90 == pytest.approx(11.0)
    assert run.p99 == pytest.approx(51.0)
    assert run.steps_per_second == pytest.approx(100 / 330e-6)
    assert run.processor == pytest.approx(4.0)


def test_a_run_has_every_quantity() -> None:
    assert set(Run.of(np.array([1e-6, 2e-6])).values()) == {quantity.key for quantity in QUANTITIES}


def test_steps_that_warm_up_do_not_count_and_sleep_costs_no_processor_time() -> None:
    taken: list[None] = []

    def step() -> None:
        taken.append(None)
        time.sleep(0.002)

    run = timed(step, 10, 5)
    assert len(taken) == 15
    assert run.p50 >= 2000
    assert run.steps_per_second <= 500
    assert 0.0 <= run.processor < run.p50
