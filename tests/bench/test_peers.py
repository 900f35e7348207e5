"""Other ways to an environment in another process, beside ours: which are measured, and what of. Ratios need quiet."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.bench import peers
from ospbridge.bench.peers import ASYNC_VECTOR, DIRECT, DM_ENV_RPC, HUB, measure_peers, not_installed
from ospbridge.bench.peers_client import Nothing
from ospbridge.bench.processes import Program
from ospbridge.cli import main

pytestmark = pytest.mark.loopback

THERE = find_spec("dm_env_rpc") is not None
NAMES = [DIRECT, HUB, ASYNC_VECTOR, *([DM_ENV_RPC] if THERE else [])]


@pytest.fixture
def without_dm_env_rpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.NEEDED, DM_ENV_RPC, ("no_such_module", "no-such-distribution"))


def test_what_is_installed_is_measured_and_compared_in_steps_a_second() -> None:
    report = measure_peers(inputs=3, outputs=4, steps=50, runs=1)
    assert [row.name for row in report.rows] == NAMES
    for row in report.rows:
        assert row.values["p50_us"] <= row.values["p99_us"]
        assert row.ratios["AsyncVectorEnv"] == pytest.approx(
            row.values["steps_per_second"] / report.row(ASYNC_VECTOR).values["steps_per_second"]
        )


def test_a_peer_that_is_not_installed_is_told_with_what_to_install(without_dm_env_rpc: None) -> None:
    assert not_installed() == {DM_ENV_RPC: "pip install no-such-distribution"}
    told: list[str] = []
    report = measure_peers(steps=20, runs=1, told=told.append)
    assert told == [DIRECT, HUB, ASYNC_VECTOR] == [row.name for row in report.rows]
    assert report.ratios == ("AsyncVectorEnv",)
    assert "dm_env_rpc was not measured: pip install no-such-distribution" in report.notes


def test_the_command_prints_a_table_and_json(without_dm_env_rpc: None) -> None:
    few = ["bench", "peers", "--steps", "20", "--runs", "1"]
    result = CliRunner().invoke(main, few)
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head.endswith("x AsyncVectorEnv")
    assert [line.partition("  ")[0] for line in lines] == [DIRECT, HUB, ASYNC_VECTOR]
    assert "pip install no-such-distribution" in result.stderr
    figures = json.loads(CliRunner().invoke(main, [*few, "--json"]).stdout)
    assert figures["measured"] == "peers"
    assert [each["name"] for each in figures["subjects"]] == [DIRECT, HUB, ASYNC_VECTOR]


def test_the_environment_of_the_peers_computes_nothing_in_the_spaces_of_a_responder() -> None:
    env = Nothing(8, 16)
    observation, _ = env.reset(seed=1)
    again, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert env.observation_space.contains(again)
    np.testing.assert_array_equal(observation, again)
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_the_server_of_dm_env_rpc_tells_its_spaces_and_answers_steps() -> None:
    pytest.importorskip("dm_env_rpc", reason="pip install dm-env-rpc")
    script = (
        "import sys, numpy as np\n"
        "from dm_env_rpc.v1 import connection, dm_env_adaptor\n"
        "with connection.create_secure_channel_and_connect(sys.argv[1], timeout=20) as joined:\n"
        "    env = dm_env_adaptor.join_world(joined, dm_env_adaptor.create_world(joined, {}), {})\n"
        "    print(env.action_spec()['action'].shape, env.observation_spec()['observation'].shape)\n"
        "    env.reset()\n"
        "    print(env.step({'action': np.zeros(3, np.float32)}).observation['observation'].tolist())\n"
        "    env.close()\n"
    )
    with Program("ospbridge.bench.peers_server", "--inputs", "3", "--outputs", "2") as server:
        address = server.line(20.0)
        # gRPC starts threads: not in this process, which forks in other tests.
        told = subprocess.run(
            [sys.executable, "-c", script, address], capture_output=True, text=True, timeout=30, check=True
        )
    assert told.stdout.splitlines() == ["(3,) (2,)", "[0.0, 0.0]"]
