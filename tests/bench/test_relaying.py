"""What relaying and driving cost: who is measured, by whose clock, and what is said where Ray is missing. No times."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.bench import relaying
from ospbridge.bench.processes import Program, ProgramFailed
from ospbridge.bench.relaying import (
    CART_POLE,
    DRIVEN,
    RAYS,
    WHILE_IT_SLEEPS,
    measure_driving,
    measure_relaying,
)
from ospbridge.bench.relaying_learner import Batch, network
from ospbridge.bench.subjects import IN_EPISODES, RELAYED, SPINNING_FLOOR
from ospbridge.cli import main
from ospbridge.policy.architecture import read_architecture
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.messages import EpisodesAndGetState, GetState
from tests.rllink.episodes import episode

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.loopback

NO_RAY = """#!/bin/sh
echo "no module named ray" >&2
exit 1
"""


def test_the_network_has_two_hidden_layers_of_64() -> None:
    architecture = read_architecture(network(16, 12))
    assert [(layer.inputs, layer.outputs) for layer in architecture.encoder] == [(16, 64), (64, 64)]
    assert (architecture.inputs, architecture.outputs) == (16, 12)


def test_the_learner_takes_the_time_from_weights_to_batch() -> None:
    with Program("ospbridge.bench.relaying_learner", "--observations", "4", "--dist-inputs", "3") as learner:
        host, port = learner.line(20.0).split(":")
        for _ in range(2):
            with socket.create_connection((host, int(port)), timeout=10.0) as sock:
                sock.sendall(MSGPACK.encode(GetState()))
                assert sock.recv(100)
                sock.sendall(MSGPACK.encode(EpisodesAndGetState((episode(7), episode(5, seed=1)))))
                batch = msgspec.json.decode(learner.line(10.0), type=Batch)
            assert batch.steps == 12
            assert batch.seconds > 0.0


def test_a_batch_that_comes_in_pieces_is_timed_from_the_weights_all_the_same() -> None:
    with Program("ospbridge.bench.relaying_learner", "--observations", "4", "--dist-inputs", "3") as learner:
        host, port = learner.line(20.0).split(":")
        with socket.create_connection((host, int(port)), timeout=10.0) as sock:
            sock.sendall(MSGPACK.encode(GetState()))
            assert sock.recv(100)
            written = MSGPACK.encode(EpisodesAndGetState((episode(7),)))
            sock.sendall(written[:20])
            time.sleep(0.3)
            sock.sendall(written[20:])
            batch = msgspec.json.decode(learner.line(10.0), type=Batch)
    assert batch.steps == 7
    # Little of the sleep may be over when the learner looks at its clock.
    assert batch.seconds > 0.2


def test_what_is_no_rllink_costs_one_client_its_connection_only() -> None:
    with Program("ospbridge.bench.relaying_learner") as learner:
        host, port = learner.line(20.0).split(":")
        with socket.create_connection((host, int(port)), timeout=10.0) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while sock.recv(100):
                pass
        with socket.create_connection((host, int(port)), timeout=10.0) as sock:
            sock.sendall(MSGPACK.encode(GetState()))
            assert sock.recv(100)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured warms up hardly, and starts once: for its figures nobody cares here."""
    monkeypatch.setattr(relaying, "WARM_UP", 100)
    monkeypatch.setattr(relaying, "STARTS", 1)


def test_relaying_is_compared_with_episodes_that_go_nowhere(briefly: None) -> None:
    report = measure_relaying(steps=150, runs=1)
    assert [row.name for row in report.rows] == [IN_EPISODES, RELAYED, *WHILE_IT_SLEEPS.values()]
    for plain, relayed in (report.rows[:2], report.rows[2:]):
        assert plain.ratios == {}
        assert relayed.ratios == {
            "unrelayed": pytest.approx(relayed.values["p50_us"] / plain.values["p50_us"]),
            "unrelayed steps/s": pytest.approx(
                relayed.values["steps_per_second"] / plain.values["steps_per_second"]
            ),
        }
        assert relayed.over == {plain.name: pytest.approx(relayed.values["p50_us"] - plain.values["p50_us"])}


def test_the_daemon_drives_an_agent_of_the_responder_and_cart_pole() -> None:
    told: list[str] = []
    report = measure_driving(batches=2, runs=1, told=told.append)
    assert told == [row.name for row in report.rows] == [SPINNING_FLOOR, DRIVEN, CART_POLE]
    driven = report.row(DRIVEN)
    assert list(driven.over) == [SPINNING_FLOOR]
    for row in report.rows:
        assert 0.0 < row.values["p50_us"] <= row.values["p99_us"]
    assert any("--ray-python PYTHON" in note for note in report.notes)


def test_a_python_without_ray_is_told_with_what_it_needs(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(NO_RAY)
    python.chmod(0o755)
    with pytest.raises(ProgramFailed, match="failed with exit code 1: no module named ray") as e:
        measure_driving(batches=1, runs=1, ray_python=str(python))
    assert "ray[rllib]" in e.value.hint
    with pytest.raises(ProgramFailed, match="cannot be started: No such file"):
        measure_driving(batches=1, runs=1, ray_python=str(tmp_path / "nobody"))


def test_a_client_of_rays_that_ends_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    # It makes what is sent, and then cannot play.
    python.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys, numpy\n"
        "if sys.argv[2] == 'make':\n"
        "    pathlib.Path(sys.argv[3]).write_bytes(b'a pickle')\n"
        "    numpy.savez(sys.argv[4], weight=numpy.zeros(3, numpy.float32))\n"
        "else:\n"
        "    sys.exit('no luck')\n"
    )
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaying, "WITHIN", 5.0)
        with pytest.raises(ProgramFailed, match="Ray's own client ended with exit code 1: no luck"):
            measure_driving(batches=1, runs=1, ray_python=str(python))


def test_the_command_prints_both_reports(briefly: None) -> None:
    few = ["bench", "relay", "--steps", "110", "--batches", "1", "--runs", "1"]
    result = CliRunner().invoke(main, [*few, "--json"])
    assert result.exit_code == 0, result.output
    relayed, driven = json.loads(result.stdout)["reports"]
    assert (relayed["measured"], driven["measured"]) == ("relay", "drive")
    assert RAYS not in [each["name"] for each in driven["subjects"]]
    assert np.isfinite([each["p50_us"] for each in driven["subjects"]]).all()
