"""What a daemon's hub costs environments in lock-step, as ratios measured in one run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ospbridge.bench.exercise import Exercise
from ospbridge.bench.hub import ASLEEP, CONDUCTOR, ONE_CLIENT, PROCESSES, hub_row, hub_runs, measure_hub
from ospbridge.bench.processes import Program, ProgramFailed
from ospbridge.bench.stage import Stage
from ospbridge.bench.stepping import ATTACHED, decode_run
from tests.bench.patience import best_until

pytestmark = pytest.mark.loopback

PART = {PROCESSES: 0.1, ONE_CLIENT: 0.3}
"""Of the steps a second that the conductor of 16 agents makes without its hub."""
RATE = "steps_per_second"


@pytest.mark.timed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the daemon needs a core beside the clients'")
@pytest.mark.timeout(180)
def test_16_environments_keep_a_part_of_the_conductor_s_steps() -> None:
    conductor = hub_row(16, CONDUCTOR)
    broken = best_until(
        hub_runs([16], Exercise(steps=100)),
        lambda best: all(
            best[hub_row(16, name)][RATE] >= part * best[conductor][RATE] for name, part in PART.items()
        ),
    )
    assert not broken, broken


@pytest.mark.timeout(120)
def test_floors_conductor_processes_and_one_client_are_measured_for_each_number_of_agents() -> None:
    report = measure_hub([1, 3], Exercise(2, 3, 10), runs=1)
    assert [row.name for row in report.rows] == [
        "blocking floor, 1 agent",
        "spinning floor, 1 agent",
        "conductor, 1 agent",
        "conductor, sleeping simulator, 1 agent",
        "processes, 1 agent",
        "blocking floor, 3 agents",
        "spinning floor, 3 agents",
        "conductor, 3 agents",
        "conductor, sleeping simulator, 3 agents",
        "processes, 3 agents",
        "one client, 3 agents",
    ]
    conductor, processes = (report.row(hub_row(3, name)) for name in (CONDUCTOR, PROCESSES))
    assert processes.ratios["conductor's steps/s"] == pytest.approx(
        processes.values[RATE] / conductor.values[RATE]
    )
    asleep = report.row(hub_row(3, ASLEEP))
    assert processes.ratios["the same, asleep"] == pytest.approx(processes.values[RATE] / asleep.values[RATE])
    assert "the same, asleep" not in conductor.ratios
    assert processes.values["daemon_us"] > 0.0
    assert "daemon_us" not in conductor.values


def test_processes_step_in_lock_step_as_often_as_they_are_asked() -> None:
    with Stage(inputs=2, outputs=3, agents=2) as stage:
        agents = ("--agent", "agent1", "--agent", "agent2")
        with Program("ospbridge.bench.stepping", "--bridge", stage.hub, *agents) as program:
            assert program.line(30.0) == ATTACHED
            for _ in range(2):
                program.ask("20 5")
                run = decode_run(program.line(30.0))
                assert 0.0 < run.p50 <= run.p90 <= run.p99
                assert run.steps_per_second > 0.0
                assert run.processor > 0.0
        assert program.process.returncode == 0
        # All agents were given back: others may take them.
        with Program("ospbridge.bench.stepping", "--bridge", stage.hub, *agents) as program:
            assert program.line(30.0) == ATTACHED


def test_processes_in_the_midst_of_many_steps_end_with_the_program_that_forked_them() -> None:
    agents = ("--agent", "agent1", "--agent", "agent2")
    with (
        Stage(inputs=2, outputs=3, agents=2) as stage,
        Program("ospbridge.bench.stepping", "--bridge", stage.hub, *agents) as program,
    ):
        assert program.line(30.0) == ATTACHED
        pid = program.process.pid
        forked = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        program.ask("1000000 0")
        time.sleep(0.3)
        program.end()
        # In order: it had not to be killed.
        assert program.process.returncode == 0
    assert len(forked) == 2
    assert not [child for child in forked if Path(f"/proc/{child}").exists()]


def test_a_process_that_fails_is_told_with_its_reason() -> None:
    agents = ("--agent", "agent", "--agent", "nobody")
    with (
        Stage(inputs=2, outputs=3) as stage,
        Program("ospbridge.bench.stepping", "--bridge", stage.hub, *agents, name="they") as program,
        pytest.raises(ProgramFailed, match=r"(?s)they ended \(exit code 1\).*nobody"),
    ):
        program.line(30.0)
