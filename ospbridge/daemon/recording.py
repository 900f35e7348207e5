"""The episodes of every attachment, on disk as they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.daemon.writing_thread import DRAIN, WritingThread
from ospbridge.hub.status import RecordingStatus
from ospbridge.record.collecting import MEMORY

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.record.collecting import Collected

__all__ = ["Recording"]


class Recording:
    """Records into ``directory`` while its context is open. Raises ConfigurationError where that cannot work."""

    largest: Final = MEMORY
    """Bytes of an episode that goes on, of which a file is made: as few as memory allows."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._thread = WritingThread(directory)
        self.drain = DRAIN
        """Seconds for writing what still waits in the end."""

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._thread.close(self.drain)

    @property
    def status(self) -> RecordingStatus:
        """Where to, and how many episodes so far."""
        thread = self._thread
        directory = str(thread.directory).encode("utf-8", "replace").decode()
        return RecordingStatus(directory, thread.recorded, thread.dropped)

    # --- what a chronicle calls --------------------------------------------------------------------------------------

    def admit(self, attachment: Attachment) -> None:
        """Whatever it plays can be recorded."""

    def wants(self, attachment: Attachment) -> bool:  # others choose
        """All of them are recorded."""
        return True

    def finished(self, attachment: Attachment, episode: Collected) -> None:  # the episode names it
        """Have it written."""
        self._thread.put(episode)
