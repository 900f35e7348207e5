from __future__ import annotations

import time

import numpy as np
import pytest

from ospbridge.bench.figures import MOMENT, QUANTITIES, STRETCH, Run, timed


def test_a_run_has_percentiles_in_microseconds_its_rate_and_the_processor_time_of_a_step() -> None:
    run = Run.of(np.array([1e-6] * 85 + [11e-6] * 13 + [51e-6, 51e-6]), 400e-6)
    assert run.p50 == pytest.approx(1.0)
    assert run.p90 == pytest.approx(11.0)
    assert run.p99 == pytest.approx(51.0)
    assert run.steps_per_second == pytest.approx(100 / 330e-6)
    assert run.processor == pytest.approx(4.0)


def test_a_run_has_every_quantity() -> None:
    assert set(Run.of(np.array([1e-6, 2e-6])).values()) >= {quantity.key for quantity in QUANTITIES}


def test_what_was_found_in_quiet_is_what_it_is_without_a_neighbour() -> None:
    steps = np.full(3 * STRETCH, 20e-6)
    # All of the second stretch is quiet, but for its own work behind each tenth step.
    steps[STRETCH : 2 * STRETCH] = 10e-6
    steps[STRETCH : 2 * STRETCH : 10] = 40e-6
    found = Run.of(steps).values()
    assert found["p50_us"] == pytest.approx(20.0)
    assert found["quiet_p50_us"] == pytest.approx(10.0)
    assert found["quiet_steps_per_second"] == pytest.approx(1e6 / 13, rel=1e-3)


@pytest.mark.parametrize("steps", [1, 2, MOMENT - 1, MOMENT, MOMENT + 1, STRETCH - 1, STRETCH + 1])
def test_however_few_steps_there_are_all_of_them_may_be_quiet(steps: int) -> None:
    run = Run.of(np.full(steps, 10e-6))
    assert run.quiet_p50 == pytest.approx(run.p50)
    assert run.quiet_steps_per_second == pytest.approx(run.steps_per_second)


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
