"""Lists that come as one burst of datagrams: agent overview, agent info, values (OSP 1.1, sections 4.3 and 4.5).

Nothing controls the flow, so single pieces get lost, or the tail of a burst that is larger than the receive buffer. A
list is asked for again, its pieces are merged by index, and it is complete when count and indices say so: from 0, or
from 1, as servers have it. A server that awaits an acknowledgement of each piece shows so by going on behind the one
that is sent on a silence.

A value repository that does not fit into one burst is listed in parts, by the first characters of the names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

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
from ospbridge.osp.profile import Expression
from ospbridge.osp.queries import Question, pause
from ospbridge.osp.repository import compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = [
    "Listed",
    "collect",
    "find_interface_values",
    "find_value",
    "forget_ids",
    "list_all",
    "list_once",
    "list_values",
    "literal",
]

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
LONGEST_PATH: Final = 1024
"""Characters of a variable's name that may stand for an interface value."""
_LITERAL: Final = {c: f"[{c}]" for c in "$.|?*+(){}"} | {c: f"\\{c}" for c in "\\^[]"}


@dataclass(slots=True)
class Listed:
    """A list as far as it has come. ``pieces`` by index from 0."""

    head: Message
    pieces: dict[int, Message]
    complete: bool


class _Listing:
    """What has come of one list, by index as the server has it; see ``collect`` for what it is made with."""

    def __init__(
        self,
        m: ClientMachine,
        what: str,
        ack: Message | None,
        *,
        count: Callable[[Message], int | None],
        index: Callable[[Message], int | None],
        stray: Callable[[Reply], None],
    ) -> None:
        self._m = m
        self._what = what
        self._ack = ack
        self._count = count
        self._index = index
        self._stray = stray
        self._size = 0
        self.head: Message | None = None
        self.total = 0
        self.by_index: dict[int, Message] = {}

    @property
    def first(self) -> int:
        """The index of the first piece: 1 where one stands behind the last of those that count from 0."""
        return int(self.total in self.by_index and 0 not in self.by_index)

    @property
    def complete(self) -> bool:
        """All pieces that were announced are there."""
        if self.head is None or len(self.by_index) < self.total:
            return False
        return all(index in self.by_index for index in range(self.first, self.first + self.total))

    @property
    def missing(self) -> int:
        return max(self.total - len(self.by_index), 0)

    def take(self, patience: float, give_up: float) -> Exchange[None]:
        """Take in pieces until the list is complete, or nothing came for ``patience`` seconds."""
        m, ack = self._m, self._ack
        quiet_at = min(m.now + patience, give_up)
        while not self.complete and m.now < give_up:
            reply = yield quiet_at
            if reply is None:
                return
            message = reply.message if isinstance(reply, Truncated) else reply
            total = self._count(message)
            if total is not None:
                self._begin(message, total)
            else:
                index = self._index(message)
                if index is None:
                    self._stray(reply)
                    continue
                if self.head is not None:
                    self._add(index, message)
                if ack is not None and m.learned.lists_one_by_one and not self.complete:
                    m.send(ack)
            quiet_at = min(m.now + patience, give_up)

    def _begin(self, head: Message, total: int) -> None:
        """A head came. Another one than before is of another list, and so are the pieces that came with it."""
        if not 0 <= total <= MOST_PIECES:
            raise RemoteProtocolError(
                f"{self._what}: a count of {total} pieces", data=head.encode(), offset=1
            )
        if self.head is not None and self.head != head:
            self._forget()
        self.head, self.total = head, total

    def _add(self, index: int, piece: Message) -> None:
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

    def listed(self) -> Listed:
        """What there is, with indices from 0."""
        assert self.head is not None
        first = self.first
        return Listed(
            self.head, {index - first: piece for index, piece in sorted(self.by_index.items())}, self.complete
        )


