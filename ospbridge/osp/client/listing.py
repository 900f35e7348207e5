"""Listing the value repository completely, although the answer comes as one burst without flow control.

First the expression as it is, a few times, merging by index. Where pieces stay missing, because the burst is larger
than the receive buffer, the repository is listed in parts: by first characters of the names, halving what is too
large; then the expression is applied here. OSP 1.1, section 4.5.

No answer says what was asked for. One that lacks a name which is known, or has one that does not fit, may be a late
answer to another question, and must come twice (see ``bursts``); a name that is lacking then is known no more.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ospbridge.errors import IncompleteListing, RemoteProtocolError, UsageError
from ospbridge.interface import ValueEntry
from ospbridge.osp.client.bursts import collect
from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply
from ospbridge.osp.messages import GetValueIds, Message, ValueIds, ValueInfo, ValueInfoAck
from ospbridge.osp.patterns import compiled
from ospbridge.osp.profile import Expression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    Stray: TypeAlias = Callable[[Reply], None] | None
    Fits: TypeAlias = Callable[[str], object]
    Doubts: TypeAlias = Callable[[Sequence[ValueEntry]], bool]

__all__ = ["find_value", "list_once", "list_values"]

TRIES: Final = 3
UNTIL_THE_LIMIT: Final = 1_000
FEW_MISSING: Final = 0.1
"""A larger share of missing pieces means that the burst does not fit: asking again would lose the same ones."""
_LITERAL: Final = {c: f"[{c}]" for c in "$.|?*+(){}"} | {c: f"\\{c}" for c in "\\^[]"}


def _none(_: Sequence[ValueEntry]) -> bool:
    return False


def _nothing(_: str) -> bool:
    return False


def literal(text: str) -> str:
    """An expression that finds exactly ``text``, in every dialect of regular expressions that servers use.

    Those of POSIX have basic ones, where a backslash makes some characters special that are not so without it.
    """
    return "".join(_LITERAL.get(c, c) for c in text)


def list_values(
    m: ClientMachine, expression: str, *, stray: Stray = None
) -> Exchange[tuple[ValueEntry, ...]]:
    """All variables whose name fits ``expression`` as this server understands it (Profile.expression).

    What comes meanwhile and is no part of the answer goes to ``stray``.
    """
    fits: Fits | None
    try:
        pattern = compiled(expression)
    except re.error as error:
        wrong, fits = str(error), None
    else:
        wrong, fits = "", pattern.fullmatch if m.profile.expression is Expression.WHOLE else pattern.search
    _, entries, complete = yield from list_once(
        m,
        expression,
        belongs=fits or _nothing,
        # What does not fit may be the answer to a wider question.
        doubts=lambda found: (
            m.disturbed and fits is not None and not all(fits(entry.name) for entry in found)
        ),
        stray=stray,
    )
    if complete:
        return entries
    if fits is None:
        raise UsageError(
            f"cannot list {expression!r} in parts: {wrong}", hint="use a narrower or simpler expression"
        )
    m.anomaly(f"the listing of {expression!r} is too large for one burst")
    give_up = m.now + m.limits.listing
    found: dict[str, ValueEntry] = {}
    yield from _list_part(m, _Part(), found, give_up, stray)
    return tuple(entry for name, entry in sorted(found.items()) if fits(name))


def find_value(m: ClientMachine, name: str) -> Exchange[ValueEntry | None]:
    """The variable of exactly that name, or None. Known ones are not asked for again."""
    known = m.values.get(name)
    if known is not None:
        return known
    _, entries, complete = yield from list_once(
        m,
        literal(name),
        tries=UNTIL_THE_LIMIT,
        # Servers may find names that differ in case as well.
        fits=lambda found: name.casefold() in found.casefold(),
        # "Nothing found" does not say what for: it may be the late answer to another question.
        doubts=lambda found: m.disturbed and all(entry.name != name for entry in found),
    )
    found = next((entry for entry in entries if entry.name == name), None)
    if found is None and not complete:
        raise IncompleteListing(f"{m.peer}: the answer about value {name!r} did not arrive completely")
    return found


def list_once(
    m: ClientMachine,
    expression: str,
    *,
    fits: Fits = lambda _: True,
    belongs: Fits = _nothing,
    doubts: Doubts = _none,
    tries: int = TRIES,
    stray: Stray = None,
) -> Exchange[tuple[int, tuple[ValueEntry, ...], bool]]:
    """How many the server has, those that came, and whether these are all.

    ``fits``: whether a name may be one of them, ``belongs``: whether it must be, where it is known. ``doubts``: whether
    what came whole must come twice for another reason.
    """

    def head(message: Message) -> int | None:
        return message.found if isinstance(message, ValueIds) else None

    def piece(message: Message) -> int | None:
        # A name that does not fit is a late answer to another question.
        return message.index if isinstance(message, ValueInfo) and fits(message.name) else None

    def lacking(found: Iterable[ValueEntry]) -> list[str]:
        there = {entry.name for entry in found}
        return [name for name in m.values if name not in there and belongs(name)]

    def contradicts(pieces: dict[int, Message]) -> bool:
        found = _entries(pieces)
        return bool(lacking(found)) or doubts(found)

    ack = ValueInfoAck()
    if not m.profile.eats_awaited_acks:
        m.spare_ack = ack
    announced, pieces, complete = yield from collect(
        m,
        GetValueIds(expression),
        head=head,
        piece=piece,
        ack=ack if m.awaits_spare_ack else None,
        what=f"values {expression!r}",
        tries=tries,
        worth_repeating=FEW_MISSING,
        stray=stray,
        doubts=contradicts,
    )
    if not m.profile.eats_awaited_acks and not m.awaits_spare_ack:
        m.spare_ack = ack
    entries = _entries(pieces)
    if complete:
        for name in lacking(entries):
            del m.values[name]
    _check_ids(m, pieces)
    m.values.update({entry.name: entry for entry in entries})
    m.mute_questions = 0
    assert isinstance(announced, ValueIds)
    return announced.found, entries, complete


def _check_ids(m: ClientMachine, pieces: dict[int, Message]) -> None:
    """Whoever numbers each list anew would be asked for one variable and answer with, or set, another."""
    given = {piece.value_id: piece for piece in pieces.values() if isinstance(piece, ValueInfo)}
    for known in m.values.values():
        other = given.get(known.id, known)
        if other.name != known.name and isinstance(other, ValueInfo):
            raise RemoteProtocolError(
                f"{m.peer} gave the id of value {known.name!r} to {other.name!r} in a later list",
                data=other.encode(),
                offset=5,
                hint="an id must be that of one value throughout the session: number values once, not in each list",
            )


def _entries(pieces: dict[int, Message]) -> tuple[ValueEntry, ...]:
    return tuple(
        ValueEntry(piece.value_id, piece.name, piece.type)
        for _, piece in sorted(pieces.items())
        if isinstance(piece, ValueInfo)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Names that begin with ``prefix`` and go on with one of ``only`` (if any) and none of ``never``."""

    prefix: str = ""
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()

    @property
    def expression(self) -> str:
        if self.only:
            return f"^{literal(self.prefix)}{_class(self.only)}.*$"
        if self.never:
            return f"^{literal(self.prefix)}{_class(self.never, negated=True)}.*$"
        return f"^{literal(self.prefix)}.*$"

    def holds(self, name: str) -> bool:
        """Whether the name is of this part."""
        following = name[len(self.prefix) : len(self.prefix) + 1]
        if not name.startswith(self.prefix) or (not following and (self.only or self.never)):
            return False
        return following in self.only if self.only else following not in self.never

    def split(self, names: Sequence[str]) -> tuple[tuple[_Part, ...], tuple[str, ...]]:
        """Smaller parts, and names that stand alone, which together are this part. ``names``: some of its names.

        Empty where ``names`` do not show how to split.
        """
        at = len(self.prefix)
        if not self.only and not self.never:
            shared = os.path.commonprefix(list(names))  # noqa: RUF071  # by character is what is wanted
            if len(shared) > at:
                beside = tuple(_Part(shared[:k], never=frozenset(shared[k])) for k in range(at, len(shared)))
                return (_Part(shared), *beside), tuple(shared[:k] for k in range(max(at, 1), len(shared)))
        seen = {name[at] for name in names if len(name) > at}
        if not seen:
            return (), ()
        half = frozenset(sorted(seen)[: (len(seen) + 1) // 2])
        (single, *more) = sorted(half)
        first = replace(self, only=half, never=frozenset()) if more else _Part(self.prefix + single)
        if self.only:
            rest = self.only - half
            return ((first, replace(self, only=rest)) if rest else (first,)), ()
        alone = (self.prefix,) if self.prefix and not self.never else ()
        return (first, replace(self, never=self.never | half)), alone


def _class(characters: frozenset[str], *, negated: bool = False) -> str:
    inside = "".join("\\" + c if c in "\\]^-[" else c for c in sorted(characters))
    return f"[{'^' if negated else ''}{inside}]"


def _list_part(
    m: ClientMachine, part: _Part, found: dict[str, ValueEntry], give_up: float, stray: Stray
) -> Exchange[int]:
    """Add to ``found`` what the part holds, and return how much that is.

    On a busy machine a late answer can stand for that to a later question. Its names are of no use then, but its number
    may look right; so the numbers must agree: of a part with what is known of it, of smaller parts with that of theirs.
    """
    while True:
        if m.now >= give_up:
            raise IncompleteListing(
                f"{m.peer}: the value repository did not arrive completely within {m.limits.listing:.0f} s, "
                f"{len(found)} values did"
            )
        announced, entries, complete = yield from list_once(
            m, part.expression, fits=part.holds, belongs=part.holds, stray=stray
        )
        found.update({entry.name: entry for entry in entries})
        if announced < sum(part.holds(name) for name in found):
            continue
        if complete:
            return announced
        parts, alone = part.split([entry.name for entry in entries])
        if not parts:
            raise IncompleteListing(f"{m.peer}: nothing of the values {part.expression!r} arrived")
        total = 0
        for name in alone:
            number, exact, _ = yield from list_once(
                m, f"^{literal(name)}$", fits=name.__eq__, belongs=name.__eq__, stray=stray
            )
            found.update({entry.name: entry for entry in exact})
            total += number
        for smaller in parts:
            total += yield from _list_part(m, smaller, found, give_up, stray)
        if total == announced:
            return announced
