"""The page on barrier, reset and seeds says what the tests hold and what the defaults are, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click import Command

from ospbridge.cli.connect import connect
from ospbridge.daemon.attachment import State
from ospbridge.daemon.awaited_reset import GRACE
from ospbridge.osp.timing import Limits
from tests.envs.vectors import cart_poles

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "explanation" / "barrier-reset-seeds.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE)
    there = "".join(file.read_text() for file in TESTS.rglob("test_*.py"))
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in there] == []


def test_its_limits_are_the_defaults() -> None:
    limits = Limits()
    assert f"| `step_timeout` | {limits.step:g} s |" in PAGE
    assert f"| `reset_timeout` | {limits.reset:g} s |" in PAGE
    assert f"are given {GRACE:g} s to ask for it too" in PAGE


def test_its_states_are_those_that_there_are() -> None:
    table = PAGE.partition("| state |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == [state.value for state in State]


def test_its_options_are_those_of_the_daemon() -> None:
    assert isinstance(connect, Command)
    options = {name for parameter in connect.params for name in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert len(named) >= 4
    assert named <= options


@pytest.mark.loopback
def test_its_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with cart_poles(1) as (address,):
        exec(compile(example.replace("127.0.0.1:45454", address), "barrier-reset-seeds.md", "exec"), {})
    assert capsys.readouterr().out.split() == re.findall(r"print\(.*#\s*(\d+)$", example, re.MULTILINE)
