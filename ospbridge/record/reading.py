"""Reading a directory of recorded episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ospbridge.errors import ConfigurationError
from ospbridge.record.episode import RecordedEpisode, read_episode
from ospbridge.record.writing import SUFFIX

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["read_recording", "recorded_files"]


def recorded_files(directory: str | os.PathLike[str]) -> list[Path]:
    """The files of finished episodes, oldest first. Raises ConfigurationError where there is no directory."""
    path = Path(directory)
    try:
        # What a crash left half-written has a name that begins with a dot.
        return sorted(
            file for file in path.iterdir() if file.suffix == SUFFIX and not file.name.startswith(".")
        )
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read as a recording: {error.strerror or error}",
            hint="name the directory that record=DIR wrote to",
        ) from None


def read_recording(directory: str | os.PathLike[str]) -> Iterator[RecordedEpisode]:
    """The finished episodes, oldest first, read one by one.

    Raises ConfigurationError for a directory that cannot be read, and at a file that is no episode or is damaged.
    """
    for file in recorded_files(directory):
        yield read_episode(file)