def collect(
    m: ClientMachine,
    request: Message,
    *,
    head: Callable[[Message], int | None],
    piece: Callable[[Message], int | None],
    ack: Message | None,
    what: str,
    stray: Callable[[Reply], None] | None = None,
    tries: int = 1_000,
    worth_repeating: float = 1.0,
) -> Exchange[Listed]:
    """Ask for a list until it is complete. ``head`` makes a count of a reply, ``piece`` an index, or None.

    ``ack``: what acknowledges the list, or each piece; None: nothing is acknowledged. Incomplete only after ``tries``,
    or where more than the share ``worth_repeating`` of the pieces stayed missing: the burst is then too large. Raises
    QueryTimeout when nothing new came for ``limits.query``, and in any case after ``limits.listing``.
    """
    question = Question(m, request, what)
    stray = stray or m.unexpected
    came = _Listing(m, what, ack, count=head, index=piece, stray=stray)
    waits = m.waits()
    with m.limited(max(m.limits.listing, m.limits.query)) as end:
        give_up = min(m.now + m.limits.query, end)
        asked = 0
        while True:
            m.send(request)
            asked += 1
            had = len(came.by_index)
            yield from came.take(waits.next(), give_up)
            if not came.complete and came.head is not None and ack is not None:
                # A handler may await this, for the list or for its latest piece.
                m.send(ack)
                before = len(came.by_index)
                yield from came.take(PIECE_PAUSE, give_up)
                if len(came.by_index) == before + 1:
                    m.learned.lists_one_by_one = True
                    m.send(ack)
                    yield from came.take(PIECE_PAUSE, give_up)
            if came.complete:
                if ack is not None and not _of_nobody(came.head):
                    _acknowledge(m, ack)
                if asked > 1:
                    yield from pause(m, PIECE_PAUSE, stray)
                return came.listed()
            if len(came.by_index) > had:
                give_up = min(m.now + m.limits.query, end)
            too_many = came.missing > max(worth_repeating * came.total, FEW_PIECES)
            over = m.now >= give_up
            if came.by_index and (asked >= tries or too_many or over):
                return came.listed()
            if over:
                raise question.error(asked)
            m.notices.anomaly(
                f"{request.CODE.name} met silence with {len(came.by_index)} of {came.total} pieces"
            )
            m.retries += 1
            if came.head is None:
                m.send(StepCompletedAck(0))


def _acknowledge(m: ClientMachine, ack: Message) -> None:
    """The list is complete. No known server awaits an acknowledgement of values, but one may be built so."""
    m.list_ack = ack
    if not isinstance(ack, ValueInfoAck) or m.learned.lists_one_by_one:
        m.send(ack)


def _of_nobody(head: Message | None) -> bool:
    """The info of an agent that does not exist, which no server awaits an acknowledgement of."""
    return getattr(head, "agent_id", None) == 0 and getattr(head, "name", None) == ""


