"""The page on pictures: its commands run, its numbers and options are those of the code."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.cli.plot import plot
from ospbridge.plot.looks import Looks
from ospbridge.plot.signals import MOST_PANELS, MOST_SHOWN
from ospbridge.record.collecting import EpisodeCollector, at_once
from ospbridge.record.writing import EpisodeWriter
from tests.record.episodes import feedback, whose

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "plot.md").read_text()
COMMANDS = re.findall(r"^ospbridge .*$", PAGE, re.MULTILINE)
RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "o01_ode_arena.jsonl"


def test_the_page_names_every_option_and_no_other() -> None:
    options = {option for each in plot.params if isinstance(each, click.Option) for option in each.opts}
    told = set(re.findall(r"(?<![\w-])(--?[a-z]+)", PAGE)) - {"--trace", "--summary"}
    assert told == options - {"--output"}


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"up to {MOST_SHOWN - 1} before it" in PAGE
    assert f"Up to {MOST_PANELS} signals" in PAGE
    assert len(Looks().colours) == len(Looks(dark=True).colours) == 6
    assert "Up to six" in PAGE


def test_its_pictures_are_there_and_say_what_they_show() -> None:
    for told, path in re.findall(r"!\[(.+)\]\((.+)\)", PAGE):
        assert len(told) > 20
        assert (DOCS / "how-to" / path).resolve().is_file()


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra: pip install 'ospbridge[plot]'")
    monkeypatch.chdir(tmp_path)
    collector = EpisodeCollector(whose(actions=1), at_once(EpisodeWriter(tmp_path / "runs" / "cart").write))
    for length in (5, 9, 7):
        collector.begin(feedback(0.0))
        for step in range(length):
            collector.step(np.zeros(1, np.float32), feedback(step, terminated=step == length - 1))
    shutil.copy(RECORDING, "trace.jsonl")
    assert len(COMMANDS) == 5
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, (command, result.output)
        assert Path(words[words.index("-o") + 1]).stat().st_size > 1000
