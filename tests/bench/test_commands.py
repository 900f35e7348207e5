"""`ospbridge bench` measures what it says, and reports it as a table and as JSON. With few steps, and no times."""

from __future__ import annotations

import json
from functools import partial

import pytest

from ospbridge.bench import relaying
from ospbridge.bench.exercise import Exercise
from ospbridge.bench.memory import GROWN
from ospbridge.bench.relaying import CART_POLE, DRIVEN, RAYS, WHILE_IT_SLEEPS
from ospbridge.bench.scale import EACH, PARTS, Part, measure_part, sizes
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


def of(count: int, *names: str) -> list[str]:
    return [f"{name}, {count} {{}}{'s' if count > 1 else ''}" for name in names]


AGENTS = ["conductor", "conductor, sleeping simulator", "processes"]
FLOORS_OF = ["blocking floor", "spinning floor"]


@pytest.mark.parametrize(
    "words, rows",
    [
        ("step --steps 20 --only BlockingSession", [*FLOORS, "BlockingSession"]),
        (
            "fleet --steps 10 --simulators 2 --think 0.002",
            [row.format("simulator") for row in of(2, *FLOORS_OF, "vector environment")],
        ),
        (
            "hub --steps 10 --agents 2",
            [row.format("agent") for row in of(2, *FLOORS_OF, *AGENTS, "one client")],
        ),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
def test_a_command_prints_a_table_and_json_of_its_rows(words: str, rows: list[str]) -> None:
    command, *options = words.split()
    told = json.loads(run(command, *options, "--runs", "1", "--json").stdout)
    assert told["measured"] == command
    assert [each["name"] for each in told["subjects"]] == rows
    for each in told["subjects"]:
        assert 0.0 < each["p50_us"] <= each["p90_us"] <= each["p99_us"]
    if command == "step":
        head, *lines = run(command, *options, "--runs", "1").stdout.splitlines()
        assert head.startswith("WAY")
        assert [line.partition("  ")[0] for line in lines] == rows


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
    assert rows[RELAYED]["ratios"]["unrelayed"] == pytest.approx(wanted, rel=0.01)
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


# --- more of everything ----------------------------------------------------------------------------------------------


def made_up(*costs: float, shared: bool = True) -> Part:
    """Of 1, 2, ... so many things, each of which costs so many microseconds."""
    counts = tuple(range(1, len(costs) + 1))
    return Part(
        *("things", "Things", "thing", "things", counts, 100),
        lambda size, steps: {"direct": {"p50_us": costs[size - 1]}},
        shared=shared,
    )


def test_what_is_shared_costs_each_its_part_and_is_compared_with_the_smallest() -> None:
    one, two = measure_part(made_up(10.0, 16.0)).rows
    assert (one.values[EACH], two.values[EACH]) == (10.0, 8.0)
    assert two.ratios == {"smallest": 1.6}
    (note,) = measure_part(made_up(10.0, 40.0)).notes
    assert note == "a step of 2 things, direct costs 2.00 times as much for each as one of 1 thing, direct"
    (note,) = measure_part(made_up(10.0, 30.0, shared=False)).notes
    assert "costs 3.00 times as much" in note
    assert sizes(PARTS["agents"], 0.07) == (1, 4)


def test_memory_that_grows_by_more_than_there_is_room_for_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ospbridge.bench import memory
    from ospbridge.bench.report import Report, Row

    def grown(**options: object) -> Report:
        row = Row("direct environment", {"p50_us": 1.0, "client_mb": 50.0, GROWN[0]: 3.0})
        return Report("memory", "Memory", {}, memory.QUANTITIES, (row,))

    monkeypatch.setattr(memory, "measure_memory", grown)
    assert "3.00" in run("memory", "--room", "3").stdout
    assert "memory grew by 3.00 MB, by more than 2" in run("memory", "--room", "2", exit_code=1).stderr
