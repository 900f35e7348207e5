from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from ospbridge.cli import main

pytestmark = pytest.mark.loopback

SMALL = ["--inputs", "2", "--outputs", "3", "--steps", "10", "--runs", "1"]


def test_agents_are_counted_once_and_ascending() -> None:
    result = CliRunner().invoke(
        main, ["bench", "agents", "--agents", "2", "--agents", "1", "--agents", "2", *SMALL, "--json"]
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {key: told[key] for key in ("measured", "agents", "steps", "profile")} == {
        "measured": "agents",
        "agents": "1,2",
        "steps": 10,
        "profile": "document",
    }
    vector = told["subjects"][-1]
    assert vector["name"] == "vector environment, 2 agents"
    assert set(vector["ratios"]) == {"blocking floor", "spinning floor", "one agent's", "vector of one's"}


def test_fleet_says_what_each_number_of_simulators_gains() -> None:
    result = CliRunner().invoke(main, ["bench", "fleet", "--simulators", "1", "--simulators", "2", *SMALL])
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head.split("  ")[0] == "WAY"
    assert head.endswith("x one simulator's")
    assert [line.partition("  ")[0] for line in lines] == [
        f"{name}, {count}"
        for count in ("1 simulator", "2 simulators")
        for name in ("blocking floor", "spinning floor", "vector environment")
    ]


@pytest.mark.timeout(120)
def test_hub_says_what_the_daemon_does_and_can_be_drawn(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    picture = tmp_path_factory.mktemp("pictures") / "hub.svg"
    result = CliRunner().invoke(
        main, ["bench", "hub", "--agents", "2", *SMALL, "--json", "--plot", str(picture)]
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [each["name"] for each in told["subjects"]] == [
        "blocking floor, 2 agents",
        "spinning floor, 2 agents",
        "conductor, 2 agents",
        "conductor, sleeping simulator, 2 agents",
        "processes, 2 agents",
        "one client, 2 agents",
    ]
    assert told["subjects"][-1]["daemon_us"] > 0.0
    assert told["subjects"][0]["daemon_us"] is None
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert f"{picture}: " in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["agents", "--agents", "0"],
        ["agents", "--agents", "257"],
        ["fleet", "--simulators", "-1"],
        ["fleet", "--think", "-1"],
        ["step", "--think", "2"],
        ["hub", "--agents", "65"],
        ["hub", "--steps", "9"],
        ["hub", "--runs", "0"],
        ["agents", "--profile", "auto"],
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(words: list[str]) -> None:
    result = CliRunner().invoke(main, ["bench", *words])
    assert result.exit_code == 2
    assert "Invalid value for" in result.stderr
