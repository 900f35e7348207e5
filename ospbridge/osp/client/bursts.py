"""Lists that come as one burst of datagrams: agent overview, agent info, values (OSP 1.1, sections 4.3 and 4.5).

Nothing controls the flow, so single pieces get lost, or the tail of a burst that is larger than the receive buffer.
Count and index are checked, never trusted; the pieces of several tries are merged by index.

The document can be read otherwise than servers are that can still be run: so that each piece is acknowledged before the
next one comes, or that pieces count from 1. Both are understood where nothing else explains what comes.

Nor do lists say what was asked for: one may be complete by the count of a late answer to another question. What
contradicts what is known is believed only where it comes a second time, the same, and nothing else behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client.unanswered import Unanswered
from ospbridge.osp.messages import AgentInfo, Message, StepCompletedAck, Truncated

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply

__all__ = ["collect"]

MOST_PIECES: Final = 1_000_000
"""More pieces than this no list of a simulator has; an announced count above it is an error."""
MOST_CHARACTERS: Final = 128_000_000
"""Of all texts of a list together: a datagram may be full of one, and there may be very many of them."""
FEW_PIECES: Final = 16
"""So few missing pieces are always worth asking again for."""
FROM_ONE: Final = 3
"""In so many tries must all pieces but the first come, and one behind the last, to be taken for ones counted from 1."""


class _Behind:
    """Whether pieces seem to count from 1: one comes behind the last, and never the first.

    With the first one, and with another list, there is a new one of these.
    """

    __slots__ = ("_came", "_tries", "piece")

    def __init__(self) -> None:
        self.piece: Message | None = None
        """The one behind the last."""
        self._came = False
        """In this try."""
        self._tries = 0
        """In which it came."""

    def keep(self, piece: Message) -> None:
        """It came; one that differs from that of a try before proves nothing."""
        if self.piece is not None and self.piece != piece:
            self._tries = 0
        self.piece = piece
        self._came = True

    def proved(self) -> bool:
        """A try is over; whether this was seen in enough of them."""
        self._tries += self._came
        self._came = False
        return self._tries >= FROM_ONE


class _Burst:
    """What has arrived of one list."""

    __slots__ = (
        "_known_to_wait",
        "ack",
        "alone",
        "announced",
        "before",
        "behind",
        "beyond",
        "came",
        "characters",
        "disputed",
        "doubted",
        "from_one",
        "head_came",
        "m",
        "one_by_one",
        "pieces",
        "total",
        "what",
    )

    def __init__(self, m: ClientMachine, what: str, ack: Message | None) -> None:
        self.m = m
        self.what = what
        self.ack = ack or m.spare_ack
        self._known_to_wait = ack is not None and not m.profile.eats_awaited_acks
        """Each piece is acknowledged from the first one on, where the server was seen to await that."""
        self.alone = False
        """One piece was there when it was asked again, and no head has come since."""
        self.one_by_one = False
        """Each piece is to be acknowledged."""
        self.announced: Message | None = None
        self.disputed = False
        """Two heads came: one of them is late from another question, and what is complete may be its list."""
        self.doubted = False
        """It is complete, and contradicts what is known or came."""
        self.beyond = False
        """A piece came that is none of so many as were announced."""
        self.before: tuple[Message, dict[int, Message], bool] | None = None
        """What was doubted the last time, and what ``beyond`` was."""
        self.total = 0
        self.head_came = False
        self.came: set[int] = set()
        """What has come in this try: servers may send again and again what was not acknowledged."""
        self.pieces: dict[int, Message] = {}
        self.characters = 0
        """In the pieces."""
        self.behind = _Behind()
        self.from_one = m.counts_from_one
        """Pieces count from 1, as those of another list did, until one has the index 0."""

    @property
    def complete(self) -> bool:
        return self.announced is not None and len(self.pieces) == self.total

    @property
    def undoubted(self) -> bool:
        """It is complete, and nothing speaks against it."""
        return self.complete and not self.disputed and not self.doubted

    @property
    def confirmed(self) -> bool:
        """What was doubted has come once more as it was, and only that."""
        return (
            self.doubted and not self.disputed and self.before == (self.announced, self.pieces, self.beyond)
        )

    @property
    def misled(self) -> bool:
        """What was doubted the last time was not so."""
        return self.before is not None and self.before[:2] != (self.announced, self.pieces)

    @property
    def may_wait(self) -> bool:
        """The first piece came, alone, and perhaps is to be acknowledged before anything else is heard.

        Who asks again as well may be answered twice then, each time piece by piece.
        """
        alone = self.total > 1 == len(self.pieces) == len(self.came)
        return self.head_came and alone and self.behind.piece is None and not self.beyond

    def asked(self) -> int:
        """The question goes out, or an acknowledgement alone; how many pieces are there already."""
        self.alone = len(self.pieces) == 1
        self._known_to_wait = self._known_to_wait or (
            self.one_by_one and not self.m.profile.eats_awaited_acks
        )
        self.one_by_one = self._known_to_wait and self.m.acknowledges_pieces
        self.head_came = False
        self.came.clear()
        return len(self.pieces)

    def begin(self, head: Message, count: int) -> bool:
        """A head; whether it is the first one of this try, or another one than before."""
        if not 0 <= count <= MOST_PIECES:
            raise RemoteProtocolError(f"{self.what}: a count of {count} pieces", data=head.encode(), offset=1)
        if self.announced is not None and self.announced != head:
            self._forget()
            self.disputed = True
            self.m.anomaly(f"{self.what}: two heads came")
        new = not self.head_came or self.announced != head
        self.announced, self.total = head, count
        self.alone = False
        self.head_came = True
        return new

    def settle(self) -> None:
        """Nothing is on its way any more: what comes from now on is the answer to this question."""
        if self.doubted and self.complete and self.announced is not None:
            self.before = self.announced, self.pieces.copy(), self.beyond
        self.disputed = False
        self.announced = None
        self._forget()

    def _forget(self) -> None:
        self.doubted = self.beyond = False
        self._drop_pieces()
        self.came.clear()
        self.behind = _Behind()

    def fell_silent(self) -> None:
        """A try is over. Pieces that prove to count from 1 are complete then."""
        if self.complete:
            return
        last = self.behind.piece
        if self.behind.proved() and last is not None and len(self.pieces) == self.total - 1:
            self.m.counts_from_one = self.from_one = True
            self.pieces = {index - 1: piece for index, piece in self.pieces.items()}
            self.pieces[self.total - 1] = last

    def add(self, index: int, piece: Message) -> bool:
        """Keep a piece. False for one that came in this try before, or has no head: it will come with the next try."""
        if self.from_one and index == 0:
            self.from_one = False
            self.pieces = {before + 1: kept for before, kept in self.pieces.items()}
            self.came = {before + 1 for before in self.came}
        index -= self.from_one
        if self.announced is None:
            # Nothing else is heard, the next try neither, before the server has got rid of the rest.
            self._let_on()
            return False
        if index < 0:
            # Kept back: what it is shows later, but it may be waiting all the same.
            self._count(piece)
            self.one_by_one = self.one_by_one or self.alone
            self._let_on()
            return False
        if index >= self.total:
            # Where they count from 1 one comes behind the last, but the first one never does.
            self.beyond = self.beyond or index > self.total or self.complete
            if index == self.total:
                self.behind.keep(piece)
            self._let_on()
            return False
        if index == 0:
            self.behind = _Behind()
        kept = self.pieces.setdefault(index, piece)
        if kept is piece:
            self._count(piece)
        elif kept != piece:
            # One of the two is late from another question: believe neither.
            self._drop_pieces()
            self.m.anomaly(f"{self.what}: piece {index} came in two versions")
        # The question was taken for the acknowledgement of the first piece then, and brought the second one alone.
        self.one_by_one = self.one_by_one or (self.alone and len(self.pieces) == 2)
        self._let_on()
        new = index not in self.came
        self.came.add(index)
        return new

    def _count(self, piece: Message) -> None:
        self.characters += sum(len(value) for value in vars(piece).values() if isinstance(value, str))
        if self.characters > MOST_CHARACTERS:
            raise RemoteProtocolError(
                f"{self.what}: {len(self.pieces)} of {self.total} pieces have more than {MOST_CHARACTERS} characters",
                data=piece.encode(),
                offset=0,
                hint="no simulator has names of that length; is it the simulator that was meant?",
            )

    def _drop_pieces(self) -> None:
        self.pieces.clear()
        self.characters = 0

    def _let_on(self) -> None:
        """Acknowledge a piece that is not the last, where the server awaits that."""
        if not self.one_by_one:
            return
        self.m.acknowledges_pieces = True
        if self.ack is not None and not self.complete:
            self.m.send(self.ack)


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
    doubts: Callable[[dict[int, Message]], bool] = lambda _: False,
) -> Exchange[tuple[Message, dict[int, Message], bool]]:
    """Ask for a list until it is complete. ``head`` makes a count of a reply, ``piece`` an index, or None.

    Returns the head, the pieces by index, and whether they are complete; incomplete only after ``tries``, or when
    more than the share ``worth_repeating`` of the pieces stayed missing: the burst is then too large. Gives up when
    nothing new came for the query limit, and in any case after the listing limit. ``doubts``: whether pieces, which are
    complete by what was announced, contradict what is known.
    """
    end = min(m.now + max(m.limits.listing, m.limits.query), m.no_later)
    give_up = min(m.now + m.limits.query, end)
    waits = m.waits()
    burst = _Burst(m, what, ack)
    unanswered = Unanswered(m, request, what)
    # Until it is complete: whoever asks may be interrupted, or not go on behind the limit.
    m.list_left = ack or m.list_left
    tried = settled = 0
    while True:
        if tried:
            _free_or_ask_again(m, burst, request, ack)
        else:
            m.send(request)
        tried += 1
        patience = waits.next()
        had = burst.asked()
        quiet_at = min(m.now + patience, give_up)
        while not burst.undoubted:
            reply = yield min(quiet_at, end)
            if reply is None:
                break
            message = reply.message if isinstance(reply, Truncated) else reply
            count = head(message)
            index = piece(message) if count is None else None
            if count is not None:
                if not burst.begin(message, count):
                    continue
            elif index is None:
                (stray or m.unexpected)(reply)
                continue
            elif not burst.add(index, message):
                continue
            burst.doubted = burst.doubted or (burst.complete and (burst.beyond or doubts(burst.pieces)))
            quiet_at = m.now + patience
        burst.doubted = burst.doubted and not burst.confirmed
        if (burst.disputed or burst.doubted) and m.now < give_up:
            burst.settle()
            settled += 1
            continue
        burst.fell_silent()
        if burst.undoubted:
            assert burst.announced is not None
            if burst.misled:
                m.anomaly(f"{what}: the answer to another question came late")
            _confirm(m, burst, burst.announced, ack)
            m.answered(tried - settled)
            return burst.announced, burst.pieces, True
        if len(burst.pieces) > had:
            give_up = m.now + m.limits.query
        give_up = min(give_up, end)
        missing = burst.total - len(burst.pieces)
        # Where nothing came but the head, it came last, and its pieces were not known for what they are. One that came
        # alone may wait for its acknowledgement.
        too_many = len(burst.pieces) > 1 and missing > max(worth_repeating * burst.total, FEW_PIECES)
        if burst.announced is not None and (tried >= tries or too_many or m.now >= give_up):
            unanswered.check(tried, burst.pieces)
            return burst.announced, burst.pieces, False
        if m.now >= give_up:
            raise unanswered.error(tried)
        m.anomaly(f"{request.CODE.name} met silence with {len(burst.pieces)} of {burst.total} pieces")


def _free_or_ask_again(m: ClientMachine, burst: _Burst, request: Message, ack: Message | None) -> None:
    m.retries += 1
    m.free_handler(ack or StepCompletedAck(0))
    if not burst.may_wait:
        m.send(request)


def _confirm(m: ClientMachine, burst: _Burst, head: Message, ack: Message | None) -> None:
    """The list is complete."""
    m.list_left = None if ack is not None else m.list_left
    if ack is None and burst.one_by_one:
        ack = m.spare_ack
    if ack is not None and not _of_nobody(head):
        m.send(ack)


def _of_nobody(head: Message) -> bool:
    """The info of an unknown agent is the one list that no server awaits an acknowledgement for."""
    return isinstance(head, AgentInfo) and head.agent_id == 0 and not head.name
