"""``ospbridge connect --rllink``, with a simulator, a learner and environments beside it, all on real sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import AgentTaken
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.learner import TinyLearner
from tests.daemon.running import PROGRAM, Daemon
from tests.in_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]


@contextmanager
def learning(learner: TinyLearner) -> Iterator[str]:
    """The learner in a thread of its own; its address."""
    with in_thread(learner.listening()) as port:
        yield f"127.0.0.1:{port}"


def drive(address: str, *options: str) -> list[str]:
    return ["--rllink", address, "--rllink-mode", "drive", "--rllink-env-steps", "20", *options]


def enough(learner: TinyLearner, batches: int) -> None:
    for _ in range(1000):
        if len(learner.batches) >= batches:
            return
        threading.Event().wait(0.02)
    pytest.fail(f"{len(learner.batches)} batches, {learner.wrong}")


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=["document", "nerd"])
def test_it_drives_learns_tells_its_status_and_leaves_in_order(profile: Profile, tmp_path: Path) -> None:
    learner = TinyLearner()
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator,
        learning(learner) as address,
        Daemon(simulator.address, *drive(address), directory=tmp_path) as daemon,
    ):
        enough(learner, 5)
        found = daemon.status()
        (upstream,) = found.upstreams
        assert (upstream.address, upstream.mode, upstream.dialect) == (address, "drive", "msgpack")
        assert upstream.trouble == ""
        assert upstream.batches >= 4
        assert upstream.steps >= 80
        assert upstream.weights_seq_no is not None
        (agent,) = found.agents
        assert agent.state == "playing"
        assert agent.driver.startswith(f"relay drive {address}")
        shown = subprocess.run([*PROGRAM, "status"], capture_output=True, text=True, timeout=30, check=True)
        assert f"upstream    drive {address}: connected (msgpack), weights " in shown.stdout
        told = json.loads(
            subprocess.run([*PROGRAM, "status", "--json"], capture_output=True, timeout=30, check=True).stdout
        )
        assert told["upstreams"][0]["dialect"] == "msgpack"
        assert daemon.end(signal.SIGINT) == 0
    assert learner.wrong == []


def test_an_environment_cannot_take_what_the_relay_drives_and_plays_beside_it(tmp_path: Path) -> None:
    learner = TinyLearner()
    learner.thinks = 0.5
    scenario = tmp_path / "short.toml"
    scenario.write_text('name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 7\n')
    options = ["--rllink-agents", "agent1", "--scenario", str(scenario), "--step-timeout", "0.2"]
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        learning(learner) as address,
        Daemon(simulator.address, *drive(address, *options), directory=tmp_path),
    ):
        enough(learner, 1)
        with pytest.raises(AgentTaken, match="relay drive"):
            HubClient.connect().attach("agent1")
        seat = HubClient.connect().attach("agent2")
        for episode in range(4):
            seat.reset(1 + episode)
            # Weights take longer to be learned than a step may take, and nobody is cut for it.
            told = [seat.step(np.zeros(1, np.float32)) for _ in range(7)]
            assert [each.truncated for each in told] == [False] * 6 + [True]
            assert told[-1].reason == ""
        seat.close()
        enough(learner, len(learner.batches) + 1)
    assert learner.wrong == []


@pytest.mark.parametrize(
    "options, code, why",
    [
        (["--rllink-mode", "drive"], 2, "--rllink-mode was given, but no server"),
        (["--rllink", "nowhere:port"], 78, "is not a server's address"),
        (["--rllink", "192.0.2.1:5555"], 78, "is not on this host"),
        (["--rllink", "127.0.0.1:5555", "--rllink-activation", "tan"], 78, "tan"),
        (["--rllink", "127.0.0.1:5555", "--rllink-head-activation", "tan"], 78, "tan"),
        (
            ["--rllink", "127.0.0.1:5555", "--rllink-mode", "observe", "--no-rllink-normalize-actions"],
            2,
            "--rllink-normalize-actions means nothing in the mode observe",
        ),
        (["--rllink", "127.0.0.1:5555", "--rllink-tls-ca", "ca.pem"], 78, "an address without TLS"),
        (
            ["--rllink", "tls://127.0.0.1:5555", "--rllink-tls-ca", "missing.pem"],
            78,
            "cannot read missing.pem",
        ),
        (["--rllink", "127.0.0.1:5555", "--rllink-dialect", "xml"], 2, "xml"),
    ],
)
def test_what_cannot_work_is_told_at_once(options: list[str], code: int, why: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ospbridge", "connect", "--simulator", "127.0.0.1:1", *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == code, run.stderr
    assert why in run.stderr
