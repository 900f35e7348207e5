"""The processor of structlog that keeps events short and visible: names come from simulators and other peers.

No value has more than 1 kB and no line more than 4 kB, whatever was logged. Texts are cut as everywhere
(``ospbridge.text``), of a list of names the first are told and the rest is counted, of a traceback the end is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from ospbridge.text import LIST, NAME, fitting, printable

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

__all__ = ["Brevity"]

LONGEST_LINE: Final = 3_700
"""Bytes of all keys and values, as JSON; with what stands between them, less than 4 kB."""
LONGEST_TRACEBACK: Final = 2_000
"""Bytes of a traceback that is a part of a line, as JSON."""
LEFT_OUT: Final = "left_out"
"""How many values had no room in a line at all."""


class Brevity:
    """``one_line``: a traceback is written as a part of a line, and must be short as well."""

    def __init__(self, *, one_line: bool) -> None:
        self._one_line = one_line

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        traceback = event.pop("exception", None)
        told = {printable(str(key)): _brief(value, LIST) for key, value in event.items()}
        if traceback is None:
            return _squeezed(told, LONGEST_LINE)
        lines = [printable(line, LIST) for line in str(traceback).split("\n")]
        if not self._one_line:
            return {**_squeezed(told, LONGEST_LINE), "exception": "\n".join(lines)}
        return {**_squeezed(told, LONGEST_LINE - LONGEST_TRACEBACK), "exception": "\n".join(_end(lines))}


def _brief(value: Any, most: int) -> Any:
    """The same, or what is shown instead where it is longer, or not visible."""
    if isinstance(value, str):
        return printable(value, most)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(each, str) for each in value):
        return fitting([printable(each) for each in value], most)
    if isinstance(value, dict):
        value = {printable(str(key)): _brief(each, NAME) for key, each in value.items()}
    try:
        shown = str(value)
    except Exception:  # noqa: BLE001  # whatever its __str__ does, and integers of very many digits: the line is written
        return value
    return (
        value
        if len(shown.encode(errors="replace")) <= most and shown.isprintable()
        else printable(shown, most)
    )


def _length(value: Any) -> int:
    """Bytes of JSON, or about as many."""
    try:
        return len(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
    except TypeError:
        return 2 * LIST


def _end(lines: list[str]) -> list[str]:
    """The first line and as many of the last ones as there is room for."""
    room = LONGEST_TRACEBACK
    kept: list[str] = []
    for line in reversed(lines):
        room -= _length(line)
        if room < 0:
            return [lines[0], f"  ... {len(lines) - 1 - len(kept):,} lines ...", *reversed(kept)]
        kept.append(line)
    return lines


def _squeezed(told: dict[str, Any], room: int) -> dict[str, Any]:
    """The same where it has room, else all values shorter, and without the last ones if that is not enough."""
    if sum(_length(pair) for pair in told.items()) <= room:
        return told
    kept: dict[str, Any] = {}
    for count, (key, value) in enumerate(told.items()):
        short = _brief(value, NAME)
        room -= _length((key, short))
        if room < _length((LEFT_OUT, len(told))):
            return {**kept, LEFT_OUT: len(told) - count}
        kept[key] = short
    return kept
