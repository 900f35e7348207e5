"""`ospbridge bench` measures what it says, and reports it as a table and as JSON. With few steps, and no times."""

from __future__ import annotations

import json
from functools import partial

import pytest

from ospbridge.bench import relaying
from ospbridge.bench.exercise import Exercise
from ospbridge.bench.relaying import CART_POLE, DRIVEN, RAYS, WHILE_IT_SLEEPS
from ospbridge.bench.step import measure_steps
from ospbridge.bench.subjects import (
    BLOCKING_FLOOR,
    DIRECT,
    FLOORS,
    IN_EPISODES,
    RELAYED,
    SPINNING_FLOOR,
    WITH_SCENARIO,
)
from tests.cli.programs import invoke

pytestmark = [
    pytest.mark.loopback,
    # On a busy machine a daemon may need some seconds to start.
    pytest.mark.filterwarnings("ignore:.*still waiting:UserWarning"),
]


run = partial(invoke, "bench")


def test_relay_reports_what_relaying_and_driving_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "WARM_UP", 100)
    monkeypatch.setattr(relaying, "STARTS", 1)
    found = run("relay", "--steps", "110", "--batches", "1", "--runs", "1", "--json")
    relayed, driven = json.loads(found.stdout)["reports"]
    assert (relayed["measured"], driven["measured"]) == ("relay", "drive")
    rows = {each["name"]: each for each in relayed["subjects"]}
    assert list(rows) == [IN_EPISODES, RELAYED, *WHILE_IT_SLEEPS.values()]
    assert rows[IN_EPISODES]["ratios"] == {}
    wanted = rows[RELAYED]["p50_us"] / rows[IN_EPISODES]["p50_us"]
    assert rows[RELAYED]["ratios"]["unrelayed"] == pytest.approx(wanted, rel=0.01, abs=0.001)
    assert [each["name"] for each in driven["subjects"]] == [SPINNING_FLOOR, DRIVEN, CART_POLE]
    assert RAYS not in [each["name"] for each in driven["subjects"]]


def test_floors_are_always_measured_and_come_first_with_what_a_subject_adds_to() -> None:
    rows = measure_steps(Exercise(steps=20), runs=1, only=[WITH_SCENARIO]).rows
    assert [row.name for row in rows] == [*FLOORS, DIRECT, WITH_SCENARIO]
    plain, scenario = rows[2:]
    assert rows[0].ratios[BLOCKING_FLOOR] == 1.0
    assert scenario.over == {DIRECT: pytest.approx(scenario.values["p50_us"] - plain.values["p50_us"])}
    assert plain.over == {}


def test_a_simulator_that_thinks_is_waited_for() -> None:
    report = measure_steps(Exercise(steps=5), runs=1, think=0.005, only=[BLOCKING_FLOOR])
    assert report.parameters["think"] == 0.005
    assert all(row.values["p50_us"] >= 5000 for row in report.rows)
