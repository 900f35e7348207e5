"""What is measured where there is more, and whether anything grows; with tiny numbers, and no times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ospbridge.bench.memory import GROWN, measure_memory
from ospbridge.bench.processes import ProgramFailed
from ospbridge.bench.scale import EACH, PARTS, Part, measure_part, sizes
from ospbridge.bench.scale_programs import daemon_of, stepped_by
from ospbridge.bench.scale_spool import SHARES, measure_spool
from ospbridge.bench.stage import Stage
from ospbridge.cli import main
from ospbridge.errors import HubLost

if TYPE_CHECKING:
    from ospbridge.bench.report import Values

pytestmark = pytest.mark.loopback


def made_up(*costs: float, shared: bool = True) -> Part:
    """Of 1, 2, ... so many things, each of which costs so many microseconds."""

    def measured(size: int, steps: int) -> dict[str, Values]:
        return {"direct": {"p50_us": costs[size - 1]}}

    return Part(
        "things", "Things", "thing", "things", tuple(range(1, len(costs) + 1)), 100, measured, shared=shared
    )


@pytest.mark.parametrize(
    "share, wanted", [(1.0, (1, 4, 16, 64)), (0.5, (1, 4, 16)), (0.07, (1, 4)), (0.001, (1,))]
)
def test_a_share_leaves_out_larger_sizes_but_never_the_smallest(
    share: float, wanted: tuple[int, ...]
) -> None:
    assert sizes(PARTS["agents"], share) == wanted


def test_what_is_shared_costs_each_its_part_and_is_compared_with_the_smallest() -> None:
    report = measure_part(made_up(10.0, 16.0))
    one, two = report.rows
    assert (one.name, two.name) == ("1 thing, direct", "2 things, direct")
    assert (one.values[EACH], two.values[EACH]) == (10.0, 8.0)
    assert two.ratios == {"smallest": 1.6}
    assert not report.notes


def test_more_that_costs_more_for_each_is_told() -> None:
    (note,) = measure_part(made_up(10.0, 40.0)).notes
    assert note == "a step of 2 things, direct costs 2.00 times as much for each as one of 1 thing, direct"
    (note,) = measure_part(made_up(10.0, 30.0, shared=False)).notes
    assert "costs 3.00 times as much" in note


@pytest.mark.parametrize("part", list(PARTS))
def test_the_two_smallest_sizes_are_stepped_in_every_way(part: str) -> None:
    of = PARTS[part]
    for size in of.sizes[:2]:
        for way, values in of.measured(size, 20).items():
            assert 0.0 < values["p50_us"] <= values["p99_us"]
            assert values["client_mb"] > 1.0
            assert ("daemon_mb" in values) == (way == "hub")


def test_an_agent_of_ten_thousand_values_is_stepped() -> None:
    found = PARTS["values"].measured(10_000, 10)
    assert set(found) == {"direct", "hub"}


def fail_beside_a_daemon_that_cannot_start() -> None:
    with daemon_of("--simulator", "what:ever") as (daemon, _):
        daemon.succeeded()
        raise HubLost("nobody there")


def test_a_daemon_that_ends_is_told_in_place_of_what_its_client_saw() -> None:
    with pytest.raises(ProgramFailed, match=r"(?s)the daemon ended \(exit code 2\).*what:ever"):
        fail_beside_a_daemon_that_cannot_start()


def test_a_client_tells_when_a_tenth_is_done_and_resets_between_episodes() -> None:
    told: list[str] = []
    with Stage(inputs=2, outputs=3) as stage:
        client = ("--simulator", stage.responder, "--episode", "7", "--warm-up", "0")
        (stepped,) = stepped_by(client, steps=50, early=lambda: told.append("early"))
    assert told == ["early"]
    assert min(stepped.memory_early, stepped.memory) > 1_000_000
    assert stepped.run.steps_per_second > 0.0


def test_a_spool_is_filled_level_by_level_and_nothing_is_lost_while_it_drains() -> None:
    told: list[str] = []
    # The spool's process itself asserts that every episode is there.
    report = measure_spool(episodes=300, told=told.append)
    assert (
        told
        == [row.name for row in report.rows]
        == ["1%: 3 episodes", "10%: 30 episodes", "100%: 300 episodes"]
    )
    for row in report.rows:
        assert 0.0 < row.values["put_p50_us"] <= row.values["put_p99_us"]
        assert (
            min(row.values[key] for key in ("stored_us", "drained_us", "opened_ms", "memory_mb", "file_mb"))
            > 0.0
        )


def test_the_smallest_spool_has_its_three_levels_too() -> None:
    report = measure_spool(episodes=1)
    assert [row.name for row in report.rows] == ["1%: 1 episodes", "10%: 10 episodes", "100%: 100 episodes"]
    assert report.parameters["episodes"] == 100


def test_memory_is_compared_between_a_tenth_of_the_steps_and_all() -> None:
    report = measure_memory(steps=200)
    assert [row.name for row in report.rows] == ["direct environment", "hub environment"]
    direct, hub = report.rows
    assert GROWN[1] not in direct.values
    assert hub.values["daemon_mb"] > 1.0
    # Two hundred steps are too few to have settled, but nothing large may come with them.
    assert max(row.values[GROWN[0]] for row in report.rows) < 8.0


def run(*arguments: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def test_the_command_tells_each_part_that_was_asked_for() -> None:
    few = ("scale", "--only", "spool", "--only", "agents", "--share", "0.0005")
    told = json.loads(run(*few, "--json").stdout)["reports"]
    assert [report["part"] for report in told] == ["agents", "spool"]
    assert [each["name"] for each in told[0]["subjects"]] == ["1 agent, direct", "1 agent, hub"]
    assert len(told[1]["subjects"]) == len(SHARES)
    text = run(*few).stdout
    assert "Agents of one simulator" in text
    assert "A week of episodes in a spool" in text


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
