"""The page on several simulators: its files are configurations, and its commands and its environment work.

That RLlib learns from them is shown by ``tests/peers/run_several_page.py``.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import PROGRAM, Daemon, run_program

assert ospbridge.__version__
pytestmark = pytest.mark.loopback

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "several-simulators.md").read_text()
SEVERAL, ONE_SERVER = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
RLLIB, ENVIRONMENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^ospbridge (.*)$", PAGE, re.MULTILINE)]


def test_every_env_runner_gets_its_share_of_the_train_batch() -> None:
    servers = tomllib.loads(SEVERAL)["rllink"]
    (runners,) = re.findall(r"num_env_runners=(\d+)", RLLIB)
    (batch,) = re.findall(r"train_batch_size_per_learner=(\d+)", RLLIB)
    (port,) = re.findall(r'"port": (\d+)', RLLIB)
    assert len(servers) == int(runners)
    assert {server["env_steps"] for server in servers} == {int(batch) // int(runners)}
    assert [server["address"] for server in servers] == [
        f"127.0.0.1:{int(port) + number}" for number in range(1, int(runners) + 1)
    ]


def test_one_server_learns_from_all(tmp_path: Path) -> None:
    simulators = SEVERAL.partition("[[rllink]]")[0]
    file = tmp_path / "one.toml"
    file.write_text(simulators + ONE_SERVER)
    shown = run_program("config", "show", "--config", str(file))
    assert shown.returncode == 0, shown.stderr
    (server,) = tomllib.loads(shown.stdout)["rllink"]
    assert "simulators" not in server


def test_the_commands_work_and_an_environment_attaches_to_a_simulator_of_its_own(
    tmp_path: Path, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    *_, show, connect, status = COMMANDS
    assert connect == ["connect", "--config", "several.toml"]
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0) as left,
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0) as right,
    ):
        # Nobody learns here, so that the agents are free.
        text = SEVERAL.partition("[[rllink]]")[0]
        text = text.replace("127.0.0.1:45454", str(left.address)).replace(
            "127.0.0.1:45455", str(right.address)
        )
        assert text.count("unix:/tmp/") == 2
        text = text.replace("unix:/tmp/", f"unix:{runtime_directory}/")
        Path("several.toml").write_text(text)
        assert run_program(*show).returncode == 0
        hub = status[-1].replace("unix:/tmp/", f"unix:{runtime_directory}/")
        program = ENVIRONMENT.replace("unix:/tmp/", f"unix:{runtime_directory}/")
        with Daemon(None, *connect[1:], directory=tmp_path, hub=hub):
            found: dict[str, gymnasium.Env[np.ndarray, int]] = {}
            exec(compile(program, "several-simulators.md", "exec"), found)
            env = found["env"]
            env.reset(seed=1)
            env.step(1)
            done = subprocess.run(
                [*PROGRAM, *status[:-1], hub], capture_output=True, text=True, timeout=30, check=True
            )
            assert f"{left.address} (left): joined" in done.stdout
            assert "playing by" in done.stdout
            env.close()
