"""`ospbridge bench`: what each measurement tells as a table, as JSON and as a picture, and how it ends."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from ospbridge.bench.report import Quantity, Report, Row
from ospbridge.cli.bench_output import Output
from tests.cli.programs import invoke, started, until

SMALL = ["--inputs", "2", "--outputs", "3", "--steps", "10", "--runs", "1"]
FLOORS = ["blocking floor", "spinning floor"]
bench = partial(invoke, "bench")


@pytest.mark.loopback
def test_json_has_sizes_and_figures_of_floors_and_subjects() -> None:
    figures = json.loads(bench("step", *SMALL, "--only", "trio", "--json", "--profile", "nerd").stdout)
    assert figures["cores"] >= 1
    said = {"inputs": 2, "outputs": 3, "steps": 10, "runs": 1, "profile": "nerd"}
    assert {key: figures[key] for key in said} == said
    assert [each["name"] for each in figures["subjects"]] == [*FLOORS, "TrioSession"]
    for each in figures["subjects"]:
        assert set(each) == {
            *("name", "steps_per_second", "processor_us", "processor_percent", "ratios", "over_us"),
            *("p50_us", "p90_us", "p99_us"),
        }
        assert each["p50_us"] <= each["p90_us"] <= each["p99_us"]
        assert list(each["ratios"]) == FLOORS


@pytest.mark.loopback
def test_fleet_says_what_each_number_of_simulators_gains() -> None:
    head, *lines = bench("fleet", "--simulators", "1", "--simulators", "2", *SMALL).stdout.splitlines()
    assert head.endswith("x one simulator's")
    assert [line.partition("  ")[0] for line in lines] == [
        f"{name}, {count}"
        for count in ("1 simulator", "2 simulators")
        for name in (*FLOORS, "vector environment")
    ]


@pytest.mark.loopback
@pytest.mark.filterwarnings("ignore:.*still waiting:UserWarning")  # a busy machine starts a daemon slowly
def test_hub_says_what_the_daemon_does_and_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    picture = tmp_path / "hub.svg"
    result = bench("hub", "--agents", "2", *SMALL, "--json", "--plot", str(picture))
    told = json.loads(result.stdout)
    assert told["subjects"][-1]["name"] == "one client, 2 agents"
    assert told["subjects"][-1]["daemon_us"] > 0.0
    assert told["subjects"][0]["daemon_us"] is None
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert f"{picture}: " in result.stderr


def test_a_subject_that_is_none_is_a_usage_error_that_lists_them() -> None:
    told = bench("step", "--only", "teleport", exit_code=2).stderr
    assert "'teleport' begins no name; there are 'blocking floor', " in told


def test_several_reports_are_tables_with_titles(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(
        *("one", "The one", {"runs": 2}),
        (Quantity("p50_us", "P50 us"), Quantity("rate", "RATE", digits=0)),
        (Row("floor", {"p50_us": 1.25, "rate": 12_345.6}), Row("way", {"p50_us": 2.5}, {"floor": 2.0})),
        notes=("something was left out",),
        cores=2,
    )
    table = [
        "The one",
        "WAY    P50 us    RATE  x floor",
        "floor     1.2  12,346",
        "way       2.5             2.00",
    ]
    Output(as_json=False).tell(report, report, several=True)
    told = capsys.readouterr()
    assert told.out.splitlines() == [*table, "", *table]
    # The same note twice would tell nothing new.
    assert told.err.splitlines() == ["something was left out"]


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("ospbridge.bench.step.measure_steps", None)
    assert "pip install 'ospbridge[plot]'" in bench("step", "--plot", "it.png", exit_code=78).stderr


@pytest.mark.loopback
def test_an_interrupted_measurement_ends_what_it_started() -> None:
    children: list[psutil.Process] = []
    with started("bench", "hub", "--agents", "2", "--steps", "100000", wait=False) as (program, _):

        def measures() -> bool:
            """With a simulator that was started: what Python asks about the host are children, too."""
            children[:] = psutil.Process(program.pid).children()
            with suppress(psutil.Error):  # some begin or end
                return any("ospbridge.bench." in " ".join(child.cmdline()) for child in children)
            return False

        until(measures)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=30.0)
    assert program.returncode == 130, errors
    assert "Traceback" not in errors
    until(lambda: not any(child.is_running() for child in children))
