"""A daemon that records: the files hold what the environments at the hub saw, whoever dies."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import OspBridgeError
from ospbridge.osp.profile import Profile
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.reading import read_recording, recorded_files
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, LocalDaemon, at_once, run_here, seat_of, until, values

pytestmark = pytest.mark.loopback


def await_recorded(daemon: LocalDaemon | Daemon, count: int) -> None:
    def found() -> tuple[int, int]:
        recording = daemon.status().recording
        assert recording is not None
        return recording.recorded, recording.dropped

    until(lambda: found()[0] >= count, found)
    assert found() == (count, 0)


def assert_alike(told: list[RecordedEpisode], mine: list[RecordedEpisode]) -> None:
    """What the daemon recorded is what the environment recorded of itself."""
    assert len(told) == len(mine)
    for one, other in zip(told, mine, strict=True):
        for name in ("agent", "seed", "how", "reason", "info_names"):
            assert getattr(one, name) == getattr(other, name), name
        for name in ("observations", "actions", "rewards", "terminated", "truncated", "infos"):
            array = getattr(one, name)
            assert array.dtype == getattr(other, name).dtype
            np.testing.assert_array_equal(array, getattr(other, name), name)
        for name in ("observation_space", "action_space"):
            assert repr(getattr(one, name)) == repr(getattr(other, name))


def test_it_records_what_an_environment_at_its_hub_records_of_itself(
    profile: Profile, tmp_path: Path
) -> None:
    told, mine = tmp_path / "told", tmp_path / "mine"
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile) as simulator,
        LocalDaemon(simulator.address, record=told) as daemon,
    ):
        env = gymnasium.make("ospbridge/Agent-v0", record=str(mine))
        for number in range(3):
            env.reset(seed=number + 1)
            ended = False
            while not ended:
                _, _, terminated, truncated, _ = env.step(np.array([number % 2], np.float32))
                ended = terminated or truncated
        for _ in range(2):
            # One is reset before its end, one closed.
            env.reset(seed=9)
            env.step(np.ones(1, np.float32))
        env.close()
        await_recorded(daemon, 5)
        status = json.loads(run_here("status", "--json").stdout)["recording"]
        assert status == {"directory": str(told), "recorded": 5, "dropped": 0}
        assert f"recording   {told}: 5 episodes, 0 dropped" in run_here("status").stdout
    recorded = list(read_recording(told))
    assert [episode.how for episode in recorded] == ["terminated"] * 3 + ["abandoned"] * 2
    assert {episode.simulator for episode in recorded} == {str(simulator.address)}
    assert_alike(recorded, list(read_recording(mine)))


def test_told_to_stop_it_writes_what_is_under_way(document: UdpSimulator, tmp_path: Path) -> None:
    def play(name: str) -> None:
        with closing(seat_of(name)) as seat, suppress(OspBridgeError):
            seat.reset(5)
            while True:
                seat.step(values(0.5))

    with LocalDaemon(document.address, quorum=2, record=tmp_path / "out") as daemon:

        def end() -> None:
            until(lambda: daemon.conductor.steps > 2)
            assert daemon.end() == 0

        at_once(partial(play, "agent1"), partial(play, "agent2"), end)
        steps = {line["agent"]: line["steps"] for line in daemon.lines("episode")}
        (ended,) = daemon.lines("recording ended")
    told = list(read_recording(tmp_path / "out"))
    assert {episode.agent: len(episode) for episode in told} == steps
    assert steps.keys() == {"agent1", "agent2"}
    assert {(episode.how, episode.reason) for episode in told} == {("abandoned", "the daemon was stopped")}
    assert (ended["recorded"], ended["dropped"]) == (2, 0)
    assert {file.suffix for file in (tmp_path / "out").iterdir()} == {".npz"}


def test_after_kill_9_every_episode_that_was_recorded_can_be_read(
    document: UdpSimulator, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--record", str(out))
    with Daemon(document.address, *options, directory=tmp_path) as daemon, closing(seat_of("agent1")) as seat:
        finished = 0
        while finished < 6:
            for seed in range(10):
                seat.reset(seed + 1)
                seat.step(values(0.5))
            recording = daemon.status().recording
            assert recording is not None
            finished = recording.recorded
        daemon.kill()
    assert len(list(read_recording(out))) >= finished
    half = [file.name for file in out.iterdir() if file not in recorded_files(out)]
    assert len(half) <= 1
    assert all(name.startswith(".") and name.endswith(".part") for name in half)
