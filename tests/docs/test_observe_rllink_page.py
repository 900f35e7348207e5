"""The page on observed environments: its commands run, its program feeds the sink, its numbers are the code's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ospbridge.cli.connect import connect
from ospbridge.daemon.relay import observing
from ospbridge.daemon.relay.suspicion import TRIES
from ospbridge.policy.distributions import distribution
from ospbridge.record.reading import read_recording
from ospbridge.record.spool import DEFAULT_UNWRITTEN, WhenFull
from ospbridge.session.hub_client import default_hub
from tests.daemon.relay.observing import module
from tests.daemon.relay.sink_process import SinkProcess
from tests.envs.daemons import connected

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "observe-rllink.md"
TEXT = PAGE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.loopback
@pytest.mark.parametrize(
    "program, world, episodes", [(0, "cartpole", 3), (1, "pendulum", 1), (3, "cartpole", 5)]
)
def test_its_programs_feed_the_sink(tmp_path: Path, program: int, world: str, episodes: int) -> None:
    record, simulate, observe = (shlex.split(block)[1:] for block in blocks("sh"))
    np.savez(tmp_path / "policy.npz", allow_pickle=False, **module(4, 2).arrays)
    sink = SinkProcess(tmp_path / "in")
    assert record[:3] == ["sink", "--listen", "127.0.0.1:5555"]
    assert simulate[0] == "sim"
    options = [sink.address if option == "127.0.0.1:5555" else option for option in observe[1:]]
    if world not in options:
        # The page says so in words.
        assert f"`--scenario {world}`" in TEXT
        assert f"`ospbridge sim {world}`" in TEXT
        simulate, options = ["sim", world], [world if option == "cartpole" else option for option in options]
    command = [sys.executable, "-m", "ospbridge", *simulate, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as simulator:
        try:
            assert simulator.stdout is not None
            address = simulator.stdout.readline().split()[-1]
            with sink, connected(address, default_hub(), *options):
                code = blocks("python")[program]
                subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=40)
                for _ in range(1000):
                    if sink.more_than(episodes - 1):
                        break
                    subprocess.run(["sleep", "0.02"], check=True)
        finally:
            simulator.terminate()
            simulator.communicate(timeout=10)
    found = list(read_recording(sink.directory))
    assert len(found) == episodes
    for episode in found:
        assert episode.action_logp is not None
        assert episode.action_dist_inputs is not None
        again = distribution(episode.action_space).logp(episode.action_dist_inputs, episode.actions)
        np.testing.assert_allclose(again, episode.action_logp, atol=1e-5)


def test_its_numbers_and_options_are_those_of_the_code() -> None:
    options = {name for parameter in connect.params for name in parameter.opts}
    assert set(re.findall(r"--rllink[a-z-]*", TEXT)) <= options
    assert f"more than {observing.LONGEST:,} steps or {observing.LARGEST // 2**20} MiB" in TEXT
    assert TEXT.count(f"{DEFAULT_UNWRITTEN // 2**20} MiB") == 2
    assert TRIES == 3
    for policy in WhenFull:
        assert f"`{policy}`" in TEXT


@pytest.mark.parametrize("link", re.findall(r"\]\(([^):#]+\.md)\)", TEXT))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (PAGE.parent / link).exists()
