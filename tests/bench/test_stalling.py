"""The server that loses wake-ups speaks OSP as a NERD server does, and what is measured at it is told as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from ospbridge.bench import stalling
from ospbridge.bench.report import Row
from ospbridge.bench.stalling import building, compiler, running
from ospbridge.bench.stalls import DEFAULT, LAUNCHED, PINNED, TUNED, WAYS, conclusive, shortcomings
from ospbridge.cli import main
from ospbridge.errors import UsageError
from ospbridge.osp.profile import NERD
from ospbridge.session.blocking import BlockingSession

needs_compiler = pytest.mark.skipif(compiler() is None, reason=stalling.NO_COMPILER)


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    with building() as built:
        yield built


@contextmanager
def served(program: Path) -> Iterator[stalling.StallingServer]:
    with running(program, busy=0) as server:
        yield server


@needs_compiler
@pytest.mark.loopback
def test_a_session_finds_a_nerd_server_whose_clock_agrees_with_the_steps(program: Path) -> None:
    with served(program) as server:
        for _ in range(2):
            with BlockingSession.connect(server.address) as session:
                assert session.profile is NERD
                (agent,) = session.register("Robot")
                assert [value.name for value in agent.inputs] == ["/Left/Speed", "/Right/Speed"]
                assert [value.name for value in agent.outputs] == ["/Left/Distance", "/Right/Distance"]
                for _ in range(2):
                    session.reset(7)
                    outcomes = [session.step_one([1.0, -0.5]) for _ in range(20)]
                    assert outcomes[-1].outputs == pytest.approx([0.2, -0.1])
                    assert session.audit() == ""
                    assert float(session.get("/Simulation/SimulationTime").value) == pytest.approx(0.2)


def test_without_a_compiler_it_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalling, "compiler", lambda: None)
    with pytest.raises(UsageError, match="no C compiler `cc`") as caught, building():
        pass
    assert "apt-get install" in caught.value.hint


@needs_compiler
@pytest.mark.loopback
def test_the_command_reports_each_way_with_its_stalls() -> None:
    result = CliRunner().invoke(main, ["bench", "stalls", "--steps", "20", "--runs", "1", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["measured"], told["steps"], told["busy_us"]) == ("stalls", 20, 100)
    assert [each["name"] for each in told["subjects"]] == list(WAYS)
    for each in told["subjects"]:
        assert 0.0 < each["p50_us"] <= each["p99_us"]
        assert 0.0 <= each["stalled_percent"] <= 100.0
        assert each["steps_per_second"] > 0.0


def rows(default: float, **others: tuple[float, float]) -> tuple[Row, ...]:
    """Of the percents that stalled and the ratios of steps a second; as wanted unless given."""
    found = {TUNED: (0.0, 9.0), LAUNCHED: (0.0, 9.0), PINNED: (0.0, 9.0)} | others
    seconds = 150e-6 + 0.05 * default / 100
    plain = Row(
        DEFAULT,
        {"stalled_percent": default, "p50_us": 150.0, "steps_per_second": 1 / seconds},
        {DEFAULT: 1.0},
    )
    return (
        plain,
        *(
            Row(name, {"stalled_percent": stalled}, {DEFAULT: ratio})
            for name, (stalled, ratio) in found.items()
        ),
    )


def test_ways_are_not_judged_where_hardly_anything_stalled() -> None:
    assert not conclusive(rows(0.9))
    assert conclusive(rows(1.1))


def test_what_falls_short_is_told() -> None:
    assert shortcomings(rows(5.0)) == ()
    assert shortcomings(rows(5.0, **{TUNED: (0.31, 1.0), PINNED: (0.2, 4.9)})) == (
        f"{TUNED}: 0.31 % stalled, wanted are 0.3 % at most",
        f"{PINNED}: 0.20 % stalled, wanted are 0.1 % at most",
        f"{PINNED}: 4.9 times the steps a second, wanted are 5 times at least",
    )
