"""`ospbridge connect --record`: the files hold what the environments at the hub saw, whoever dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.hub.status import RecordingStatus
from ospbridge.record.reading import read_recording, recorded_files
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, await_line, run_program, seat_of, start, values

if TYPE_CHECKING:
    from ospbridge.osp.profile import Profile
    from ospbridge.record.episode import RecordedEpisode

assert ospbridge.__version__
pytestmark = pytest.mark.loopback

PLAYER = """
import sys
import gymnasium, numpy as np, ospbridge
agent, directory, episodes = sys.argv[1], sys.argv[2], int(sys.argv[3])
env = gymnasium.make("ospbridge/Agent-v0", agent=agent, record=directory)
random = np.random.default_rng(len(agent) + ord(agent[-1]))
for number in range(episodes):
    env.reset(seed=number + 1)
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(env.action_space.low + np.float32(random.integers(2)))
        ended = terminated or truncated
env.close()
"""


def recording(daemon: Daemon) -> RecordingStatus:
    found = daemon.status().recording
    assert found is not None
    return found


def await_recorded(daemon: Daemon, count: int) -> None:
    give_up = time.monotonic() + 20
    while (found := recording(daemon)).recorded < count:
        assert time.monotonic() < give_up, found
        time.sleep(0.02)
    assert (found.recorded, found.dropped) == (count, 0)


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
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile) as simulator,
        Daemon(simulator.address, "--record", str(tmp_path / "told"), directory=tmp_path) as daemon,
    ):
        env = gymnasium.make("ospbridge/Agent-v0", record=str(tmp_path / "mine"))
        for number in range(4):
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
        await_recorded(daemon, 6)
        assert recording(daemon).directory == str(tmp_path / "told")
    told, mine = list(read_recording(tmp_path / "told")), list(read_recording(tmp_path / "mine"))
    assert [episode.how for episode in told] == ["terminated"] * 4 + ["abandoned"] * 2
    assert {episode.simulator for episode in told} == {str(simulator.address)}
    assert_alike(told, mine)


def test_of_a_scenario_it_records_what_the_task_made_of_the_simulator(
    profile: Profile, tmp_path: Path
) -> None:
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile) as simulator,
        Daemon(
            *(simulator.address, "--scenario", "cartpole", "--record", str(tmp_path / "told")),
            directory=tmp_path,
        ) as daemon,
    ):
        env = gymnasium.make("ospbridge/Agent-v0", record=str(tmp_path / "mine"))
        assert isinstance(env.action_space, gymnasium.spaces.Discrete)
        for number in range(3):
            env.reset(seed=number + 1)
            ended = False
            while not ended:
                _, _, ended, _, _ = env.step(np.int64(number % 2))
        env.close()
        await_recorded(daemon, 3)
    told, mine = list(read_recording(tmp_path / "told")), list(read_recording(tmp_path / "mine"))
    assert {episode.how for episode in told} == {"terminated"}
    assert (told[0].rewards == 1.0).all()
    assert told[1].actions.dtype == np.int64
    assert_alike(told, mine)


def test_two_agents_of_two_processes_are_recorded_each_for_itself(profile: Profile, tmp_path: Path) -> None:
    with (
        UdpSimulator(GymWorld(["CartPole-v1", "CartPole-v1"]), port=0, profile=profile) as simulator,
        Daemon(
            *(simulator.address, "--quorum", "2", "--record", str(tmp_path / "told")), directory=tmp_path
        ) as daemon,
    ):
        names = [agent.name for agent in daemon.status().agents]
        assert len(names) == 2
        players = [
            subprocess.Popen([sys.executable, "-c", PLAYER, name, str(tmp_path / "mine"), "3"])
            for name in names
        ]
        try:
            assert [player.wait(40) for player in players] == [0, 0]
        finally:
            for player in players:
                player.kill()
                player.wait()
        await_recorded(daemon, 6)
    for name in names:
        told, mine = (
            [episode for episode in read_recording(tmp_path / directory) if episode.agent == name]
            for directory in ("told", "mine")
        )
        assert len(told) == 3
        assert_alike(told, mine)


def test_of_an_environment_that_was_killed_the_episode_is_abandoned(
    document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, "--record", str(tmp_path / "out"), directory=tmp_path) as daemon:
        player = start("agent1", 1_000_000, 0.5)
        await_line(player, "attached")
        await_line(player, "playing")
        time.sleep(0.3)
        player.kill()
        player.communicate()
        await_recorded(daemon, 1)
        (episode,) = read_recording(tmp_path / "out")
        assert (episode.agent, episode.seed, episode.how) == ("agent1", 5, "abandoned")
        assert episode.reason == "the connection to its environment ended"
        assert len(episode) > 0
        assert (episode.actions == 0.5).all()
        assert episode.truncated.tolist() == [False] * (len(episode) - 1) + [True]


def test_a_simulator_that_is_lost_truncates_with_the_reason_that_was_told(
    profile: Profile, tmp_path: Path
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile) as simulator:
        daemon = Daemon(simulator.address, "--record", str(tmp_path / "out"), directory=tmp_path)
        seat = seat_of("agent")
        seen = [seat.reset(1).observation, seat.step(values(0.5)).observation]
    with daemon:
        cut = seat.step(values(0.25))
        assert cut.truncated
        await_recorded(daemon, 1)
        (episode,) = read_recording(tmp_path / "out")
        assert (episode.how, episode.reason) == ("truncated", cut.reason)
        np.testing.assert_array_equal(episode.observations, [*seen, cut.observation])
        np.testing.assert_array_equal(episode.actions, [values(0.5), values(0.25)])
        assert np.isnan(episode.infos[2]).all()
        seat.close()
        assert daemon.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_told_to_stop_it_writes_what_is_under_way(
    document: UdpSimulator, tmp_path: Path, number: int
) -> None:
    with Daemon(
        *(document.address, "--quorum", "2", "--record", str(tmp_path / "out")), directory=tmp_path
    ) as daemon:
        players = [start(name, 1_000_000, 0.5) for name in ("agent1", "agent2")]
        try:
            for line in ("attached", "playing"):
                for player in players:
                    await_line(player, line)
            time.sleep(0.3)
            assert daemon.end(number) == 0
        finally:
            for player in players:
                player.kill()
                player.communicate()
        steps = {line["agent"]: line["steps"] for line in daemon.lines("episode")}
        (ended,) = daemon.lines("recording ended")
    told = list(read_recording(tmp_path / "out"))
    assert steps.keys() == {"agent1", "agent2"}
    assert {episode.agent: len(episode) for episode in told} == steps
    assert {(episode.how, episode.reason) for episode in told} == {("abandoned", "the daemon was stopped")}
    assert (ended["recorded"], ended["dropped"]) == (2, 0)
    assert {file.suffix for file in (tmp_path / "out").iterdir()} == {".npz"}


def test_after_kill_9_every_episode_that_was_recorded_can_be_read(
    document: UdpSimulator, tmp_path: Path
) -> None:
    for round_ in range(3):
        out = tmp_path / str(round_)
        with Daemon(document.address, "--record", str(out), directory=tmp_path) as daemon:
            seat = seat_of("agent1")
            finished = 0
            while finished < 5 + round_:
                for seed in range(10):
                    seat.reset(seed + 1)
                    seat.step(values(0.5))
                finished = recording(daemon).recorded
            daemon.process.kill()
            daemon.process.wait(10)
            seat.close()
        assert len(list(read_recording(out))) >= finished
        half = [file.name for file in out.iterdir() if file not in recorded_files(out)]
        assert len(half) <= 1
        assert all(name.startswith(".") and name.endswith(".part") for name in half)


def test_a_disk_that_fails_costs_episodes_but_not_the_daemon(document: UdpSimulator, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Daemon(document.address, "--record", str(out), directory=tmp_path) as daemon:
        seat = seat_of("agent1")

        def play() -> None:
            seat.reset(1)
            assert not seat.step(values(0.5)).truncated

        def await_dropped(count: int) -> None:
            give_up = time.monotonic() + 20
            while recording(daemon).dropped < count:
                assert time.monotonic() < give_up
                time.sleep(0.02)

        out.rmdir()
        for _ in range(4):
            play()
        await_dropped(3)
        (error,) = daemon.lines("episodes are not recorded")
        assert (error["level"], error["dropped"]) == ("error", 1)
        assert str(out) in error["reason"]
        assert error["hint"]
        out.mkdir()
        play()
        assert recording(daemon).dropped == 3
        seat.close()
        assert daemon.end() == 0
        assert len(daemon.lines("episodes are recorded again")) == 1
    assert len(list(read_recording(out))) == 2


def test_status_says_what_was_recorded_and_where_to(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, "--record", str(tmp_path / "out"), directory=tmp_path) as daemon:
        seat = seat_of("agent1")
        seat.reset(1)
        seat.step(values(0.5))
        seat.close()
        await_recorded(daemon, 1)
        told = json.loads(run_program("status", "--json").stdout)["recording"]
        assert told == {"directory": str(tmp_path / "out"), "recorded": 1, "dropped": 0}
        assert f"recording   {tmp_path / 'out'}: 1 episode, 0 dropped" in run_program("status").stdout


def test_status_says_nothing_of_it_where_nothing_is_recorded(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, directory=tmp_path):
        assert json.loads(run_program("status", "--json").stdout)["recording"] is None
        assert "recording" not in run_program("status").stdout
