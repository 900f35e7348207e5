from __future__ import annotations

import signal

import pytest

from tests.cli.conftest import Served
from tests.cli.programs import started

pytestmark = pytest.mark.loopback

SIZE = "/Sim/Arena/Size"
SEED = "/Simulation/Seed"


def test_all_values_are_listed(arena: Served) -> None:
    entries = arena.json("values", "list")
    assert {"name": SIZE, "type": "Double"} in entries
    assert len(entries) > 20
    lines = arena.run("values", "list").stdout.splitlines()
    assert lines[0].split() == ["NAME", "TYPE"]
    assert len(lines) == len(entries) + 1


def test_an_expression_that_fits_nothing_is_an_error_with_a_way_out(arena: Served, profile: str) -> None:
    result = arena.run("values", "list", "Aren", exit_code=0 if profile == "document" else 2)
    if profile == "nerd":
        assert "try '.*Aren.*'" in result.stderr
    result = arena.run("values", "list", "NoSuchThing", exit_code=2)
    assert "no value of" in result.stderr


def test_a_misspelt_value_is_answered_with_the_right_one(arena: Served) -> None:
    for command in (
        ["get", "/Sim/Arena/Sizw"],
        ["set", "/Sim/Arena/Sizw", "3"],
        ["watch", "/Sim/Arena/Sizw"],
    ):
        result = arena.run("values", *command, exit_code=2)
        assert "has no value '/Sim/Arena/Sizw'" in result.stderr
        assert f"did you mean '{SIZE}'?" in result.stderr


def test_a_value_that_was_set_is_read_back(arena: Served) -> None:
    assert arena.json("values", "get", SIZE) == {"name": SIZE, "type": "Double", "value": "4"}
    assert "could not parse 'large'" in arena.run("values", "set", SIZE, "large", exit_code=2).stderr
    assert arena.json("values", "get", SIZE)["value"] == "4"
    assert arena.json("values", "set", SIZE, "5.50") == {"name": SIZE, "type": "Double", "value": "5.5"}
    assert arena.json("values", "get", SIZE)["value"] == "5.5"
    # A negative number is no option.
    assert arena.json("values", "set", SEED, "-7")["value"] == "-7"
    assert arena.json("values", "set", "--timeout", "5", SEED, "-8")["value"] == "-8"


@pytest.mark.parametrize("profile, number", [("document", signal.SIGTERM), ("nerd", signal.SIGINT)])
def test_watch_prints_changes_and_ends_when_told_to(arena: Served, number: signal.Signals) -> None:
    command = ["values", "watch", SIZE, "--interval", "0.01", "--simulator", arena.address]
    with started(*command) as (process, line):
        assert line.split()[1:] == [SIZE, "4"]
        arena.run("values", "set", SIZE, "6")
        assert process.stdout is not None
        assert process.stdout.readline().split()[1:] == [SIZE, "6"]
        process.send_signal(number)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert arena.simulator.machine.handlers == 0
