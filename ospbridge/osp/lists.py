"""Lists that come as one burst of datagrams: agent overview, agent info, values (OSP 1.1, sections 4.3 and 4.5).

Nothing controls the flow, so single pieces get lost, or the tail of a burst that is larger than the receive buffer. A
list is asked for again until count and indices, from 0 or from 1, say that its pieces are all there. A server that
awaits an acknowledgement of each piece shows so by going on behind the one that is sent on a silence.

A value repository that does not fit into one burst is listed in parts, by the first characters of the names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ospbridge.errors import IncompleteListing, RemoteProtocolError, UsageError
from ospbridge.interface import ValueEntry
from ospbridge.osp.messages import (
    GetValueIds,
    Message,
    StepCompletedAck,
    Truncated,
    ValueIds,
    ValueInfo,
    ValueInfoAck,
)
from ospbridge.osp.queries import Question, pause
from ospbridge.osp.repository import compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["Listed", "collect", "find_value", "forget_ids", "list_once", "list_values", "literal"]

P = TypeVar("P", bound=Message)
MOST_PIECES: Final = 1_000_000
"""Pieces that a list may announce; no simulator has as many."""
TRIES: Final = 3
"""Of a listing as a whole, before it is listed in parts."""
TOO_MANY_MISSING: Final = 0.1
"""A larger share of missing pieces means that the burst does not fit: asking again would lose the same ones."""
FEW_PIECES: Final = 16
"""So few missing pieces are worth asking again for, whatever their share."""
PIECE_PAUSE: Final = 0.1
"""Seconds in which a server that awaits the acknowledgement of a piece sends the next one."""
PIECE: Final = 128
"""Bytes of a piece beside its texts."""
_LITERAL: Final = {c: f"[{c}]" for c in "$.|?*+(){}"} | {c: f"\\{c}" for c in "\\^[]"}


class Listed(Generic[P]):
    """What has come of one list, by index as the server has it."""

    def __init__(self, m: ClientMachine, request: Message, what: str) -> None:
        self._m = m
        self._what = what
        self._size = 0
        self.head = request
        """What announces the list, once it has come."""
        self.total = -1
        """Pieces that are announced; -1: there is no head yet."""
        self.by_index: dict[int, P] = {}

    @property
    def _indices(self) -> range:
        """Of a complete list: from 1 where a piece stands behind the last of those from 0."""
        first = int(self.total in self.by_index and 0 not in self.by_index)
        return range(first, first + self.total)

    @property
    def complete(self) -> bool:
        """All pieces are there."""
        return 0 <= self.total <= len(self.by_index) and all(at in self.by_index for at in self._indices)

    @property
    def pieces(self) -> list[P]:
        """What there is, in order."""
        return [self.by_index[at] for at in self._indices if at in self.by_index]

    def begin(self, head: Message, total: int) -> None:
        """A head came. Another one than before is of another list."""
        if not 0 <= total <= MOST_PIECES:
            raise RemoteProtocolError(
                f"{self._what}: a count of {total} pieces", data=head.encode(), offset=1
            )
        if self.head != head:
            self._forget()
        self.head, self.total = head, total

    def add(self, index: int, piece: P) -> None:
        """A piece came. One that differs from what stands at its index makes both doubtful."""
        if not 0 <= index <= self.total:
            return
        before = self.by_index.setdefault(index, piece)
        if before is piece:
            self._size += PIECE + sum(len(value) for value in vars(piece).values() if isinstance(value, str))
            self._m.keep(self._what, self._size, piece)
        elif before != piece:
            self._m.notices.anomaly(f"{self._what}: piece {index} came in two versions")
            self._forget()

    def _forget(self) -> None:
        self.by_index.clear()
        self._size = 0


def collect(
    m: ClientMachine,
    request: Message,
    piece: type[P],
    *,
    count: Callable[[Message], int | None],
    index: Callable[[P], int | None] = lambda piece: piece.index,  # type: ignore[attr-defined]  # most have it
    ack: Message | None,
    what: str,
    tries: int | None = None,
) -> Exchange[Listed[P]]:
    """Ask for a list until it is complete. ``count`` makes the number of pieces of a reply, ``index`` their indices.

    ``ack``: what acknowledges the list, or each piece; None: nothing is acknowledged. Incomplete only after ``tries``
    (with which many missing pieces count for all: the burst is too large), and where nothing new came for
    ``limits.query`` or ``limits.listing`` is over. Raises QueryTimeout where nothing at all came.
    """
    came: Listed[P] = Listed(m, request, what)

    def take(patience: float) -> Exchange[None]:
        """Take in pieces until the list is complete, or nothing came for so long."""
        quiet_at = min(m.now + patience, question.give_up)
        while not came.complete and m.now < question.give_up:
            reply = yield quiet_at
            if reply is None:
                return
            message = reply.message if isinstance(reply, Truncated) else reply
            at = index(message) if isinstance(message, piece) else None
            total = count(message)
            if total is not None:
                came.begin(message, total)
            elif at is not None and isinstance(message, piece):
                came.add(at, message)
                if ack is not None and m.learned.lists_one_by_one and not came.complete:
                    m.send(ack)
            else:
                m.stray(reply)
                continue
            quiet_at = min(m.now + patience, question.give_up)

    with m.limited(max(m.limits.listing, m.limits.query)) as end:
        question = Question(m, what, min(m.now + m.limits.query, end))
        while True:
            had = len(came.by_index)
            yield from take(question.ask(request) - m.now)
            if not came.complete and came.total >= 0 and ack is not None:
                # A handler may await this, for the list or for its latest piece.
                m.send(ack)
                before = len(came.by_index)
                yield from take(PIECE_PAUSE)
                # Whatever is sent next acknowledges that piece.
                m.learned.lists_one_by_one |= len(came.by_index) == before + 1
            if came.complete:
                if ack is not None:
                    _acknowledge(m, ack, came)
                if question.tries > 1:
                    yield from pause(m, PIECE_PAUSE)
                return came
            if len(came.by_index) > had:
                question.give_up = min(m.now + m.limits.query, end)
            missing = came.total - len(came.by_index)
            too_many = missing > max(TOO_MANY_MISSING * came.total, FEW_PIECES)
            given_up = m.now >= question.give_up
            if came.by_index and (given_up or (tries and (question.tries >= tries or too_many))):
                return came
            question.met_silence(request)
            if came.total < 0:
                m.send(StepCompletedAck(0))


def _acknowledge(m: ClientMachine, ack: Message, came: Listed[P]) -> None:
    """The list is complete. No server awaits this behind the info of an agent that it does not know."""
    if came.total or getattr(came.head, "name", True):
        m.list_ack = ack
        # No known server awaits this behind values, but one may be built so.
        if not isinstance(ack, ValueInfoAck) or m.learned.lists_one_by_one:
            m.send(ack)


# --- the value repository --------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """An expression that finds exactly ``text``, in POSIX's basic and extended dialects and in Python's."""
    return "".join(_LITERAL.get(c, c) for c in text)


def list_values(m: ClientMachine, expression: str) -> Exchange[tuple[ValueEntry, ...]]:
    """All variables whose name fits ``expression`` as this server understands it (Profile.matches_whole_names).

    Raises UsageError for an expression that can be applied to no part, IncompleteListing, QueryTimeout.
    """
    listed = yield from list_once(m, expression, tries=TRIES)
    if listed.complete:
        return _entries(listed)
    try:
        pattern = compile_expression(expression)
    except re.error as error:
        raise UsageError(
            f"cannot list {expression!r} in parts: {error}", hint="use a narrower or simpler expression"
        ) from None
    fits = pattern.fullmatch if m.profile.matches_whole_names else pattern.search
    m.notices.anomaly(f"the listing of {expression!r} is too large for one burst")
    found: dict[str, ValueEntry] = {}
    with m.limited(m.limits.listing):
        yield from _list_below(m, "", found)
    return tuple(entry for name, entry in sorted(found.items()) if fits(name))


def find_value(m: ClientMachine, name: str) -> Exchange[ValueEntry | None]:
    """The variable of exactly that name, or None. Known ones are not asked for again."""
    if name not in m.values.entries:
        # Servers may find names that differ in case as well.
        listed = yield from list_once(
            m, literal(name), fits=lambda found: name.casefold() in found.casefold()
        )
        if not listed.complete and name not in m.values.entries:
            raise IncompleteListing(f"{m.peer}: the answer about value {name!r} did not arrive completely")
    return m.values.entries.get(name)


def forget_ids(m: ClientMachine) -> None:
    """An id is unknown: a world that is built anew in a reset may number its variables anew."""
    m.values.entries.clear()
    m.values.listed = False


def list_once(
    m: ClientMachine,
    expression: str,
    *,
    fits: Callable[[str], object] = lambda _: True,
    tries: int | None = None,
) -> Exchange[Listed[ValueInfo]]:
    """One listing, complete or not. ``fits``: whether a name may belong to it."""
    listed = yield from collect(
        m,
        GetValueIds(expression),
        ValueInfo,
        count=lambda x: x.found if isinstance(x, ValueIds) else None,
        index=lambda x: x.index if fits(x.name) else None,
        ack=ValueInfoAck(),
        what=f"values {expression!r}",
        tries=tries,
    )
    m.values.kept.pop(f"values {expression!r}", None)
    known = {entry.id: entry.name for entry in m.values.entries.values()}
    for piece in listed.pieces:
        if known.get(piece.value_id, piece.name) != piece.name:
            raise RemoteProtocolError(
                f"{m.peer} gave the id of value {known[piece.value_id]!r} to {piece.name!r} in a later list",
                data=piece.encode(),
                offset=5,
                hint="an id must be that of one value throughout the session: number values once, not in each list",
            )
    m.values.entries.update({entry.name: entry for entry in _entries(listed)})
    size = sum(PIECE + len(name) + len(entry.type) for name, entry in m.values.entries.items())
    m.keep("values", size, listed.head)
    m.values.silent = False
    return listed


def _entries(listed: Listed[ValueInfo]) -> tuple[ValueEntry, ...]:
    return tuple(ValueEntry(piece.value_id, piece.name, piece.type) for piece in listed.pieces)


def _list_below(m: ClientMachine, prefix: str, found: dict[str, ValueEntry]) -> Exchange[None]:
    """Add all variables whose names begin with ``prefix``, by the character that follows. Raises IncompleteListing."""
    done: set[str] = set()

    def fits(name: str) -> bool:
        return name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] not in done

    expression = f"^{literal(prefix)}.*$"
    while True:
        listed = yield from list_once(m, expression, fits=fits, tries=TRIES)
        entries = _entries(listed)
        found.update({entry.name: entry for entry in entries})
        if listed.complete:
            return
        following = {entry.name[len(prefix)] for entry in entries if len(entry.name) > len(prefix)} - done
        if not following or m.now >= m.limit:
            raise IncompleteListing(
                f"{m.peer}: the value repository did not arrive completely, {len(found)} values did"
            )
        if prefix and not done:
            exact = yield from list_once(m, f"^{literal(prefix)}$", fits=prefix.__eq__)
            found.update({entry.name: entry for entry in _entries(exact)})
        for character in sorted(following):
            yield from _list_below(m, prefix + character, found)
        done |= following
        others = "".join(f"\\{c}" if c in "\\]^-[" else c for c in sorted(done))
        expression = f"^{literal(prefix)}[^{others}].*$"
