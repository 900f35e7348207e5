"""The pages on hubs: their commands make certificates that hold, and their programs run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.errors import ConfigurationError
from ospbridge.session.hub_client import default_hub
from tests.envs.daemons import connected
from tests.envs.test_remote_hubs import free_place
from tests.envs.vectors import cart_poles

assert ospbridge.__version__
pytestmark = pytest.mark.loopback

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
HOSTS = (HOW_TO / "other-hosts.md").read_text()
OBSERVE = (HOW_TO / "observe.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@contextmanager
def on_this_host(directory: Path) -> Iterator[tuple[str, str]]:
    """The page on other hosts with its names replaced, once its certificates are made; and the simulator's address."""
    place = free_place()
    page = HOSTS.replace("--listen robots.example.org:45460", f"--listen {place}")
    page = page.replace(":45460", ":" + place.rpartition(":")[2]).replace("robots.example.org", "localhost")
    *certificates, _, _ = blocks(page, "sh")
    for commands in certificates:
        subprocess.run(["sh", "-ec", commands], cwd=directory, check=True, capture_output=True, timeout=30)
    with cart_poles(1) as (address,):
        yield page.replace("127.0.0.1:45454", address).replace('agent="cart"', 'agent="cart*"'), address


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page's commands need openssl")
def test_the_commands_and_programs_for_other_hosts_run(
    tmp_path: Path, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with on_this_host(tmp_path) as (page, address):
        (verify,) = re.findall(r"`(openssl verify [^`]+)`", page)
        subprocess.run(["sh", "-ec", verify], check=True, capture_output=True, timeout=30)
        *_, connect, status = [shlex.split(block.replace("\\\n", ""))[1:] for block in blocks(page, "sh")]
        assert connect[:3] == ["connect", "--simulator", address]
        with connected(address, runtime_directory / "hub", *connect[3:]):
            (program,) = blocks(page, "python")
            exec(compile(program, "other-hosts.md", "exec"), {})
            command = [sys.executable, "-m", "ospbridge", *status]
            done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
            assert done.returncode == 0, done.stderr
            assert "2 steps, 1 reset, 0 rebuilds" in done.stdout
            bridge = status[status.index("--hub") + 1]
            with pytest.raises(ConfigurationError) as caught:
                gymnasium.make(
                    "ospbridge/Agent-v0",
                    bridge=bridge.replace("localhost", "127.0.0.1"),
                    tls_cert="trainer.pem",
                    tls_key="trainer.key",
                    tls_ca="ca.pem",
                )
            assert "IP address mismatch" in caught.value.message
            assert "IP address mismatch" in page


def test_the_observer_sees_what_an_environment_does(runtime_directory: Path, capsys: Any) -> None:
    (program,) = blocks(OBSERVE, "python")
    with cart_poles(1) as (address,), connected(address, default_hub()):
        env = gymnasium.make("ospbridge/Agent-v0", agent="cart*")
        agent = env.unwrapped.interface.name  # type: ignore[attr-defined]  # ours has it
        stop = threading.Event()

        def drive() -> None:
            while not stop.is_set():
                env.reset(seed=1)
                for _ in range(5):
                    env.step(np.ones(1, np.float32))

        driver = threading.Thread(target=drive)
        driver.start()
        try:
            exec(compile(program.replace('"cart"', repr(agent)), "observe.md", "exec"), {})
        finally:
            stop.set()
            driver.join()
            env.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 100
    assert {line.split()[0] for line in lines} >= {"RESET", "STEP"}
