"""What trio says of a listener that cannot accept: one event a minute, instead of a traceback ten times a second."""

from __future__ import annotations

import logging
from typing import Final

import structlog

from ospbridge.observe.sparing import Sparing

__all__ = ["take_over"]

SAYS: Final = "trio.serve_listeners"
"""The logger, documented with ``trio.serve_listeners``."""


class _Told(logging.Handler):
    """Passes on that the process is out of descriptors, or the host of memory."""

    def __init__(self) -> None:
        super().__init__()
        self._complaint = Sparing()

    def emit(self, record: logging.LogRecord) -> None:
        if self._complaint.due():
            error = record.exc_info[1] if record.exc_info else None
            reason = error.strerror if isinstance(error, OSError) else record.getMessage()
            log = structlog.get_logger(logger_name=__name__)
            log.warning("cannot accept connections", reason=reason)


def take_over() -> None:
    """From now on; may be called again."""
    theirs = logging.getLogger(SAYS)
    theirs.handlers[:] = [_Told()]
    theirs.propagate = False
