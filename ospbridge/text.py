"""Text for people: counts of things, and what a peer says, which is never shown whole and raw.

Names and messages come from simulators, daemons, RLlink servers and files. None may steer a terminal, and none may fill
a screen, a log or a status. ``printable`` is what every text of a peer goes through before anybody sees it: errors, log
lines, tables, pictures, pages and labels all use it. Data for programs keep whole names: ``--json``, what the library
returns, recordings.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["LINE", "LIST", "NAME", "fitting", "identifier", "listed", "pluralize", "printable", "writable"]

NAME: Final = 200
"""Bytes of a name as it is shown."""
LIST: Final = 1_000
"""Bytes of names one after the other, and of a value in a line of the log."""
LINE: Final = 3_000
"""Bytes of a line of text; with what a program writes before and behind it, less than 4 kB."""
GAP: Final = 40
"""Bytes of the longest gap: that of a text of 10^15 characters."""


def pluralize(count: int, noun: str, plural: str = "", *, form: str = "") -> str:
    """As "1 step", "2 steps". ``plural``: where it is not ``noun`` with an s; ``form``: of the number."""
    return f"{count:{form}} {noun if count == 1 else plural or f'{noun}s'}"


def printable(text: str, most: int = NAME) -> str:
    """``text`` on one line, in at most ``most`` bytes of UTF-8 (100 or more).

    Whatever is no visible character (control characters, line ends, the direction and formatting characters of Unicode,
    bytes that are no UTF-8) is shown as its escape. Of a longer text its beginning and its end are shown, and the
    number of characters between them. What is printable already stays as it is. The cost does not depend on the length
    of ``text``.
    """
    if len(text) <= most:
        whole = text if text.isprintable() else "".join(map(_escaped, text))
        if len(whole.encode()) <= most:
            return whole
    room = most - GAP
    head = _first(text[:room], room * 2 // 3)
    tail = _first(text[: -room - 1 : -1], room // 3)
    left_out = len(text) - len(head) - len(tail)
    return f"{''.join(head)} ... {left_out:,} characters ... {''.join(reversed(tail))}"


def _escaped(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def _first(characters: str, room: int) -> list[str]:
    """The first of them, escaped, that have ``room``."""
    shown = [_escaped(character) for character in characters]
    ends = itertools.accumulate(len(each.encode()) for each in shown)
    return shown[: sum(end <= room for end in ends)]


def listed(names: Iterable[str], most: int = LIST) -> str:
    """Names one after the other, each ``printable``, in at most ``most`` bytes; those without room are counted."""
    return ", ".join(fitting([printable(name) for name in names], most))


def fitting(shown: Sequence[str], most: int) -> list[str]:
    """The first of some texts that have room in ``most`` bytes with ", " between them, and how many more there are."""
    ends = list(itertools.accumulate(len(each.encode()) + 2 for each in shown))
    if not ends or ends[-1] - 2 <= most:
        return list(shown)
    count = sum(end <= most - GAP for end in ends)
    return [*shown[:count], f"... {len(shown) - count:,} more"]


def identifier(name: str) -> str:
    """What a name is called where it tells one from another, as in labels: ``printable``, and never as another name.

    One that cannot be shown as it is has the beginning of its digest behind it.
    """
    shown = printable(name)
    if shown == name:
        return name
    return f"{shown} [{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}]"


def writable(text: str) -> str:
    """``text`` as UTF-8 has it: what is no character, as in the name of a file that is no UTF-8, as its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
