"""Writing an agent's episodes as they end: a crash costs at most the one under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.record.collecting import MEMORY, EpisodeCollector, Recorded, at_once
from ospbridge.record.writing import EpisodeWriter

if TYPE_CHECKING:
    import os

__all__ = ["EpisodeRecorder"]


class EpisodeRecorder(EpisodeCollector):
    """Collects an agent's episodes; each is on disk when what ended it returns.

    Raises ConfigurationError where the directory cannot be written to, also later, when an episode ends.
    """

    def __init__(self, directory: str | os.PathLike[str], whose: Recorded, *, memory: int = MEMORY) -> None:
        super().__init__(whose, at_once(EpisodeWriter(directory).write), memory=memory)
