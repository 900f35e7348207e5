"""The page on a simulator of one's own: its program is as short as it says, runs, and is driven as the page says."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from click.testing import CliRunner

import ospbridge
from ospbridge.cli import main
from ospbridge.osp import profile
from ospbridge.osp.world import World
from ospbridge.simulator.checking import MOST_VALUES

assert ospbridge.__version__
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "own-simulator.md").read_text("utf-8")
SIMULATOR, ENVIRONMENT, VARIABLES, WORLDS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_it_is_twenty_lines() -> None:
    code = [line for line in SIMULATOR.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(code) <= 20


def test_all_that_a_world_has_is_told() -> None:
    told = set(re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE))
    assert told == {name for name, _ in inspect.getmembers(World) if not name.startswith("_")}


def test_the_names_it_gives_are_there() -> None:
    assert hasattr(profile, "NERD")


def test_variables_are_read_set_and_refused_as_it_says() -> None:
    found: dict[str, Any] = {"Pendulum": type("Pendulum", (), {"__init__": lambda _: None})}
    exec(compile(VARIABLES, "own-simulator.md", "exec"), found)
    wind, stage, gusts, label = found["Windy"]().variables
    for variable, text, taken, then in (
        (wind, "3.5", True, "3.5"),
        (wind, "30", False, "3.5"),
        (stage, "1", False, "0"),
        (gusts, "T", True, "T"),
        (label, "stormy", True, "stormy"),
    ):
        assert variable.set(text) is taken
        assert variable.get() == then


@pytest.mark.loopback
def test_the_program_serves_what_the_page_plays(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = tmp_path / "pendulum.py"
    program.write_text(SIMULATOR.replace("45454", port))
    process = subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE)
    try:
        gymnasium.make("ospbridge/Agent-v0", simulator=f"127.0.0.1:{port}", wait=20.0).close()
        (command,) = re.findall(r"^ospbridge (describe .*)$", PAGE, re.MULTILINE)
        told = CliRunner().invoke(main, [*shlex.split(command), "--simulator", f"127.0.0.1:{port}"])
        assert "/Motor/Torque" in told.stdout, told.output
        found: dict[str, float] = {}
        exec(compile(ENVIRONMENT.replace("45454", port), "own-simulator.md", "exec"), found)
        assert -1.0 <= found["reward"] < -0.9
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10)[1] == b"", "Ctrl-C ends it without a traceback"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate(timeout=10)


STAND_IN = """
import gymnasium
from gymnasium import spaces

class Room(gymnasium.Env):
    action_space = spaces.Discrete(7)

    def __init__(self, max_steps, render_mode=None):
        image, mission = spaces.Box(0, 255, (7, 7, 3), "uint8"), spaces.Sequence(spaces.Discrete(3))
        self.observation_space = spaces.Dict(direction=spaces.Discrete(4), image=image, mission=mission)

gymnasium.register("MiniGrid-Empty-5x5-v0", entry_point=Room)
"""
"""What the page needs of MiniGrid, which the tests do not install."""


@pytest.mark.loopback
def test_an_environment_that_is_wrapped_as_the_page_says_is_hosted(tmp_path: Path) -> None:
    (tmp_path / "minigrid.py").write_text(STAND_IN)
    (tmp_path / "worlds.py").write_text(WORLDS)
    (command,) = re.findall(r"^PYTHONPATH=. ospbridge (sim .*)$", PAGE, re.MULTILINE)
    process = subprocess.Popen(
        [sys.executable, "-m", "ospbridge", *shlex.split(command), "--port", "0", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        told = CliRunner().invoke(main, ["describe", "grid", "--simulator", address])
        assert "grid (worlds:Grid-v0): 1 input, 151 outputs, 3 infos" in told.stdout, told.output
        assert "/observation/direction/3" in told.stdout
        assert "/observation/image/146" in told.stdout
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_the_limits_it_names_are_those_of_the_code() -> None:
    assert f"at most {MOST_VALUES:,} numbers" in PAGE
    assert f"beyond {2**24:,}" in PAGE
