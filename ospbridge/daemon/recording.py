"""The episodes of every attachment, on disk as they end: written by a thread, so that no conductor waits for a disk.

Memory is bounded: an episode that finds too much waiting is dropped. So is one that the disk has no room for. Both are
counted, and both are logged, but not one by one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.hub.status import RecordingStatus
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.record.collecting import MEMORY
from ospbridge.record.writing import EpisodeWriter

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.record.collecting import Collected

__all__ = ["Recording"]

log = logs.get(__name__)
LARGEST_WAITING: Final = 256 * 2**20
"""Bytes of episodes that wait to be written."""
EACH: Final = 4096
"""Bytes of an episode beside its numbers, about."""
DRAIN: Final = 5.0
"""Seconds for writing what still waits when the daemon ends."""


class Recording:
    """Records into ``directory`` while its context is open. Raises ConfigurationError where that cannot work.

    ``put`` is for one thread alone. ``room``: bytes of episodes that may wait to be written.
    """

    largest: Final = MEMORY
    """Bytes of an episode that goes on, of which a file is made: as few as memory allows."""

    def __init__(self, directory: str | os.PathLike[str], *, room: int = LARGEST_WAITING) -> None:
        self._writer = EpisodeWriter(directory)
        self.directory = self._writer.directory.absolute()
        self.drain = DRAIN
        """Seconds for writing what still waits in the end."""
        self._room = room
        self._queue: SimpleQueue[tuple[Collected, int] | None] = SimpleQueue()
        """With their sizes when they were put: while they are made they may turn out to be others."""
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        # Each of these numbers is written by one thread only, so that none needs a lock.
        self._put = 0
        """Bytes that ever went into the queue."""
        self._done = 0
        """Bytes that ever were taken from it and dealt with."""
        self._refused = 0
        self._recorded = 0
        self._failed = 0
        self._warning = Sparing()
        self._complaint = Sparing()
        self._complained = False

    @property
    def recorded(self) -> int:
        """Episodes on disk."""
        return self._recorded

    @property
    def dropped(self) -> int:
        """Episodes that ended and will never be on disk."""
        return self._refused + self._failed

    @property
    def status(self) -> RecordingStatus:
        """Where to, and how many episodes so far."""
        directory = str(self.directory).encode("utf-8", "replace").decode()
        return RecordingStatus(directory, self.recorded, self.dropped)

    # --- what an episode tracker calls -----------------------------------------------------------------------------

    def admit(self, attachment: Attachment) -> None:
        """Whatever it plays can be recorded."""

    def wants(self, attachment: Attachment) -> bool:  # others choose
        """All of them are recorded."""
        return True

    def finished(self, attachment: Attachment, episode: Collected) -> None:  # the episode names it
        """Have it written."""
        self.put(episode)

    def put(self, episode: Collected) -> None:
        """Have it made and written soon. Never waits."""
        size = _size(episode)
        waiting = self._put - self._done
        if waiting and waiting + size > self._room:
            self._refused += 1
            if self._warning.due():
                log.warning(
                    "episodes are dropped",
                    reason=f"{waiting / 2**20:.0f} MiB of episodes wait to be written to {self.directory}",
                    hint="record on a faster disk, or fewer agents",
                    dropped=self.dropped,
                )
            return
        self._put += size
        self._queue.put((episode, size))

    # --- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (put := self._queue.get()) is not None:
            episode, size = put
            try:
                self._writer.write(episode.episode())
            except ConfigurationError as error:
                self._fail(error.message, error.hint)
            except Exception as error:  # noqa: BLE001  # whatever it was, the next one may be written
                self._fail(f"{type(error).__name__}: {error}", "")
            else:
                # Not the writer's own count, which knows of a file before its name is on disk.
                self._recorded += 1
                if self._complained:
                    self._complained = False
                    log.info(
                        "episodes are recorded again", directory=str(self.directory), dropped=self.dropped
                    )
            self._done += size

    def _fail(self, reason: str, hint: str) -> None:
        self._failed += 1
        if not self._complained and self._complaint.due():
            self._complained = True
            log.error("episodes are not recorded", reason=reason, hint=hint, dropped=self.dropped)

    # --- its life --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Write what waits, for ``drain`` seconds at most; the rest is dropped."""
        self._queue.put(None)
        self._thread.join(self.drain)
        if self._thread.is_alive():
            left = 1
            with suppress(Empty):
                while self._queue.get_nowait() is not None:
                    left += 1
            self._queue.put(None)
            self._refused += left
            log.warning(
                "episodes are dropped",
                reason=f"{self.directory} did not take them within {self.drain:g} s of the end",
                dropped=self.dropped,
            )
        log.info(
            "recording ended", directory=str(self.directory), recorded=self.recorded, dropped=self.dropped
        )


def _size(episode: Collected) -> int:
    """Bytes of memory, about."""
    return EACH + episode.nbytes
