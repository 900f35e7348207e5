"""The policy that is handed out: read from its file, and again whenever the file has changed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ospbridge.errors import ConfigurationError
from ospbridge.policy.files import read_policy
from ospbridge.rllink.messages import ModuleWeights, OnnxWeights, SetState

if TYPE_CHECKING:
    import os

    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import Weights

__all__ = ["PolicyFile"]


class PolicyFile:
    """Raises ConfigurationError for a file that is no policy; one that changes later and is none then is told."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.trouble = ""
        """Why the file as it is now cannot be used; the policy before stays in force."""
        self._changes = 0
        self._stamp = (0, 0)
        with suppress(OSError):
            # Before it is read: what changes meanwhile is read again. That it is not there, reading tells.
            self._stamp = self._look()
        self._content = read_policy(self.path)
        self._written: dict[Dialect, tuple[int, bytes | bytearray]] = {}
        """The latest message of each dialect, with its number."""

    def _look(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_size

    def refresh(self) -> bool:
        """True where the file has changed, and was read again."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            self._content = read_policy(self.path)
        except OSError as error:
            # It is read when it is there again, also where it is the same as before.
            self._stamp = (0, 0)
            self.trouble = str(error)
            return False
        except ConfigurationError as error:
            self.trouble = error.message
            return False
        self.trouble = ""
        self._changes += 1
        self._written.clear()
        return True

    def weights(self, seq_no: int) -> Weights:
        """For the wire. ``seq_no`` is their number; changes of the file count on top."""
        number = seq_no + self._changes
        if isinstance(self._content, bytes):
            return OnnxWeights(self._content, number)
        return ModuleWeights(self._content, number)

    def message(self, dialect: Dialect, seq_no: int) -> bytes | bytearray:
        """SET_STATE with these weights, written once for all who ask until their number moves: zipping takes time.

        Raises LocalProtocolError for a policy that the dialect cannot carry.
        """
        weights = self.weights(seq_no)
        number, written = self._written.get(dialect, (-1, b""))
        if number != weights.seq_no:
            written = dialect.encode(SetState(weights))
            self._written[dialect] = weights.seq_no, written
        return written
