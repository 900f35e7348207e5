"""Replacing a file as a whole: what stood there stays until all of the new one is written."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["replaced"]


@contextmanager
def replaced(path: Path, *, mode: int | None = None) -> Iterator[IO[bytes]]:
    """What is written within is at ``path`` afterwards; where that fails, nothing has changed.

    ``mode``: its permissions; by default those of any file that is made. Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _of_new_files() if mode is None else mode)
            yield file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _of_new_files() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask
