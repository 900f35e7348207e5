"""The page on traces: its commands run, and its options are those that there are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import ospbridge  # noqa: F401  # registers the environments
from ospbridge.cli import main
from ospbridge.cli.trace import trace
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.udp import UdpSimulator

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "traces.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def options(name: str) -> set[str]:
    parameters = trace.commands[name].params
    return {
        option
        for each in parameters
        if isinstance(each, click.Option)
        for option in each.opts
        if option[:2] == "--"
    }


def test_the_page_names_every_option_and_no_other() -> None:
    told = set(re.findall(r"`(--[a-z]+)", PAGE)) - {"--trace", "--profile"}
    assert told == (options("show") | options("filter") | options("replay")) - {"--output"}


def test_its_tables_have_the_options_of_choosing_and_of_replay() -> None:
    rows = re.findall(r"^\| (`--.*) \| .* \|$", PAGE, re.MULTILINE)
    assert {option for row in rows for option in re.findall(r"--[a-z]+", row)} == (
        (options("show") & options("filter")) | options("replay")
    )


@pytest.mark.loopback
def test_its_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    *commands, replay = [line for block in BLOCKS for line in block.splitlines()]
    with UdpSimulator(GymWorld(["CartPole-v1"]), port=0) as simulator:
        for line in commands:
            words = shlex.split(line.replace("127.0.0.1:45454", str(simulator.address)))
            result = CliRunner().invoke(main, words[1:])
            assert result.exit_code == 0, (line, result.output)
            # An example that shows nothing, or keeps nothing, teaches nothing.
            assert not re.search(r"^(none|0) of ", result.output, re.MULTILINE), line
        exec(compile(PROGRAM.replace("127.0.0.1:45454", str(simulator.address)), "episode.py", "exec"), {})
        first = capsys.readouterr().out
        assert first
    words = shlex.split(replay.replace("45454", "0"))
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            replayed = PROGRAM.replace("127.0.0.1:45454", address).replace(', trace="episodes.jsonl"', "")
            exec(compile(replayed, "episode.py", "exec"), {})
            process.terminate()
            _, told = process.communicate(timeout=10)
        finally:
            process.kill()
    assert capsys.readouterr().out == first
    assert re.fullmatch(
        r"clients: 1, steps: \d\d+, resets: 1, differences from the recording: 0", told.splitlines()[-1]
    )
