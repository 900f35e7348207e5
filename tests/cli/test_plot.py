"""`ospbridge plot`: its options, and that it says what to install. What it draws is in `tests/plot`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ospbridge.cli import main

RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "s04_reset_step.jsonl"


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(main, ["plot", str(RECORDING), "-o", str(tmp_path / "p.png")])
    assert result.exit_code == 78
    assert "Error: a picture needs matplotlib, which is not installed" in result.stderr
    assert "Hint: pip install 'ospbridge[plot]'" in result.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        (["--size", "big"], "'big' is no size such as 1080x720."),
        (["--size", "10x10"], "between 200 and 8000 pixels"),
        (["--size", "99999x300"], "between 200 and 8000 pixels"),
        (["--window", "0"], "--window"),
        (["-o", "p.gif"], "end the name with .png or .svg"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_says_what_is_right(options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["plot", str(RECORDING), "-o", "p.png", *options])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = CliRunner().invoke(main, ["plot", str(pipe), "-o", str(tmp_path / "out.png")])
    assert result.exit_code == 78
    assert "is a pipe" in result.stderr
