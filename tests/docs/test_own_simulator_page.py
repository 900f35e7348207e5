"""The page on a simulator of one's own: its program is as short as it says, runs, and is driven as the page says."""

from __future__ import annotations

import inspect
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
from click.testing import CliRunner

import ospbridge
from ospbridge.cli import main
from ospbridge.osp import profile
from ospbridge.osp.server import repository as server_repository
from ospbridge.osp.world import World

assert ospbridge.__version__
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "own-simulator.md").read_text("utf-8")
SIMULATOR, ENVIRONMENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_it_is_twenty_lines() -> None:
    code = [line for line in SIMULATOR.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(code) <= 20


def test_all_that_a_world_has_is_told() -> None:
    told = set(re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE))
    assert told == {name for name, _ in inspect.getmembers(World) if not name.startswith("_")}


def test_the_names_it_gives_are_there() -> None:
    for name in re.findall(r"`(\w+_variable)", PAGE):
        assert hasattr(server_repository, name)
    assert hasattr(profile, "NERD")


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
