from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ospbridge.cli import main

FEW = ["bench", "step", "--steps", "50", "--runs", "1", "--only", "trio", "--inputs", "2", "--outputs", "3"]


@pytest.mark.loopback
@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_json_has_sizes_and_figures_of_floors_and_subjects(profile: str) -> None:
    result = CliRunner().invoke(main, [*FEW, "--json", "--profile", profile])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert {key: figures[key] for key in ("inputs", "outputs", "steps", "runs", "profile")} == {
        "inputs": 2,
        "outputs": 3,
        "steps": 50,
        "runs": 1,
        "profile": profile,
    }
    assert figures["cores"] >= 1
    assert [each["name"] for each in figures["subjects"]] == [
        "blocking floor",
        "spinning floor",
        "TrioSession",
    ]
    for each in figures["subjects"]:
        percentiles = {"p50_us", "p90_us", "p99_us"}
        assert (
            set(each)
            == {"name", "steps_per_second", "processor_us", "processor_percent", "ratios", "over_us"}
            | percentiles
        )
        assert each["p50_us"] <= each["p90_us"] <= each["p99_us"]
        assert set(each["ratios"]) == {"blocking floor", "spinning floor"}


@pytest.mark.loopback
def test_the_table_has_a_line_for_each_way() -> None:
    lines = CliRunner().invoke(main, FEW).stdout.splitlines()
    assert [line.partition("  ")[0] for line in lines] == [
        "WAY",
        "blocking floor",
        "spinning floor",
        "TrioSession",
    ]


@pytest.mark.loopback
def test_what_a_scenario_adds_is_told_as_a_difference() -> None:
    few = ["bench", "step", "--steps", "20", "--runs", "1", "--only", "direct environment, with scenario"]
    head, *lines = CliRunner().invoke(main, few).stdout.splitlines()
    assert head.endswith("us OVER direct environment")
    assert lines[-1].startswith("direct environment, with scenario")
    assert lines[-1].split()[-1][0] in "+-"
    (figures,) = json.loads(CliRunner().invoke(main, [*few, "--json"]).stdout)["subjects"][-1:]
    assert list(figures["over_us"]) == ["direct environment"]


def test_a_subject_that_is_none_is_a_usage_error_that_lists_them() -> None:
    result = CliRunner().invoke(main, ["bench", "step", "--only", "teleport"])
    assert result.exit_code == 2
    assert "'teleport' begins no name; there are 'blocking floor', " in result.stderr
