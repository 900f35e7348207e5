"""The files of episodes and spools: whole, damaged, and of earlier releases."""

from __future__ import annotations

import io
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.record import episode
from ospbridge.record.episode import RecordedEpisode, read_episode, write_episode
from ospbridge.record.spool import Spool
from ospbridge.rllink.dialects import unpacked
from tests.record.episodes import INFOS, box


def whole(steps: int = 3) -> bytes:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    file = io.BytesIO()
    write_episode(
        file,
        RecordedEpisode(
            simulator="127.0.0.1:45454",
            agent="cart",
            seed=7,
            started=then,
            ended=then,
            how="terminated",
            reason="",
            observation_space=box(2),
            action_space=DiscreteSpace(2),
            info_names=("/episode/reward",),
            observations=np.zeros((steps + 1, 2), np.float32),
            actions=np.zeros(steps, np.int64),
            rewards=np.zeros(steps),
            terminated=np.arange(steps) == steps - 1,
            truncated=np.zeros(steps, np.bool_),
            infos=np.zeros((steps + 1, 1)),
        ),
    )
    return file.getvalue()


def test_a_small_file_that_expands_beyond_all_bounds_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "episode.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rewards.npy", bytes(2_000_000))
    assert file.stat().st_size < 10_000
    monkeypatch.setattr(episode, "LARGEST", 1_999_999)

    def unpacked(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(np, "load", unpacked)
    with pytest.raises(ConfigurationError, match="expands to 2000000 bytes, expected 1999999 at most"):
        read_episode(file)


@pytest.mark.parametrize("name", ["about", "rewards"])
def test_a_part_that_is_no_array_is_told_as_damage_of_its_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(io.BytesIO(whole())) as whole_one, zipfile.ZipFile(path, "w") as archive:
        for part in whole_one.namelist():
            archive.writestr(part, b"text" if part == f"{name}.npy" else whole_one.read(part))
    with pytest.raises(ConfigurationError, match=r"a\.npz.*not all that it holds are arrays"):
        read_episode(path)


@pytest.mark.parametrize(
    "name, array",
    [
        ("observations", np.zeros((3, 2), np.float32)),
        ("actions", np.zeros(2, np.int64)),
        ("rewards", np.zeros((3, 1))),
        ("terminated", np.zeros(3, np.int64)),
        ("infos", np.zeros((4, 2))),
        ("action_logp", np.zeros(2, np.float32)),
        ("action_dist_inputs", np.zeros((3, 5, 1), np.float32)),
        ("action_dist_inputs", np.zeros((3, 5))),
        ("drawn_actions", np.zeros((3, 1), np.float32)),
    ],
)
def test_an_array_that_does_not_fit_the_others_is_told_as_damage_of_its_file(
    tmp_path: Path, name: str, array: NDArray[Any]
) -> None:
    path = tmp_path / "a.npz"
    with np.load(io.BytesIO(whole())) as archive:
        np.savez(path, allow_pickle=False, **dict(archive) | {name: array})
    with pytest.raises(ConfigurationError, match=rf"a\.npz.*: {name} is {array.dtype}.*, expected "):
        read_episode(path)


# --- files of earlier releases; samples holds some of each version, which are never written anew -------------------


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


@pytest.mark.parametrize("version", [1])
def test_a_spool_of_an_earlier_release_is_found_with_all_it_held(tmp_path: Path, version: int) -> None:
    path = Path(shutil.copy(SAMPLES / f"spool-{version}.sqlite", tmp_path))
    with Spool(path) as spool:
        entries = spool.take(steps=10, size=10**9)
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
