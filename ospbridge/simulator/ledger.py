"""The ledger: what really ran, one JSON object per line, flushed line by line.

A line for every step and every reset that was executed, in order:

``kind``     "step" or "reset"
``n``        running number of its kind since the simulator began, from 1
``time``     simulated seconds after it
``agents``   for each agent of the world, by name: ``inputs`` (the float32 values in force; NaN and infinities are
             null), ``client`` ("host:port" of whoever controls it, or null), ``votes`` (the clients whose step
             requests for it this step used up, once per request; empty for a reset)
``clients``  who asked, once per request, in the order of arrival
``seed``     resets only: the seed given to the world, 0 for "don't care"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ospbridge.errors import ConfigurationError
from ospbridge.observe.sole_writer import begun, ended, why_not

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

__all__ = ["Ledger"]


class Ledger:
    """A file of records; call it with each."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        try:
            self._file = begun(path)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the ledger {path}: {why_not(error)}",
                hint="name a file in a writable folder, for each simulator its own",
            ) from None

    def __call__(self, record: dict[str, Any]) -> None:
        """Write one line. Raises ConfigurationError where the disk takes no more: a ledger has no gaps."""
        rest = memoryview(orjson.dumps(record) + b"\n")
        try:
            while rest:
                # A disk that fills up takes a part, and says no to the rest.
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the ledger {self._path}: {error.strerror}",
                hint="make room on its disk, or name a file on another",
            ) from None

    def close(self) -> None:
        """Close the file."""
        ended(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
