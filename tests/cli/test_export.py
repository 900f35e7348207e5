"""`ospbridge export`: the dataset is the recording."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ospbridge.record.reading import read_recording, recorded_files
from tests.cli.programs import invoke
from tests.record.episodes import feedback, play, recorder_into, whose

run = partial(invoke, "export")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three episodes with discrete actions: terminated, truncated, abandoned."""
    directory = tmp_path / "recording"
    recorder = recorder_into(directory, whose())
    play(recorder, 5, seed=1, terminated=True)
    play(recorder, 8, seed=2, first=3.0, truncated=True)
    play(recorder, 1, seed=3)
    recorder.close()
    return directory


def assert_equal(name: str, directory: Path) -> Any:
    import minari

    dataset = minari.load_dataset(name)
    episodes = list(read_recording(directory))
    assert dataset.total_episodes == len(episodes)
    assert dataset.total_steps == sum(len(episode) for episode in episodes)
    for loaded, metadata, episode in zip(
        dataset.iterate_episodes(),
        dataset.storage.get_episode_metadata(range(len(episodes))),
        episodes,
        strict=True,
    ):
        np.testing.assert_array_equal(loaded.observations, episode.observations)
        np.testing.assert_array_equal(loaded.actions, episode.actions)
        np.testing.assert_array_equal(loaded.rewards, episode.rewards)
        np.testing.assert_array_equal(loaded.terminations, episode.terminated)
        np.testing.assert_array_equal(loaded.truncations, episode.truncated)
        assert loaded.observations.dtype == np.float32
        for at, info in enumerate(episode.info_names):
            np.testing.assert_array_equal(
                loaded.infos[info.strip("/").replace("/", ".")], episode.infos[:, at]
            )
        assert metadata["seed"] == episode.seed
    return dataset


def test_the_dataset_loads_and_its_episodes_are_those_of_the_recording(
    recording: Path, datasets: Path
) -> None:
    result = run(recording, "--minari", "cart/random-v0")
    assert result.stdout == (f"cart/random-v0: 3 episodes, 14 steps, in {datasets / 'cart' / 'random-v0'}\n")
    # No environment made it.
    assert result.stderr.count("recover_environment() of the dataset will not work") == 1
    dataset = assert_equal("cart/random-v0", recording)
    assert dataset.action_space.n == 2
    assert dataset.observation_space.shape == (3,)


def test_agents_that_differ_need_datasets_of_their_own(tmp_path: Path, datasets: Path) -> None:
    for agent, outputs in (("cart", 3), ("arm", 5)):
        recorder = recorder_into(tmp_path / "r", whose(agent, outputs=outputs))
        recorder.begin(feedback(0, outputs=outputs))
        recorder.step(1, feedback(1, outputs=outputs, terminated=True))
    mixed = run(tmp_path / "r", "--minari", "mixed-v0", exit_code=2)
    assert "observation space" in mixed.stderr
    assert "--agent" in mixed.stderr
    assert not (datasets / "mixed-v0").exists()
    run(tmp_path / "r", "--minari", "arms-v0", "--agent", "ar*")
    none = run(tmp_path / "r", "--minari", "none-v0", "--agent", "robot*", exit_code=2)
    assert "no episode" in none.stderr


def test_a_name_that_is_taken_or_none_is_refused(recording: Path, datasets: Path) -> None:
    run(recording, "--minari", "cart-v0")
    again = run(recording, "--minari", "cart-v0", exit_code=2)
    assert "already" in again.stderr
    assert_equal("cart-v0", recording)
    for name in ("no version", "../../etc-v0", ""):
        wrong = run(recording, "--minari", name, exit_code=2)
        assert "for instance" in wrong.stderr


def test_a_damaged_file_is_told_and_no_half_dataset_stays(recording: Path, datasets: Path) -> None:
    recorded_files(recording)[1].write_bytes(b"")
    result = run(recording, "--minari", "cart-v0", exit_code=78)
    assert recorded_files(recording)[1].name in result.stderr
    assert not (datasets / "cart-v0").exists()


def test_without_minari_the_error_says_how_to_get_it(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    done = run(recording, "--minari", "cart-v0", exit_code=78)
    assert "pip install 'ospbridge[minari]'" in done.stderr
