"""``ospbridge connect --rllink-mode observe`` with a simulator, environments and a sink, killed again and again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError, OspBridgeError, UsageError
from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.sink_process import SinkProcess
from tests.daemon.running import Daemon, run_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.record.episode import RecordedEpisode

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]
WITHIN = 30.0
SHORT = 'name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 20\n'


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as running:
        yield running


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Episodes of 20 steps."""
    scenario = tmp_path / "short.toml"
    scenario.write_text(SHORT)
    return ["--scenario", str(scenario), "--rllink-mode", "observe"]


class Player:
    """An environment that keeps what it gave and saw of every episode that ended."""

    def __init__(self) -> None:
        self.env = gymnasium.make("ospbridge/Agent-v0", annotates=True, wait=WITHIN)
        self.ended: list[dict[str, Any]] = []
        self._random = np.random.default_rng(4)

    def episode(self, *, seed: int) -> None:
        observation, _ = self.env.reset(seed=seed)
        seen: dict[str, list[Any]] = {
            "observations": [observation],
            "actions": [],
            "rewards": [],
            "logps": [],
            "inputs": [],
        }
        over = False
        while not over:
            # Beyond the bounds: what was drawn goes upstream, not what is left of it.
            action = self._random.uniform(-2, 2, 2).astype(np.float32)
            logp, inputs = float(np.float32(self._random.normal())), self._random.normal(size=4).astype("f4")
            unwrapped: Any = self.env.unwrapped
            unwrapped.annotate(action_logp=logp, action_dist_inputs=inputs, weights_seq_no=seed)
            observation, reward, terminated, truncated, _ = self.env.step(action)
            for name, value in zip(seen, (observation, action, reward, logp, inputs), strict=True):
                seen[name].append(value)
            over = terminated or truncated
        self.ended.append(seen)


def key(seen: dict[str, Any]) -> bytes:
    """All that an environment knows of an episode."""
    kinds = {"observations": "f4", "actions": "f4", "rewards": "f8", "logps": "f4", "inputs": "f4"}
    return b"".join(np.array(seen[name], kind).tobytes() for name, kind in kinds.items())


def key_of(episode: RecordedEpisode) -> bytes:
    assert episode.action_logp is not None
    assert episode.action_dist_inputs is not None
    columns = (episode.observations, episode.actions, episode.rewards)
    return b"".join(c.tobytes() for c in (*columns, episode.action_logp, episode.action_dist_inputs))


def until(condition: Callable[[], object], daemon: Daemon | None = None) -> None:
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up, daemon and daemon.log.read_text()[-3000:]
        time.sleep(0.02)


def waiting(daemon: Daemon) -> int:
    """Episodes that have not arrived."""
    (upstream,) = daemon.status().upstreams
    assert upstream.spool is not None
    return upstream.spool.entries + upstream.spool.unwritten


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_sink_that_is_killed_has_every_episode_once_all_the_same(
    simulator: UdpSimulator, options: list[str], tmp_path: Path
) -> None:
    sink = SinkProcess(tmp_path / "in")
    options += ["--rllink", sink.address]
    with Daemon(simulator.address, *options, directory=tmp_path) as daemon, sink:
        player = Player()
        for seed in (1, 2):
            before = sink.files
            for _ in range(6):
                player.episode(seed=seed)
            until(partial(sink.more_than, before), daemon)
            sink.kill()
            player.episode(seed=seed)
            sink.start()
        player.env.close()
        until(lambda: not waiting(daemon), daemon)
        (upstream,) = daemon.status().upstreams
        assert upstream.delivered >= 14 * 20
        assert upstream.discarded == 0
        assert daemon.end() == 0
    found = list(read_recording(sink.directory))
    assert len({episode.id for episode in found}) == len(found) == 14
    assert sorted(map(key_of, found)) == sorted(map(key, player.ended))
    assert {episode.agent for episode in found} == {"agent"}
    assert {episode.simulator for episode in found} == {str(simulator.address)}
    assert not list(sink.directory.glob(".*.part"))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_daemon_that_is_killed_again_and_again_loses_nothing_that_was_spooled(
    simulator: UdpSimulator, options: list[str], tmp_path: Path
) -> None:
    sink = SinkProcess(tmp_path / "in")
    options += ["--rllink", sink.address, "--rllink-spool", str(tmp_path / "spool")]
    player = None
    for seed in range(1, 6):
        with Daemon(simulator.address, *options, directory=tmp_path) as daemon:
            player = player or Player()
            if seed == 3:
                sink.start()
            for _ in range(5):
                player.episode(seed=seed)
            until(partial(all_spooled, daemon), daemon)
            daemon.process.kill()
            daemon.process.wait(10)
    assert player is not None
    with sink, Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        until(lambda: not waiting(daemon), daemon)
        player.env.close()
    found = list(read_recording(sink.directory))
    assert len({episode.id for episode in found}) == len(found) == 25
    assert sorted(map(key_of, found)) == sorted(map(key, player.ended))


