"""A recording as a Minari dataset. Needs the extra ``minari``.

Names of infos become ``episode.reward`` for ``/episode/reward``: a slash would begin a folder in the dataset's file.
What the recorded environment was made with becomes the dataset's spec, but for where it wrote files: who makes it again
is not to write there.
"""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.interface import BoxSpace, Space, fits, several
from ospbridge.record.episode import RecordedEpisode, read_episode
from ospbridge.record.reading import recorded_files
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gymnasium.envs.registration import EnvSpec

__all__ = ["export_minari"]

WRITTEN: Final = frozenset({"record", "trace"})
"""Keywords that name files which the environment wrote."""
ROOM: Final = 4 * 2**20
"""Bytes of the disk that must be free beside what an episode takes, twice."""


def export_minari(
    directory: str | os.PathLike[str],
    name: str,
    *,
    agents: str | Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[int, int, Path]:
    """Make the dataset ``name`` of the episodes in a directory, of agents that fit the globs (none: all).

    ``progress(done, of)`` is called for each file, ``say(text)`` where ``recover_environment`` of the dataset will not
    work, since the first episode does not tell what its environment was made with.

    Returns episodes, steps and where the dataset is. Raises ConfigurationError where Minari is not installed or a file
    is damaged, UsageError for a name or a choice of agents that no dataset can be made of. No part of a dataset is left
    behind then.
    """
    agents = several(agents)
    try:
        from minari import create_dataset_from_buffers
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.storage.datasets_root_dir import get_dataset_path
    except ImportError as error:
        raise ConfigurationError(
            f"a dataset needs Minari, which is not installed as a whole: {error}",
            hint="pip install 'ospbridge[minari]'",
        ) from None
    try:
        parse_dataset_id(name)
    except (ValueError, TypeError):
        raise UsageError(
            f"{name!r} is no name of a Minari dataset",
            hint="write [NAMESPACE/]NAME-vN, for instance cart/random-v0",
        ) from None
    try:
        root: Path = get_dataset_path()
        path: Path = get_dataset_path(name)
        there = path.exists()
    except OSError as error:
        raise _cannot_be_made(name, error) from None
    if there:
        raise UsageError(
            f"there is a dataset {name!r} already, at {path}",
            hint=f"choose another version, or remove it with `minari delete {name}`",
        )
    files = recorded_files(directory)
    chosen = _chosen(files, agents, progress)
    first = next(chosen, None)
    if first is None:
        raise UsageError(
            f"there is no episode to export in {directory}"
            + (
                f" of agents that fit {' '.join(agents)}" if agents else f" ({pluralize(len(files), 'file')})"
            ),
            hint="an episode is written when it ends; record=DIR says where",
        )
    counts = [0, 0]
    spec, why = _spec(first)
    if spec is None:
        say(f"recover_environment() of the dataset will not work: {why}")

    def buffers() -> Iterator[Any]:
        for episode in chain([first], chosen):
            _check_alike(first, episode)
            _check_room(name, root, episode)
            yield _buffer(episode, counts)

    try:
        with warnings.catch_warnings():
            # Minari asks for author and algorithm, which no recording knows.
            warnings.simplefilter("ignore", UserWarning)
            create_dataset_from_buffers(
                name,
                buffers(),
                env=None if spec is None else _made_as(spec),
                observation_space=_gym_space(first.observation_space),
                action_space=_gym_space(first.action_space),
                description=f"Recorded by ospbridge at {first.simulator}.",
            )
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, OSError):
            raise _cannot_be_made(name, error) from None
        raise
    return counts[0], counts[1], path


def _spec(episode: RecordedEpisode) -> tuple[EnvSpec | None, str]:
    """What makes its environment again; where it is not known, why."""
    from gymnasium.envs.registration import EnvSpec

    if not episode.env_spec:
        return None, (
            f"the recording of agent {episode.agent!r} does not tell what its environment was made with; those of "
            "gymnasium.make and gymnasium.make_vec do, but for earlier releases of ospbridge"
        )
    try:
        spec = EnvSpec.from_json(episode.env_spec)
        kwargs = {name: given for name, given in spec.kwargs.items() if name not in WRITTEN}
        return replace(spec, kwargs=kwargs), ""
    except Exception as error:  # noqa: BLE001  # of gymnasium's, for whatever another release of it wrote
        return None, f"this release of gymnasium cannot read the recorded spec ({error})"


def _made_as(spec: EnvSpec) -> Any:
    """An environment that is only its spec: given the spec itself, Minari would make one, and join the simulator."""
    import gymnasium

    env: gymnasium.Env[Any, Any] = gymnasium.Env()
    env.spec = spec
    return env


def _check_room(name: str, root: Path, episode: RecordedEpisode) -> None:
    """Raises ConfigurationError where the disk may have none: HDF5 crashes the process when it cannot write."""
    arrays = (episode.observations, episode.actions, episode.rewards, episode.infos)
    size = sum(array.nbytes for array in arrays)
    if shutil.disk_usage(root).free < 2 * size + ROOM:
        raise _cannot_be_made(name, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _cannot_be_made(name: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"the dataset {name!r} cannot be made: {error.strerror or error}",
        hint="let $MINARI_DATASETS_PATH name a directory that can be written to, with room on its disk",
    )


def _chosen(
    files: Sequence[Path], agents: Sequence[str], progress: Callable[[int, int], None]
) -> Iterator[RecordedEpisode]:
    for number, file in enumerate(files):
        episode = read_episode(file)
        progress(number + 1, len(files))
        if not agents or any(fits(episode.agent, glob) for glob in agents):
            yield episode


def _check_alike(first: RecordedEpisode, other: RecordedEpisode) -> None:
    """A dataset has one space of observations and one of actions. Raises UsageError."""
    for what in ("observation_space", "action_space"):
        if getattr(first, what) != getattr(other, what):
            raise UsageError(
                f"agents {first.agent!r} and {other.agent!r} differ in their {what.replace('_', ' ')}, "
                "and a dataset has only one",
                hint="choose agents that are alike with --agent, one dataset for each kind",
            )


def _buffer(episode: RecordedEpisode, counts: list[int]) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    counts[0] += 1
    counts[1] += len(episode)
    infos: dict[str, Any] = {}
    for at, name in enumerate(episode.info_names):
        key = name.strip("/").replace("/", ".")
        if key in ("", "."):
            # A point alone would be the folder itself.
            key = "info"
        infos[f"{key}.{at}" if key in infos else key] = episode.infos[:, at]
    return EpisodeBuffer(
        seed=episode.seed,
        observations=episode.observations,
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=episode.terminated,
        truncations=episode.truncated,
        infos=infos,
    )


def _gym_space(space: Space) -> Any:
    import gymnasium

    if isinstance(space, BoxSpace):
        return gymnasium.spaces.Box(space.low, space.high, dtype=np.float32)
    return gymnasium.spaces.Discrete(space.n)
