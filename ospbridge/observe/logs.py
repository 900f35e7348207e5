"""Logging: structlog, set up once by each command.

On a terminal a line is for eyes; anywhere else (a file, a pipe, journald) it is one JSON object, with the keys
``timestamp`` (UTC, ISO 8601), ``level``, ``event`` and ``logger_name`` first, and what happened where behind them. In
systemd's journal it has a priority before it instead of the timestamp, which the journal has already.
Levels: debug for what a developer asks for, info for what an operator wants to know (never a line per step), warning
for what went wrong and was mended, error for what was not.

Names come from simulators and other peers, so ``Brevity`` keeps every line visible and below 4 kB.

Only programs call ``configure``. Whoever imports ospbridge as a library keeps their own configuration of structlog, and
gets our events through it.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import orjson
import structlog

from ospbridge.errors import ConfigurationError
from ospbridge.observe.brevity import Brevity
from ospbridge.observe.sparing import Sparing
from ospbridge.text import writable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

    from ospbridge.observe.recent import Recent

__all__ = ["LEVELS", "bound", "configure", "get", "take_over", "unfailing"]

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


LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Of syslog(3)."""
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
_FIRST: Final = ("timestamp", "level", "event", "logger_name")


def configure(
    *,
    json: bool | None = None,
    level: str = "info",
    stream: TextIO | None = None,
    recent: Recent | None = None,
) -> None:
    """Send every event of at least ``level`` to ``stream`` (standard error).

    ``json`` says whether as JSON lines or for eyes; by default, for eyes exactly when ``stream`` is a terminal. May be
    called again: loggers follow. An event below the level costs about two microseconds, so a step should have none.
    ``recent`` remembers the latest warnings. Raises ConfigurationError for a level that does not exist.
    """
    if level.lower() not in LEVELS:
        raise ConfigurationError(f"unknown log level {level!r}", hint=f"use one of {', '.join(LEVELS)}")
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    for_eyes = terminal if json is None else not json
    if for_eyes:
        rendering = _for_eyes(colors=terminal)
    elif _is_journal(target):
        rendering = [_with_priority]
    else:
        rendering = [structlog.processors.JSONRenderer(serializer=_dumps)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _in_order,  # so that what a long line loses is not its event
            Brevity(one_line=not for_eyes),
            *([recent] if recent is not None else []),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=unfailing(target)),
        cache_logger_on_first_use=False,  # a cached logger would keep writing to a stream of before
    )
    take_over()


def get(name: str) -> FilteringBoundLogger:
    """A logger whose events carry ``logger_name=name``; modules ask for ``get(__name__)``.

    May be called before ``configure``, when a module is imported.
    """
    return cast("FilteringBoundLogger", structlog.get_logger(logger_name=name))


def unfailing(stream: TextIO) -> TextIO:
    """The same, but a full disk or a closed pipe behind it costs the lines, and never the program that logs."""
    return cast("TextIO", _Unfailing(stream))


class _Unfailing:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # What a stream could not write it keeps, and the interpreter would fail at it in the end.
        self._descriptor = stream.fileno() if stream is sys.__stderr__ else None
        self._torn = False
        """Of the latest line only a part found room: the next one must not go on with it."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            if self._descriptor is None:
                self._stream.write(text)
            else:
                data = (b"\n" if self._torn else b"") + text.encode("utf-8", "backslashreplace")
                self._torn = os.write(self._descriptor, data) < len(data)

    def flush(self) -> None:
        if self._descriptor is None:
            with suppress(OSError):
                self._stream.flush()


def bound(**fields: str) -> AbstractContextManager[object]:
    """Within it, every event of this task and of those that it starts carries ``fields``."""
    return structlog.contextvars.bound_contextvars(**fields)


def _is_journal(stream: TextIO) -> bool:
    """Whether what is written there goes to systemd's journal: ``JOURNAL_STREAM`` names its device and inode."""
    said = os.environ.get("JOURNAL_STREAM", "")
    try:
        there = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return said == f"{there.st_dev}:{there.st_ino}"


def _with_priority(logger: WrappedLogger, method: str, event: EventDict) -> str:  # noqa: ARG001  # a processor's signature
    """The journal has a time of its own for each line, and takes the priority off its beginning."""
    event.pop("timestamp", None)
    priority = _PRIORITIES.get(str(event.get("level")), 6)
    return f"<{priority}>{_dumps(event, str)}"


def _for_eyes(*, colors: bool) -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors and "NO_COLOR" not in os.environ,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]


def _in_order(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001  # a processor's signature
    """What every line has comes first."""
    ordered = {key: event.pop(key) for key in _FIRST if key in event}
    ordered.update(event)
    return ordered


def _dumps(event: EventDict, default: Callable[[Any], Any]) -> str:
    """JSON of an event that may hold anything: what orjson does not know is written as structlog writes it.

    Nothing that is logged may raise: strings from the wire or the file system need not be valid Unicode, and integers
    may be of any length.
    """
    try:
        return orjson.dumps(event, default=default, option=_OPTIONS).decode()
    except TypeError:
        pass
    # What can be written stands as it is all the same: whoever reads lines looks for the level, and counts numbers.
    told: dict[str, Any] = {}
    for key, value in event.items():
        part = writable(value) if isinstance(value, str) else value
        try:
            orjson.dumps(part, default=default, option=_OPTIONS)
        except TypeError:
            part = _shown(value)
        told[writable(str(key))] = part
    return orjson.dumps(told, default=default, option=_OPTIONS).decode()


def _shown(value: Any) -> str:
    try:
        return ascii(value)
    except Exception:  # noqa: BLE001  # such as for an integer of more digits than Python writes
        return f"a {type(value).__name__}"