# --- the value repository --------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """An expression that finds exactly ``text``, in every dialect of regular expressions that servers use.

    Those of POSIX have basic ones, where a backslash makes some characters special that are not so without it.
    """
    return "".join(_LITERAL.get(c, c) for c in text)


def list_values(
    m: ClientMachine, expression: str, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[tuple[ValueEntry, ...]]:
    """All variables whose name fits ``expression`` as this server understands it (Profile.expression).

    Raises UsageError for an expression that can be applied to no part, IncompleteListing, QueryTimeout.
    """
    listed = yield from list_once(m, expression, tries=TRIES, stray=stray)
    if listed.complete:
        return _entries(listed)
    try:
        pattern = compile_expression(expression)
    except re.error as error:
        raise UsageError(
            f"cannot list {expression!r} in parts: {error}", hint="use a narrower or simpler expression"
        ) from None
    fits = pattern.fullmatch if m.profile.expression is Expression.WHOLE else pattern.search
    m.notices.anomaly(f"the listing of {expression!r} is too large for one burst")
    found: dict[str, ValueEntry] = {}
    with m.limited(m.limits.listing):
        yield from _list_below(m, "", found, stray)
    return tuple(entry for name, entry in sorted(found.items()) if fits(name))


def list_all(m: ClientMachine, *, stray: Callable[[Reply], None] | None = None) -> Exchange[None]:
    """Know the whole repository."""
    if not m.values.listed:
        yield from list_values(m, ".*", stray=stray)
        m.values.listed = True


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
    """An id is unknown to the simulator: a world that is built anew in a reset may number its variables anew."""
    m.values.entries.clear()
    m.values.listed = False


def list_once(
    m: ClientMachine,
    expression: str,
    *,
    fits: Callable[[str], object] = lambda _: True,
    tries: int = 1_000,
    stray: Callable[[Reply], None] | None = None,
) -> Exchange[Listed]:
    """One listing, complete or not. ``fits``: whether a name may belong to it; what does not is of another question."""
    listed = yield from collect(
        m,
        GetValueIds(expression),
        head=lambda x: x.found if isinstance(x, ValueIds) else None,
        piece=lambda x: x.index if isinstance(x, ValueInfo) and fits(x.name) else None,
        ack=ValueInfoAck(),
        what=f"values {expression!r}",
        tries=tries,
        worth_repeating=TOO_MANY_MISSING,
        stray=stray,
    )
    m.values.kept.pop(f"values {expression!r}", None)
    known = {entry.id: entry.name for entry in m.values.entries.values()}
    for piece in listed.pieces.values():
        assert isinstance(piece, ValueInfo)
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


def _entries(listed: Listed) -> tuple[ValueEntry, ...]:
    return tuple(
        ValueEntry(piece.value_id, piece.name, piece.type)
        for piece in listed.pieces.values()
        if isinstance(piece, ValueInfo)
    )


def _list_below(
    m: ClientMachine, prefix: str, found: dict[str, ValueEntry], stray: Callable[[Reply], None] | None
) -> Exchange[None]:
    """Add to ``found`` all variables whose names begin with ``prefix``: in parts, by the character that follows.

    Raises IncompleteListing.
    """
    listed = yield from list_once(
        m, f"^{literal(prefix)}.*$", fits=lambda name: name.startswith(prefix), tries=TRIES, stray=stray
    )
    done: set[str] = set()
    while True:
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
            exact = yield from list_once(m, f"^{literal(prefix)}$", fits=prefix.__eq__, stray=stray)
            found.update({entry.name: entry for entry in _entries(exact)})
        for character in sorted(following):
            yield from _list_below(m, prefix + character, found, stray)
        done |= following
        others = "".join(f"\\{c}" if c in "\\]^-[" else c for c in sorted(done))
        listed = yield from list_once(
            m,
            f"^{literal(prefix)}[^{others}].*$",
            fits=partial(_goes_on, prefix, frozenset(done)),
            tries=TRIES,
            stray=stray,
        )


def _goes_on(prefix: str, without: frozenset[str], name: str) -> bool:
    """Whether a name begins with ``prefix``, and goes on with another character than those."""
    return name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] not in without


# --- interface values in the repository ------------------------------------------------------------------------------


def find_interface_values(
    values: Iterable[ValueEntry], agent: str, names: Sequence[str], *, others: Collection[str] = ()
) -> list[int | None]:
    """Local ids of an agent's interface values, in the order of ``names``; None where there is not exactly one.

    By type where servers type interface values so (observed on a NERD server), else by the name, or the end of it.
    Agents of equal interface are told apart by the agent's name as a part of the path. What stands alone is the
    agent's also without that, unless it stands where one of the ``others`` does.
    """
    by_name = _by_name(values, set(names))
    return [_only(by_name.get(name, ()), agent, name, others) for name in names]


def _by_name(values: Iterable[ValueEntry], wanted: set[str]) -> dict[str, list[ValueEntry]]:
    """Which variables may be the interface value of each of the ``wanted`` names."""
    by_name: dict[str, list[ValueEntry]] = {}
    tails = {f"/{name}": name for name in wanted} | {name: name for name in wanted}
    for entry in values:
        if entry.type in wanted:
            by_name.setdefault(entry.type, []).append(entry)
        elif entry.name in wanted:
            by_name.setdefault(entry.name, []).append(entry)
        elif len(entry.name) <= LONGEST_PATH:
            # "/Sim/Robot/Knee/Angle" ends with "/Knee/Angle": try each tail that begins with a slash.
            at = entry.name.find("/")
            while at >= 0:
                name = tails.get(entry.name[at:])
                if name:
                    by_name.setdefault(name, []).append(entry)
                    break
                at = entry.name.find("/", at + 1)
    return by_name


def _only(candidates: Sequence[ValueEntry], agent: str, name: str, others: Collection[str]) -> int | None:
    typed = [entry for entry in candidates if entry.type == name] or [
        # A short name may stand for something else further below its agent.
        entry
        for entry in candidates
        if name.startswith("/") or entry.name == name or entry.name.endswith(f"/{agent}/{name}")
    ]
    own = [entry for entry in typed if _stands_at(entry, agent, name)]
    if not own and len(typed) == 1:
        own = [entry for entry in typed if not any(_stands_at(entry, other, name) for other in others)]
    return own[0].id if len(own) == 1 else None


def _stands_at(entry: ValueEntry, agent: str, name: str) -> bool:
    """Whether the agent's name is a part of the path in front of ``name``, or of that where it is all there is."""
    if entry.name == name:
        return bool(agent) and f"/{agent}/" in f"/{name}"
    path = entry.name.removesuffix(name if name.startswith("/") else f"/{name}")
    return f"/{agent}/" in (f"{path}/" if path.startswith("/") else f"/{path}/")
