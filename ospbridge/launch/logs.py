"""Where the output of launched simulators goes: files that are rotated by size, and what was said last."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from ospbridge.errors import UsageError
from ospbridge.observe.runtime import state_directory

if TYPE_CHECKING:
    from ospbridge.launch.command import LaunchSpec

__all__ = ["SimulatorLog"]

LARGEST: Final = 10_000_000
"""Bytes; a file that has more becomes NAME.1, whose place is then free for the next."""
KEPT: Final = 20
"""Files of earlier simulators that stay in the state directory."""
LAST: Final = 4_000
"""Bytes in which what was said last is looked for."""


class SimulatorLog:
    """The file of one simulator. Raises UsageError where it cannot be written."""

    def __init__(self, spec: LaunchSpec, port: int, *, alone: bool) -> None:
        self.path = _path(spec, port, alone=alone)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.open().close()
        except OSError as error:
            raise UsageError(
                f"the log of the launched simulator cannot be written: {self.path}: {error.strerror}",
                hint='name another file, for instance launch={..., "log": "/tmp/simulator.log"}',
            ) from None
        if spec.log is None:
            _forget_old(self.path)
        self._begun = 0

    def __str__(self) -> str:
        return str(self.path)

    def open(self) -> BinaryIO:
        """For the simulator to write to. What was there stays, and what is said from here on is ``last_words``."""
        file = self.path.open("ab", buffering=0)
        self._begun = file.tell()
        return file

    def rotate(self) -> None:
        """Where it has become large, copy it away and go on from the start. To be called now and then.

        The simulator goes on writing to the same file, at its end wherever that is.
        """
        with suppress(OSError):
            if self.path.stat().st_size <= LARGEST:
                return
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
            os.truncate(self.path, 0)
            self._begun = 0

    def last_words(self, lines: int = 5) -> list[str]:
        """What the simulator said last, since it was started."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._begun, end - LAST))
                said = file.read(LAST).decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line.strip() for line in said if line.strip()][-lines:]


def _path(spec: LaunchSpec, port: int, *, alone: bool) -> Path:
    if spec.log is None:
        return state_directory() / "launch" / f"{spec.name}-{port}.log"
    if "{port}" in spec.log.name or alone:
        return spec.log.with_name(spec.log.name.replace("{port}", str(port)))
    return spec.log.with_name(f"{spec.log.stem}-{port}{spec.log.suffix}")


def _forget_old(mine: Path) -> None:
    with suppress(OSError):
        others = sorted((p for p in mine.parent.glob("*.log*") if p != mine), key=lambda p: p.stat().st_mtime)
        for path in others[:-KEPT]:
            path.unlink(missing_ok=True)
