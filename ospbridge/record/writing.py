"""Writing finished episodes, each into a file of its own, so that a crash leaves no half of one.

A file is written without a name, brought to disk, and only then given one: what a crash interrupts is gone with its
process. File systems that know no files without names, such as NFS, have it under a temporary one, which begins with a
dot and stays there after a crash.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.record.episode import write_episode

if TYPE_CHECKING:
    from ospbridge.record.episode import RecordedEpisode

__all__ = ["SUFFIX", "EpisodeWriter"]

SUFFIX: Final = ".npz"
NO_SUCH_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
"""What file systems say that bring no directory to disk at anybody's wish."""
ALL_NAMED: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
"""What those say that know no files without names."""


class EpisodeWriter:
    """Writes into ``directory``, which is made where it does not exist.

    Raises ConfigurationError where the directory cannot be written to.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.written = 0
        """Files so far."""
        self._unsettled = False
        """Names were given that may not be on disk yet."""
        self._names: dict[tuple[str, int], str] = {}
        """Those of episodes that ``write`` was interrupted in, as by Ctrl-C, and of the latest one."""
        self._latest = ("", 0)
        """Which was on disk when ``write`` returned last."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # What the rights say is not all that can be in the way.
            with TemporaryFile(dir=self.directory):
                pass
        except OSError as error:
            raise self._cannot_write(error) from None

    def write(self, episode: RecordedEpisode, *, name: str = "") -> None:
        """The episode is on disk when this returns, as ``name`` + SUFFIX, or under a name of its own.

        What Ctrl-C interrupted may be written again: there is one file all the same.

        Raises ConfigurationError; nothing half-written is left then.
        """
        which = (episode.id, episode.t_started)
        if which != self._latest:
            self._names.pop(self._latest, None)
        name = name or self._name(episode)
        try:
            self.put(episode, name=self._names.setdefault(which, name) if episode.id else name)
            self.settle()
        except ConfigurationError:
            self._names.pop(which, None)
            raise
        self._latest = which

    def put(self, episode: RecordedEpisode, *, name: str = "") -> None:
        """As ``write``, but for the file's name, which ``settle`` brings to disk for all files at once."""
        try:
            self._put(episode, name or self._name(episode))
        except OSError as error:
            raise self._cannot_write(error) from None
        self.written += 1

    def settle(self) -> None:
        """Bring the names of all files to disk.

        Raises ConfigurationError where they may not be there after a crash; what is in the files is.
        """
        if not self._unsettled:
            return
        try:
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            if error.errno not in NO_SUCH_SYNC:
                raise self._cannot_write(error) from None
        self._unsettled = False

    def _name(self, episode: RecordedEpisode) -> str:
        # The time sorts, the process and the count tell writers of one directory apart.
        return "-".join(
            [
                f"{episode.started:%Y%m%dT%H%M%S.%fZ}",
                re.sub(r"[^A-Za-z0-9_.]+", "_", episode.agent)[:80],
                f"{os.getpid()}",
                f"{self.written:06}",
            ]
        )

    def _put(self, episode: RecordedEpisode, name: str) -> None:
        if not self._put_nameless(episode, self.directory / (name + SUFFIX)):
            self._put_named(episode, name)
        self._unsettled = True

    def _put_nameless(self, episode: RecordedEpisode, path: Path) -> bool:
        """Whether that was possible here."""
        try:
            descriptor = os.open(self.directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno in ALL_NAMED:
                return False
            raise
        with os.fdopen(descriptor, "wb") as file:
            write_episode(file, episode)
            file.flush()
            os.fsync(descriptor)
            try:
                # With a descriptor, which an absolute path does without, os.link follows what is a symbolic link.
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
            except OSError:
                # There is no /proc, or such a file is there, which a rename replaces.
                return False
        return True

    def _put_named(self, episode: RecordedEpisode, name: str) -> None:
        temporary = self.directory / f".{name}.part"
        try:
            with temporary.open("wb") as file:
                write_episode(file, episode)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.directory / (name + SUFFIX))
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def _cannot_write(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"episodes cannot be recorded in {self.directory}: {error.strerror or error}",
            hint="name a directory that can be written to, with room on its disk",
        )
