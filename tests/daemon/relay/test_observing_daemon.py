"""``ospbridge connect --rllink-mode observe`` with a simulator, environments and a sink, killed again and again."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.errors import OspBridgeError
from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.driving import WITHIN
from tests.daemon.relay.sink_process import SinkProcess
from tests.daemon.running import Daemon, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.record.episode import RecordedEpisode

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]
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


def all_spooled(daemon: Daemon) -> bool:
    (upstream,) = daemon.status().upstreams
    assert upstream.spool is not None
    return not upstream.spool.unwritten


def waiting(daemon: Daemon) -> int:
    """Episodes that have not arrived."""
    (upstream,) = daemon.status().upstreams
    assert upstream.spool is not None
    return upstream.spool.entries + upstream.spool.unwritten


def test_a_sink_that_is_killed_has_every_episode_once_all_the_same(
    simulator: UdpSimulator, options: list[str], tmp_path: Path
) -> None:
    sink = SinkProcess(tmp_path / "in")
    options += ["--rllink", sink.address]
    with Daemon(simulator.address, *options, directory=tmp_path) as daemon, sink:
        player = Player()
        for _ in range(6):
            player.episode(seed=1)
        until(partial(sink.more_than, 0))
        sink.kill()
        player.episode(seed=2)
        sink.start()
        player.episode(seed=3)
        player.env.close()
        until(lambda: not waiting(daemon))
        (upstream,) = daemon.status().upstreams
        assert upstream.delivered >= 8 * 20
        assert upstream.discarded == 0
        assert daemon.end() == 0
    found = list(read_recording(sink.directory))
    assert len({episode.id for episode in found}) == len(found) == 8
    assert sorted(map(key_of, found)) == sorted(map(key, player.ended))
    assert {episode.agent for episode in found} == {"agent"}
    assert {episode.simulator for episode in found} == {str(simulator.address)}
    assert not list(sink.directory.glob(".*.part"))


def test_daemons_that_are_killed_and_ended_lose_nothing_that_was_spooled_and_the_next_one_sends_it(
    simulator: UdpSimulator, options: list[str], tmp_path: Path, runtime_directory: Path
) -> None:
    sink = SinkProcess(tmp_path / "in")
    options += ["--rllink", sink.address]
    with Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        player = Player()
        for _ in range(3):
            player.episode(seed=1)
        until(lambda: waiting(daemon) == 3 and all_spooled(daemon))
        daemon.process.kill()
        daemon.process.wait(10)
    with Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        player.episode(seed=2)
        player.env.reset(seed=3)
        unwrapped: Any = player.env.unwrapped
        unwrapped.annotate(action_logp=0.0, action_dist_inputs=np.zeros(4))
        player.env.step(np.zeros(2, np.float32))
        until(lambda: waiting(daemon) == 4 and all_spooled(daemon))
        shown = CliRunner().invoke(main, ["status"]).stdout
        assert f"upstream    observe {sink.address}: " in shown
        assert "4 episodes wait in" in shown
        told = json.loads(CliRunner().invoke(main, ["status", "--json"]).stdout)
        spool = told["upstreams"][0]["spool"]
        assert spool["file"].startswith(str(runtime_directory / "ospbridge" / "spool-127.0.0.1-"))
        assert daemon.end() == 0
    with sink, Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        until(lambda: sink.files == 5 and not waiting(daemon))
        with suppress(OspBridgeError):
            player.env.close()
    *whole, cut = read_recording(sink.directory)
    assert [key_of(episode) for episode in whole] == [key(seen) for seen in player.ended]
    assert (len(cut), cut.how) == (1, "truncated")
