"""Files that earlier releases wrote: `samples` holds some of each version, and what is there is never written anew."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.record.episode import read_episode
from ospbridge.record.reading import read_recording
from ospbridge.record.spool import Spool
from ospbridge.rllink.parcels import unpacked
from tests.record.episodes import INFOS
from tests.record.spools import ALL

SAMPLES = Path(__file__).parent / "samples"
OBSERVATIONS = np.arange(4, dtype=np.float32)[:, None] + np.arange(3, dtype=np.float32)
ACTIONS = {"discrete": np.array([1, 0, 1]), "box": np.array([[n / 4, -n / 4] for n in (1, 2, 3)], np.float32)}


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("version", [1])
def test_a_recording_of_an_earlier_release_is_read(kind: str, version: int) -> None:
    path = SAMPLES / f"recording-{version}-{kind}.npz"
    episode = read_episode(path)
    assert (episode.simulator, episode.agent, episode.seed) == ("127.0.0.1:45454", "cart", 7)
    assert (episode.how, episode.reason, episode.weights_seq_no, episode.t_started) == (
        "terminated",
        "",
        3,
        0,
    )
    assert episode.started == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert episode.info_names == INFOS
    np.testing.assert_array_equal(episode.observations, OBSERVATIONS)
    np.testing.assert_array_equal(episode.actions, ACTIONS[kind])
    np.testing.assert_array_equal(episode.rewards, [0.25, 0.5, 0.75])
    np.testing.assert_array_equal(episode.infos[:, 1], [0, -1, -2, -3])
    assert episode.terminated.tolist() == [False, False, True]
    assert isinstance(episode.action_space, BoxSpace if kind == "box" else DiscreteSpace)
    assert (episode.action_logp is not None) == (kind == "box")
    if kind == "box":
        np.testing.assert_array_equal(episode.action_logp, [-0.125, -0.25, -0.375])
        np.testing.assert_array_equal(episode.drawn_actions, 2 * ACTIONS["box"])
        np.testing.assert_array_equal(episode.action_dist_inputs, np.outer([0.5, 1.0, 1.5], np.ones(4)))
    # As other programs read it.
    with np.load(path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["observations"], OBSERVATIONS)
        assert {"about", "actions", "rewards", "infos", "low", "high"} <= set(archive.files)


def test_a_directory_of_earlier_recordings_is_read() -> None:
    assert [len(episode) for episode in read_recording(SAMPLES)] == [3, 3]


@pytest.mark.parametrize("version", [1])
def test_a_spool_of_an_earlier_release_is_found_with_all_it_held(tmp_path: Path, version: int) -> None:
    path = Path(shutil.copy(SAMPLES / f"spool-{version}.sqlite", tmp_path))
    with Spool(path) as spool:
        entries = spool.take(steps=ALL, size=ALL)
    assert [(entry.key, entry.steps, entry.damage) for entry in entries] == [
        ("episode-0", 3, ""),
        ("episode-1", 3, ""),
    ]
    for entry, kind in zip(entries, ("box", "discrete"), strict=True):
        fragment = unpacked(entry.body)
        assert (fragment.agent, fragment.weights_seq_no, fragment.terminated) == ("cart", 3, True)
        np.testing.assert_array_equal(fragment.observations, OBSERVATIONS)
        # What was drawn goes to learners.
        np.testing.assert_array_equal(fragment.actions, ACTIONS[kind] * (2 if kind == "box" else 1))
