"""What all subcommands of ``ospbridge bench`` share, and ``all``."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ospbridge.bench.processes import ProgramFailed
from ospbridge.bench.report import Panel, Quantity, Report, Row
from ospbridge.cli import bench_all, bench_output, main

if TYPE_CHECKING:
    from collections.abc import Callable

REPORT = Report(
    "one",
    "The one",
    {"runs": 2},
    (Quantity("p50_us", "P50 us"), Quantity("rate", "RATE", digits=0)),
    (Row("floor", {"p50_us": 1.25, "rate": 12_345.6}), Row("way", {"p50_us": 2.5}, {"floor": 2.0})),
    (Panel("time", ("p50_us",)),),
    notes=("something was left out",),
    cores=2,
)


def measure_one(*, runs: int, told: Callable[[str], None]) -> Report:
    assert runs == 2
    told("way")
    return REPORT


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two measurements that are done at once."""
    here = (__name__, "measure_one")
    monkeypatch.setattr(bench_all, "MEASUREMENTS", {"one": here, "other": here})


def test_all_prints_a_table_with_a_title_for_each_measurement(two: None) -> None:
    result = CliRunner().invoke(main, ["bench", "all", "--runs", "2"])
    assert result.exit_code == 0, result.output
    table = [
        "The one",
        "WAY    P50 us    RATE  x floor",
        "floor     1.2  12,346",
        "way       2.5             2.00",
    ]
    assert result.stdout.splitlines() == [*table, "", *table]
    # The same note twice would tell nothing new.
    assert result.stderr.splitlines() == ["something was left out"]


@pytest.mark.parametrize("width, tables", [(120, 1), (28, 2), (10, 3)])
def test_columns_that_a_terminal_has_no_room_for_come_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, tables: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    drawn: list[list[str]] = []
    monkeypatch.setattr(
        bench_output,
        "print_table",
        lambda columns, rows, title: drawn.append([each.title for each in columns]),
    )
    bench_output.Output(as_json=False).tell(REPORT)
    assert len(drawn) == tables
    assert all(titles[0] == "WAY" for titles in drawn)
    assert [title for titles in drawn for title in titles[1:]] == ["P50 us", "RATE", "x floor"]


def test_all_prints_one_json_object(two: None) -> None:
    for only, count in (([], 2), (["--only", "oth"], 1)):
        result = CliRunner().invoke(main, ["bench", "all", "--runs", "2", "--json", *only])
        assert json.loads(result.stdout) == {"reports": [REPORT.as_object()] * count}


def fail_to_measure(*, runs: int, told: Callable[[str], None]) -> Report:
    raise ProgramFailed("the responder said nothing")


def be_interrupted(*, runs: int, told: Callable[[str], None]) -> Report:
    raise KeyboardInterrupt


@pytest.mark.parametrize("what, exit_code", [("fail_to_measure", 75), ("be_interrupted", 130)])
def test_all_prints_what_was_measured_before_something_failed(
    monkeypatch: pytest.MonkeyPatch, what: str, exit_code: int
) -> None:
    measurements = {
        "one": (__name__, "measure_one"),
        "bad": (__name__, what),
        "other": (__name__, "measure_one"),
    }
    monkeypatch.setattr(bench_all, "MEASUREMENTS", measurements)
    result = CliRunner().invoke(main, ["bench", "all", "--runs", "2", "--json"])
    assert result.exit_code == exit_code
    assert json.loads(result.stdout) == {"reports": [REPORT.as_object()]}


def test_all_makes_each_measurement_that_has_a_subcommand_but_the_longest() -> None:
    from ospbridge.cli.bench import bench

    assert set(bench_all.MEASUREMENTS) == set(bench.commands) - {"all", "scale", "memory"}
    for module, *functions in bench_all.MEASUREMENTS.values():
        for function in functions:
            assert {"runs", "told"} <= signature(getattr(import_module(module), function)).parameters.keys()


@pytest.mark.parametrize("name", list(bench_all.MEASUREMENTS))
def test_all_measures_what_the_subcommand_measures_by_itself(name: str) -> None:
    from ospbridge.bench.exercise import Exercise
    from ospbridge.cli.bench import bench

    asked = {option.name: option.default for option in bench.commands[name].params}
    module, *functions = bench_all.MEASUREMENTS[name]
    for function in functions:
        usual = {
            each.name: each.default
            for each in signature(getattr(import_module(module), function)).parameters.values()
        }
        exercise = usual.pop("exercise", None)
        if isinstance(exercise, Exercise):
            usual |= asdict(exercise)
        # None: how often `all` measures is told by its own option.
        usual |= dict.fromkeys(("runs", "told"))
        compared = {key: value for key, value in usual.items() if value not in (None, ())}
        assert {key: asked[key] for key in compared} == compared


def test_all_measurements_draw_one_picture(two: None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    picture = tmp_path / "all.png"
    result = CliRunner().invoke(main, ["bench", "all", "--runs", "2", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"{picture}: 2 panels" in result.stderr


@pytest.mark.parametrize(
    "picture, code, told",
    [
        ("it.pdf", 2, "'it.pdf' says no kind of picture that can be drawn"),
        ("nowhere/it.png", 78, "cannot write a picture to nowhere/it.png"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, picture: str, code: int, told: str
) -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    monkeypatch.setattr(bench_all, "MEASUREMENTS", {"none": ("nothing", "of that name")})
    result = CliRunner().invoke(main, ["bench", "all", "--plot", picture])
    assert result.exit_code == code, result.output
    assert told in result.stderr
    assert "Hint: " in result.stderr


def test_without_matplotlib_the_extra_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(bench_all, "MEASUREMENTS", {"none": ("nothing", "of that name")})
    result = CliRunner().invoke(main, ["bench", "all", "--plot", str(tmp_path / "it.png")])
    assert result.exit_code == 78
    assert "pip install 'ospbridge[plot]'" in result.stderr


@pytest.mark.loopback
@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_measurement_ends_what_it_started(number: signal.Signals) -> None:
    words = ["bench", "hub", "--agents", "2", "--steps", "100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "ospbridge", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        try:
            give_up = time.monotonic() + 30.0
            # By then it measures, with a simulator that was started: what Python asks about the host are children, too.
            while not any(map(_measures, children := _children(program.pid))) and time.monotonic() < give_up:
                time.sleep(0.05)
            time.sleep(0.5)
            children |= _children(program.pid)
            program.send_signal(number)
            _, errors = program.communicate(timeout=30.0)
        finally:
            program.kill()
    assert children
    assert program.returncode == 130, errors
    assert b"Traceback" not in errors
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def _measures(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"ospbridge.bench." in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _children(pid: int) -> set[int]:
    """Not all of them while some begin or end."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