def all_spooled(daemon: Daemon) -> bool:
    (upstream,) = daemon.status().upstreams
    assert upstream.spool is not None
    return not upstream.spool.unwritten


@pytest.mark.slow
def test_what_waited_for_the_whole_life_of_a_daemon_is_sent_by_the_next_one(
    simulator: UdpSimulator, options: list[str], tmp_path: Path, runtime_directory: Path
) -> None:
    sink = SinkProcess(tmp_path / "in")
    options += ["--rllink", sink.address]
    with Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        player = Player()
        player.episode(seed=1)
        player.env.reset(seed=2)
        unwrapped: Any = player.env.unwrapped
        unwrapped.annotate(action_logp=0.0, action_dist_inputs=np.zeros(4))
        player.env.step(np.zeros(2, np.float32))
        shown = run_program("status").stdout
        assert f"upstream    observe {sink.address}: " in shown
        assert re.search(r"\d+ episodes? waits? in", shown)
        told = json.loads(run_program("status", "--json").stdout)
        spool = told["upstreams"][0]["spool"]
        assert spool["file"].startswith(str(runtime_directory / "ospbridge" / "spool-127.0.0.1-"))
        assert daemon.end() == 0
    with sink, Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        until(lambda: sink.files == 2, daemon)
    whole, cut = read_recording(sink.directory)
    assert key_of(whole) == key(player.ended[0])
    assert (len(cut), cut.how) == (1, "truncated")


def test_an_environment_that_does_not_annotate_is_told_what_to_do(
    simulator: UdpSimulator, options: list[str], tmp_path: Path
) -> None:
    options += ["--rllink", "127.0.0.1:1"]
    with Daemon(simulator.address, *options, directory=tmp_path):
        with pytest.raises(UsageError, match="needs action_logp") as refused:
            gymnasium.make("ospbridge/Agent-v0")
        assert "annotates=True" in refused.value.hint
        assert "--rllink-unannotated" in refused.value.hint
        env = gymnasium.make("ospbridge/Agent-v0", annotates=True)
        env.reset(seed=1)
        with pytest.raises(LocalProtocolError, match="'agent' was attached with annotates=True"):
            env.step(env.action_space.sample())
        unwrapped: Any = env.unwrapped
        unwrapped.annotate(action_logp=0.0, action_dist_inputs=np.zeros(3))
        with pytest.raises(LocalProtocolError, match="must have 4 numbers in action_dist_inputs, got 3"):
            env.step(env.action_space.sample())
        env.close()


def test_a_sink_takes_environments_that_annotate_nothing(
    simulator: UdpSimulator, options: list[str], tmp_path: Path
) -> None:
    sink = SinkProcess(tmp_path / "in")
    options += ["--rllink", sink.address, "--rllink-unannotated"]
    with sink, Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        env = gymnasium.make("ospbridge/Agent-v0")
        env.reset(seed=1)
        ends = [env.step(env.action_space.sample())[3] for _ in range(20)]
        assert ends == [False] * 19 + [True]
        until(lambda: sink.files == 1, daemon)
        env.close()


@pytest.mark.parametrize(
    "options, code, why",
    [
        (["--rllink-greedy"], 2, "--rllink-greedy means nothing in the mode observe"),
        (["--rllink-spool-limit", "much"], 2, "'much' is no size"),
        (["--rllink-spool", "/proc/none/spool"], 78, "the spool /proc/none/spool cannot be opened"),
        (["--rllink-spool-full", "wait"], 2, "wait"),
    ],
)
def test_what_cannot_work_is_told_at_once(options: list[str], code: int, why: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "ospbridge", "connect", "--simulator", "127.0.0.1:1"),
            *("--rllink", "127.0.0.1:1", "--rllink-mode", "observe", *options),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == code, run.stderr
    assert why in run.stderr


def test_no_step_is_refused_because_others_are_observed(
    simulator: UdpSimulator, options: list[str], tmp_path: Path
) -> None:
    options += ["--rllink", "127.0.0.1:1", "--rllink-agents", "nobody*"]
    with Daemon(simulator.address, *options, directory=tmp_path):
        env = gymnasium.make("ospbridge/Agent-v0")
        unwrapped: Any = env.unwrapped
        with pytest.raises(UsageError, match="without annotates=True"):
            unwrapped.annotate(action_logp=0.0, action_dist_inputs=np.zeros(4))
        env.reset(seed=1)
        env.step(env.action_space.sample())
        env.close()
    with pytest.raises(OspBridgeError, match="no daemon listens"):
        gymnasium.make("ospbridge/Agent-v0", annotates=True)
