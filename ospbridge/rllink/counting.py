"""How many values a body holds, before any of them is made: an empty list is one byte on the wire, and some 70 here.

Nothing but lengths is looked at. A body that is damaged otherwise is left to whoever reads it.
"""

from __future__ import annotations

from typing import Final

from ospbridge.rllink.untrusted import Misfit

__all__ = ["LOOKED_AT", "MOST_VALUES", "check_json", "check_msgpack"]

MOST_VALUES: Final = 4_000_000
"""Of a msgpack body, each element of a list and each key and value of a map; of JSON, of which honest bodies have a
number for each few bytes, its lists and maps. Experience that comes in arrays has about one a step."""
LOOKED_AT: Final = 2**18
"""Bytes above which a body is looked at: what a shorter one can stand for does no harm."""

_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Of those that say how long they are, in so many bytes: of bytes, extensions and texts."""
_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9})
"""They have one byte more, a type."""


def _lengths() -> tuple[int, ...]:
    """What each first byte takes with all that belongs to it but a length that follows; of lists and maps the head."""
    fixed = dict.fromkeys(_SIZES, 0)
    fixed |= {0xA0 + size: 1 + size for size in range(32)}
    fixed |= {0xCA: 5, 0xCB: 9, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
    for power in range(4):
        fixed[0xCC + power] = fixed[0xD0 + power] = 1 + 2**power
    for power in range(5):
        fixed[0xD4 + power] = 2 + 2**power
    return tuple(fixed.get(first, 1) for first in range(256))


_LENGTHS: Final = _lengths()


def check_msgpack(body: bytes | bytearray | memoryview) -> None:
    """Raises Misfit for more than MOST_VALUES."""
    if len(body) <= LOOKED_AT:
        return
    at, end, lengths = 0, len(body), _LENGTHS
    for _ in range(MOST_VALUES):
        if at >= end:
            return
        first = body[at]
        length = lengths[first]
        if not length:
            size = _SIZES[first]
            behind = at + 1 + size
            length = 1 + size + int.from_bytes(body[at + 1 : behind], "big") + (first in _EXTENSIONS)
        at += length
    if at < end:
        raise _too_many(len(body))


def check_json(body: bytes | bytearray | memoryview) -> None:
    """Raises Misfit for more than MOST_VALUES lists and maps."""
    if len(body) <= LOOKED_AT:
        return
    found = bytes(body) if isinstance(body, memoryview) else body
    if found.count(b"[") + found.count(b"{") > MOST_VALUES:
        raise _too_many(len(body))


def _too_many(size: int) -> Misfit:
    return Misfit(f"a message of {size} bytes holds more than {MOST_VALUES} values")
