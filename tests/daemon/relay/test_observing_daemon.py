"""``ospbridge connect --rllink-mode observe`` with a simulator, environments and a sink, killed again and again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.errors import OspBridgeError
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.driving import WITHIN
from tests.daemon.running import Daemon, SinkProcess, until

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]
SHORT = 'name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 20\n'


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as running:
        yield running


@pytest.fixture
def sink(tmp_path: Path) -> SinkProcess:
    """It does not run yet."""
    return SinkProcess(tmp_path / "in")


@pytest.fixture
def daemon(simulator: UdpSimulator, sink: SinkProcess, tmp_path: Path) -> Callable[[], Daemon]:
    """Makes one that observes episodes of 20 steps for the sink."""
    scenario = tmp_path / "short.toml"
    scenario.write_text(SHORT)
    options = ["--scenario", str(scenario), "--rllink-mode", "observe", "--rllink", sink.address]
    return lambda: Daemon(simulator.address, *options, directory=tmp_path)


class Player:
    """An environment that keeps all that it gave and saw of every episode that ended, as bytes."""

    def __init__(self) -> None:
        self.env = gymnasium.make("ospbridge/Agent-v0", annotates=True, wait=WITHIN)
        self.ended: list[bytes] = []
        self._random = np.random.default_rng(4)

    def step(self, action: Any, logp: float, inputs: Any, weights: int = 0) -> Any:
        unwrapped: Any = self.env.unwrapped
        unwrapped.annotate(action_logp=logp, action_dist_inputs=inputs, weights_seq_no=weights)
        return self.env.step(action)

    def episode(self, *, seed: int) -> None:
        observations, actions, rewards, logps, noted = [self.env.reset(seed=seed)[0]], [], [], [], []
        over = False
        while not over:
            # Beyond the bounds: what was drawn goes upstream, not what is left of it.
            actions.append(self._random.uniform(-2, 2, 2))
            logps.append(float(np.float32(self._random.normal())))
            noted.append(self._random.normal(size=4).astype("f4"))
            action = actions[-1].astype(np.float32)
            observation, reward, terminated, truncated, _ = self.step(action, logps[-1], noted[-1], seed)
            observations.append(observation)
            rewards.append(reward)
            over = terminated or truncated
        columns = zip(
            (observations, actions, rewards, logps, noted), ("f4", "f4", "f8", "f4", "f4"), strict=True
        )
        self.ended.append(b"".join(np.array(column, kind).tobytes() for column, kind in columns))


def content(episode: RecordedEpisode) -> bytes:
    assert episode.action_logp is not None
    assert episode.action_dist_inputs is not None
    columns = (episode.observations, episode.actions, episode.rewards)
    return b"".join(c.tobytes() for c in (*columns, episode.action_logp, episode.action_dist_inputs))


def waiting(daemon: Daemon) -> tuple[int, int]:
    """Episodes in the spool, and those that are still to be written there."""
    (upstream,) = daemon.status().upstreams
    assert upstream.spool is not None
    return upstream.spool.entries, upstream.spool.unwritten


def test_a_sink_that_is_killed_has_every_episode_once_all_the_same(
    simulator: UdpSimulator, sink: SinkProcess, daemon: Callable[[], Daemon]
) -> None:
    with daemon() as running, sink:
        player = Player()
        for _ in range(6):
            player.episode(seed=1)
        until(lambda: sink.files > 0)
        sink.kill()
        player.episode(seed=2)
        sink.start()
        player.episode(seed=3)
        player.env.close()
        until(lambda: waiting(running) == (0, 0))
        (upstream,) = running.status().upstreams
        assert upstream.delivered >= 8 * 20
        assert upstream.discarded == 0
        assert running.end() == 0
    found = list(read_recording(sink.directory))
    assert len({episode.id for episode in found}) == len(found) == 8
    assert sorted(map(content, found)) == sorted(player.ended)
    assert {(episode.agent, episode.simulator) for episode in found} == {("agent", str(simulator.address))}
    assert not list(sink.directory.glob(".*.part"))


def test_daemons_that_are_killed_and_ended_lose_nothing_that_was_spooled_and_the_next_one_sends_it(
    sink: SinkProcess, daemon: Callable[[], Daemon], runtime_directory: Path
) -> None:
    with daemon() as running:
        player = Player()
        for _ in range(3):
            player.episode(seed=1)
        until(lambda: waiting(running) == (3, 0))
        running.kill()
    with daemon() as running:
        player.episode(seed=2)
        player.env.reset(seed=3)
        player.step(np.zeros(2, np.float32), 0.0, np.zeros(4))
        until(lambda: waiting(running) == (4, 0))
        shown = CliRunner().invoke(main, ["status"]).stdout
        assert f"upstream    observe {sink.address}: " in shown
        assert "4 episodes wait in" in shown
        told = json.loads(CliRunner().invoke(main, ["status", "--json"]).stdout)
        file = told["upstreams"][0]["spool"]["file"]
        assert file.startswith(str(runtime_directory / "ospbridge" / "spool-127.0.0.1-"))
        assert running.end() == 0
    with sink, daemon() as running:
        until(lambda: sink.files == 5 and waiting(running) == (0, 0))
        with suppress(OspBridgeError):
            player.env.close()
    *whole, cut = read_recording(sink.directory)
    assert [content(episode) for episode in whole] == player.ended
    assert (len(cut), cut.how) == (1, "truncated")
