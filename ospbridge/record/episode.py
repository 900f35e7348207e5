"""A finished episode, and the file that holds it.

The file is an npz archive (``numpy.load`` reads it, without pickle) of these arrays, for N steps:

=================  ================================================================================================
``observations``   float32[N + 1, n]: the reset's, then one for each step
``actions``        float32[N, m], or int64[N] where actions are discrete
``rewards``        float64[N]
``terminated``     bool[N]
``truncated``      bool[N]
``infos``          float64[N + 1, k], the agent's infos in the order of ``info_names``; NaN where a step was lost
``action_logp``    float32[N]: what the policy said of each action; absent where nobody said it
``action_dist..``  ``action_dist_inputs``: float32[N, j], what each action was drawn from; absent as well
``drawn_actions``  float32[N, m]: the actions as they were drawn, where those given were made of them; else absent
``low``, ``high``  float32[n]: the bounds of the observation space
``action_low`` ..  ``action_high``: float32[m]; absent where actions are discrete
``about``          uint8: the rest, as UTF-8 JSON; see ``RecordedEpisode``
=================  ================================================================================================
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, DiscreteSpace, Space

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["RecordedEpisode", "read_episode", "write_episode"]

FORMAT: Final = "ospbridge episode"
VERSION: Final = 1
LARGEST: Final = 1 << 30
"""Bytes of an episode's arrays. Longer ones are in several files, which hold far less; but a file that somebody has
compressed may expand to anything."""
_NOTES: Final = ("action_logp", "action_dist_inputs", "drawn_actions")
_BAD_ARCHIVE: Final = (zipfile.BadZipFile, zlib.error, RuntimeError)
"""RuntimeError: encrypted, or compressed in an unknown way (NotImplementedError)."""
_BAD_HEADER: Final = (tokenize.TokenError, SyntaxError, TypeError, MemoryError)
"""What Python's parser raises, which numpy asks to read an array's header."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEpisode:
    """One episode of one agent, as its environment saw it, with N steps; ``len`` tells N."""

    simulator: str
    """Where it was: an address."""
    agent: str
    """Its name."""
    seed: int
    """What the simulator was given."""
    started: datetime
    """In UTC."""
    ended: datetime
    """In UTC."""
    how: str
    """``terminated``, ``truncated``; ``abandoned``: reset or closed before its end; ``lost``: a step raised;
    ``continued``: it was too long for one file, the next one goes on. The last step counts as truncated then."""
    reason: str
    """Why the bridge ended it; empty where the episode ended by itself."""
    observation_space: BoxSpace
    """Bounds of float32[n]."""
    action_space: Space
    """Bounds of float32[m], or how many choices there were."""
    info_names: tuple[str, ...]
    """k names, in the order of the columns of ``infos``."""
    observations: NDArray[np.float32]
    """float32[N + 1, n]: the reset's, then one for each step."""
    actions: NDArray[Any]
    """float32[N, m], or int64[N] where actions are discrete."""
    rewards: NDArray[np.float64]
    """float64[N]"""
    terminated: NDArray[np.bool_]
    """bool[N]"""
    truncated: NDArray[np.bool_]
    """bool[N]"""
    infos: NDArray[np.float64]
    """float64[N + 1, k]; NaN where a step was lost."""
    weights_seq_no: int | None = None
    """Which weights acted last, where that is known."""
    action_logp: NDArray[np.float32] | None = None
    """float32[N]: what the policy said of each action; None where nobody said it."""
    action_dist_inputs: NDArray[np.float32] | None = None
    """float32[N, j]: what each action was drawn from; None as well."""
    id: str = ""
    """The same for the parts of a ``continued`` episode, and for no other one; empty where there is none."""
    t_started: int = 0
    """How many of its steps are in the parts before."""
    drawn_actions: NDArray[np.float32] | None = None
    """float32[N, m]: the actions as they were drawn, where those that were given were made of them."""
    env_spec: str = ""
    """What the environment was made with: gymnasium's ``EnvSpec`` as JSON; empty where that is not known."""

    def __len__(self) -> int:
        """Steps."""
        return len(self.rewards)


class _About(msgspec.Struct, frozen=True):
    """What of an episode is no array."""

    format: str
    version: int
    simulator: str
    agent: str
    seed: int
    started: datetime
    ended: datetime
    how: str
    reason: str
    info_names: tuple[str, ...]
    choices: int = 0
    weights_seq_no: int | None = None
    id: str = ""
    t_started: int = 0
    env_spec: str = ""


