"""The tutorial shows what ships."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import ospbridge
from ospbridge.cli import main
from tests.envs.vectors import cart_poles

assert ospbridge.__version__
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "first-policy.md").read_text()


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found is not None, mark
    return found.group(1)


def test_the_scenario_it_shows_is_the_one_that_ships() -> None:
    shown = tomllib.loads(block("scenario: cartpole"))
    shipped = tomllib.loads((ROOT / "scenarios" / "cartpole.toml").read_text())
    assert shown["agent"] == shipped["agent"]


def test_its_programs_are_python() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(programs) >= 4
    for program in programs:
        compile(program, "tutorial", "exec")


@pytest.mark.parametrize("link", re.findall(r"\]\((\.\./[^)#]+)", PAGE))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (ROOT / "docs" / "tutorial" / link).exists()


@pytest.mark.loopback
def test_what_it_shows_of_the_simulator_and_of_stepping_is_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with cart_poles(1) as (address,):
        told = CliRunner().invoke(main, ["describe", "cart", "--simulator", address])
        assert told.stdout == block("output: describe")
        listed = CliRunner().invoke(main, ["agents", "--simulator", address])
        assert listed.stdout == block("output: agents")
        exec(compile(block("program: step.py").replace("127.0.0.1:45454", address), "tutorial", "exec"), {})
    assert len(re.findall(r"^\[.*\] 1\.0 (?:True|False) False$", capsys.readouterr().out, re.MULTILINE)) == 3


def test_the_training_says_how_it_goes_as_the_page_promises() -> None:
    # Stable-Baselines3 prints nothing unless asked to.
    assert "`verbose=1`" in PAGE
    assert "verbose=1)" in block("program: first policy")
