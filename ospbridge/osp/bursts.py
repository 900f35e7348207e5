"""Lists that come as one burst of datagrams: agent overview, agent info, values (OSP 1.1, sections 4.3 and 4.5).

Nothing controls the flow, so single pieces get lost, or the tail of a burst that is larger than the receive buffer.
Count and index are checked, never trusted; the pieces of several tries are merged by index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import QueryTimeout, RemoteProtocolError
from ospbridge.osp.messages import AgentInfo, Message, StepCompletedAck, Truncated

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = ["collect"]

MOST_PIECES: Final = 1_000_000
"""More pieces than this no list of a simulator has; an announced count above it is an error."""
FEW_PIECES: Final = 16
"""So few missing pieces are always worth asking again for."""


class _Burst:
    """What has arrived of one list."""

    __slots__ = ("announced", "disputed", "m", "pieces", "total", "what")

    def __init__(self, m: ClientMachine, what: str) -> None:
        self.m = m
        self.what = what
        self.announced: Message | None = None
        self.disputed = False
        """Two heads came: one of them is late from another question, and what is complete may be its list."""
        self.total = 0
        self.pieces: dict[int, Message] = {}

    @property
    def complete(self) -> bool:
        return self.announced is not None and len(self.pieces) == self.total

    def begin(self, head: Message, count: int) -> None:
        if not 0 <= count <= MOST_PIECES:
            raise RemoteProtocolError(f"{self.what}: a count of {count} pieces", data=head.encode(), offset=1)
        if self.announced is not None and self.announced != head:
            self.pieces.clear()
            self.disputed = True
            self.m.anomaly(f"{self.what}: two heads came")
        self.announced, self.total = head, count

    def settle(self) -> None:
        """Nothing is on its way any more: what comes from now on is the answer to this question."""
        self.disputed = False
        self.announced = None
        self.pieces.clear()

    def add(self, index: int, piece: Message) -> bool:
        """Keep a piece; False for one without a head: it will come again with the next try."""
        if self.announced is None or not 0 <= index < self.total:
            return False
        if self.pieces.setdefault(index, piece) != piece:
            # One of the two is late from another question: believe neither.
            self.pieces.clear()
            self.m.anomaly(f"{self.what}: piece {index} came in two versions")
        return True


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
) -> Exchange[tuple[Message, dict[int, Message], bool]]:
    """Ask for a list until it is complete. ``head`` makes a count of a reply, ``piece`` an index, or None.

    Returns the head, the pieces by index, and whether they are complete; incomplete only after ``tries``, or when
    more than the share ``worth_repeating`` of the pieces stayed missing: the burst is then too large. Gives up when
    nothing new came for the query limit, and in any case after the listing limit.
    """
    started = m.now
    give_up = m.now + m.limits.query
    end = m.now + max(m.limits.listing, m.limits.query)
    waits = m.waits()
    burst = _Burst(m, what)
    tried = 0
    while True:
        if tried:
            m.retries += 1
            m.send(ack or StepCompletedAck(0))
        m.send(request)
        tried += 1
        patience = waits.next()
        had = len(burst.pieces)
        quiet_at = min(m.now + patience, give_up)
        while not burst.complete or burst.disputed:
            reply = yield min(quiet_at, end)
            if reply is None:
                break
            message = reply.message if isinstance(reply, Truncated) else reply
            count = head(message)
            index = piece(message) if count is None else None
            if count is not None:
                burst.begin(message, count)
            elif index is None:
                (stray or m.unexpected)(reply)
                continue
            elif not burst.add(index, message):
                continue
            quiet_at = m.now + patience
        if burst.disputed and m.now < give_up:
            burst.settle()
            continue
        if burst.complete and not burst.disputed:
            assert burst.announced is not None
            if ack is not None and not _of_nobody(burst.announced):
                m.send(ack)
            return burst.announced, burst.pieces, True
        if len(burst.pieces) > had:
            give_up = m.now + m.limits.query
        give_up = min(give_up, end)
        missing = burst.total - len(burst.pieces)
        # Where nothing came but the head, it came last, and its pieces were not known for what they are.
        too_many = bool(burst.pieces) and missing > max(worth_repeating * burst.total, FEW_PIECES)
        if burst.announced is not None and (tried >= tries or too_many or m.now >= give_up):
            return burst.announced, burst.pieces, False
        if m.now >= give_up:
            raise QueryTimeout(
                f"{m.peer} did not answer {request.CODE.name} ({what}) within {m.now - started:.1f} s, "
                f"asked {tried} times"
            )
        m.anomaly(f"{request.CODE.name} met silence with {len(burst.pieces)} of {burst.total} pieces")


def _of_nobody(head: Message) -> bool:
    """The info of an unknown agent is the one list that no server awaits an acknowledgement for."""
    return isinstance(head, AgentInfo) and head.agent_id == 0 and not head.name