def write_episode(file: BinaryIO, episode: RecordedEpisode) -> None:
    """Write the archive."""
    space = episode.action_space
    about = _About(
        FORMAT,
        VERSION,
        _storable(episode.simulator),
        _storable(episode.agent),
        episode.seed,
        episode.started,
        episode.ended,
        episode.how,
        _storable(episode.reason),
        tuple(_storable(name) for name in episode.info_names),
        space.n if isinstance(space, DiscreteSpace) else 0,
        episode.weights_seq_no,
        _storable(episode.id),
        episode.t_started,
        _storable(episode.env_spec),
    )
    arrays: dict[str, NDArray[Any]] = {
        "about": np.frombuffer(msgspec.json.encode(about), np.uint8),
        "observations": episode.observations,
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminated": episode.terminated,
        "truncated": episode.truncated,
        "infos": episode.infos,
        "low": episode.observation_space.low,
        "high": episode.observation_space.high,
    }
    if isinstance(space, BoxSpace):
        arrays |= {"action_low": space.low, "action_high": space.high}
    for name in _NOTES:
        if (notes := getattr(episode, name)) is not None:
            arrays[name] = notes
    _save(file, arrays)


def _save(file: BinaryIO, arrays: dict[str, NDArray[Any]]) -> None:
    """What ``numpy.savez`` writes, also where numpy is older than 2.1.

    That stores its own option ``allow_pickle`` as one more array, and has the garbage collector print a traceback
    where a disk is full.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _storable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def read_episode(path: str | os.PathLike[str]) -> RecordedEpisode:
    """The episode in a file. Raises ConfigurationError for what is none, or is damaged."""
    path = Path(path)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as members:
            size = sum(member.file_size for member in members.infolist())
        if size > LARGEST:
            raise ValueError(f"it expands to {size} bytes, expected {LARGEST} at most")  # noqa: TRY301  # told like the rest
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            # What does not begin as an array does is handed out as bytes.
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("not all that it holds are arrays")  # noqa: TRY301  # told like the rest
            about = msgspec.json.decode(arrays.pop("about").tobytes(), type=_About)
    except (
        OSError,
        EOFError,
        KeyError,
        ValueError,
        OverflowError,
        msgspec.MsgspecError,
        *_BAD_ARCHIVE,
        *_BAD_HEADER,
    ) as error:
        raise _damaged(path, str(error) or type(error).__name__) from None
    if about.format != FORMAT or about.version != VERSION:
        raise ConfigurationError(
            f"{path} is {about.format!r}, version {about.version}; expected {FORMAT!r}, version {VERSION}",
            hint="use the release of ospbridge that wrote it",
        )
    try:
        episode = RecordedEpisode(
            about.simulator,
            about.agent,
            about.seed,
            about.started.astimezone(UTC),
            about.ended.astimezone(UTC),
            about.how,
            about.reason,
            BoxSpace(arrays["low"], arrays["high"]),
            DiscreteSpace(about.choices)
            if about.choices
            else BoxSpace(arrays["action_low"], arrays["action_high"]),
            about.info_names,
            arrays["observations"],
            arrays["actions"],
            arrays["rewards"],
            arrays["terminated"],
            arrays["truncated"],
            arrays["infos"],
            about.weights_seq_no,
            arrays.get("action_logp"),
            arrays.get("action_dist_inputs"),
            about.id,
            about.t_started,
            arrays.get("drawn_actions"),
            about.env_spec,
        )
    except KeyError as error:
        raise _damaged(path, f"array {error} is missing") from None
    except (OverflowError, ValueError) as error:
        raise _damaged(path, f"its times are none: {error}") from None
    _check(path, episode)
    return episode


def _check(path: Path, episode: RecordedEpisode) -> None:
    """The arrays fit each other. Raises ConfigurationError."""
    steps = len(episode.rewards) if episode.rewards.ndim else 0
    space = episode.action_space
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {
        "observations": ((steps + 1, *episode.observation_space.low.shape), np.float32),
        "actions": ((steps, *space.low.shape), np.float32)
        if isinstance(space, BoxSpace)
        else ((steps,), np.int64),
        "rewards": ((steps,), np.float64),
        "terminated": ((steps,), np.bool_),
        "truncated": ((steps,), np.bool_),
        "infos": ((steps + 1, len(episode.info_names)), np.float64),
    }
    if episode.action_logp is not None:
        wanted["action_logp"] = ((steps,), np.float32)
    if episode.action_dist_inputs is not None:
        wanted["action_dist_inputs"] = ((steps, *episode.action_dist_inputs.shape[1:2]), np.float32)
    if episode.drawn_actions is not None:
        wanted["drawn_actions"] = (episode.actions.shape, np.float32)
    for name, (shape, dtype) in wanted.items():
        array = getattr(episode, name)
        if array.shape != shape or array.dtype != dtype:
            raise _damaged(
                path,
                f"{name} is {array.dtype}{list(array.shape)}, expected {np.dtype(dtype)}{list(shape)}",
            )


def _damaged(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is no recorded episode, or damaged: {why}",
        hint="take it out of the directory; every other file stands for itself",
    )
