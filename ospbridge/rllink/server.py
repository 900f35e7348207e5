"""The server role of RLlink without I/O: one connection of one client, in the client's dialect.

What real servers do where it matters to a client: PING is answered at once, and nothing is read while weights are
due. Unlike them it survives bad input: ``receive`` raises, and only this connection is over.

What this module must not do: read a clock, draw a random number, touch a socket.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.rllink.batches import NOTHING_MORE, Needs, check_fragments
from ospbridge.rllink.decoding import LONGEST_TOLD
from ospbridge.rllink.dialects import dialect_of
from ospbridge.rllink.framing import LARGEST_TAKEN, Deframer
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    Ping,
    Pong,
    SetConfig,
    SetState,
    Unknown,
)
from ospbridge.text import printable

if TYPE_CHECKING:
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import EpisodeFragment, Weights

__all__ = ["EpisodesArrived", "Greeted", "Ignored", "ServerEvent", "ServerMachine", "StateWanted"]

HELD_AT_MOST: Final = 16 * 1024 * 1024
"""Bytes that a client may send while weights are due to it; a driver that minds ``reading`` keeps far below."""


@dataclass(frozen=True, slots=True)
class Greeted:
    """A PING was answered."""

    dialect: Dialect


@dataclass(frozen=True, slots=True)
class EpisodesArrived:
    """Experience came, checked. A StateWanted follows where the client waits for weights."""

    fragments: tuple[EpisodeFragment, ...]

    @property
    def steps(self) -> int:
        return sum(fragment.steps for fragment in self.fragments)


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Call ``send_state``; until then nothing more is read. ``learned``: weights are to come from what was sent."""

    learned: bool


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message came that no client sends."""

    text: str


ServerEvent: TypeAlias = Greeted | EpisodesArrived | StateWanted | Ignored


class ServerMachine:
    """One connection's side of the protocol. ``config`` is what GET_CONFIG is answered with.

    ``dialect`` None takes that of the client's first message. ``needs`` is what each episode must have.
    """

    def __init__(
        self,
        config: SetConfig,
        *,
        dialect: Dialect | None = None,
        needs: Needs = NOTHING_MORE,
        largest: int = LARGEST_TAKEN,
    ) -> None:
        self.config = config
        self.dialect = dialect
        self.needs = needs
        self.lost: RemoteProtocolError | None = None
        """Why the connection must be closed."""
        self.state_wanted = False
        self._deframer = Deframer(largest=largest)
        self._outgoing: list[bytes | bytearray] = []
        self._events: deque[ServerEvent] = deque()
        self._held = bytearray()
        self._bodies: deque[bytearray] = deque()

    @property
    def reading(self) -> bool:
        """Whether more bytes are wanted: not while weights are due, as with real servers."""
        return self.lost is None and not self.state_wanted

    @property
    def unfinished(self) -> int:
        """Bytes of a message that is not there to its end."""
        return self._deframer.held

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes came. Raises RemoteProtocolError for what is no RLlink, and for an episode that lacks something."""
        if self.lost is not None:
            return
        try:
            if self.state_wanted:
                self._hold(data)
            else:
                self._read(data)
        except RemoteProtocolError as error:
            self.lost = error
            raise

    def eof(self) -> None:
        """The client sends no more. Raises RemoteProtocolError where that is in mid-message.

        Weights that are due are to be sent before: what waits behind them has not been looked at.
        """
        if self.lost is not None or self._deframer.empty:
            return
        self.lost = RemoteProtocolError(
            f"expected the rest of a message, the client's stream ended behind {self._deframer.unfinished()}",
            data=b"",
            offset=0,
            hint="what it held is lost unless the client sends it again; was it killed, or the connection cut?",
        )
        raise self.lost

    def data_to_send(self) -> list[bytes | bytearray]:
        """What is to be sent now, in order; it counts as sent then."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def next_event(self) -> ServerEvent | None:
        return self._events.popleft() if self._events else None

    def send_state(self, state: Weights | bytes | bytearray) -> None:
        """Send weights, asked for or not, and read on. Bytes: SET_STATE as ``dialect.encode`` has written it.

        Raises LocalProtocolError before the client said anything, RemoteProtocolError if what it sent meanwhile is bad.
        """
        if self.dialect is None:
            raise LocalProtocolError("weights cannot be sent before the client's dialect is known")
        self._outgoing.append(
            state if isinstance(state, bytes | bytearray) else self.dialect.encode(SetState(state))
        )
        self.state_wanted = False
        held, self._held = self._held, bytearray()
        self.receive(held)

    def _hold(self, data: bytes | bytearray | memoryview) -> None:
        if len(self._held) + len(data) > HELD_AT_MOST:
            raise RemoteProtocolError(
                f"expected a client to wait for its weights, more than {HELD_AT_MOST} bytes came meanwhile",
                data=bytes(data[:48]),
                offset=0,
                hint="a client sends one request and waits for its reply",
            )
        self._held += data

    def _read(self, data: bytes | bytearray | memoryview) -> None:
        self._handle_bodies()
        try:
            for body in self._deframer.bodies(data):
                self._bodies.append(body)
                self._handle_bodies()
        except RemoteProtocolError as error:
            if not self.state_wanted:
                raise
            # What waits for the weights came before what is no message; behind it the deframer says so again. Where it
            # was raised leads to the deframer, which keeps it.
            error.__traceback__ = None

    def _handle_bodies(self) -> None:
        while self._bodies and not self.state_wanted:
            body = self._bodies.popleft()
            if self.dialect is None:
                self.dialect = dialect_of(body)
            self._handle(self.dialect, self.dialect.decode(body), body)

    def _handle(self, dialect: Dialect, message: Message, body: bytearray) -> None:
        match message:
            case Ping():
                self._outgoing.append(dialect.encode(Pong()))
                self._events.append(Greeted(dialect))
            case GetConfig():
                self._outgoing.append(dialect.encode(self.config))
            case GetState():
                self._want(learned=False)
            case Episodes():
                self._experience(message, body)
            case Unknown():
                raise RemoteProtocolError(
                    f"expected a request of RLlink, got one of the type {message.type!r:.60}",
                    data=bytes(body),
                    offset=0,
                    hint="a newer client may say what this release does not know",
                )
            case _:
                self._events.append(Ignored(f"{type(message).__name__}, which only servers send"))

    def _experience(self, message: Episodes, body: bytearray) -> None:
        try:
            check_fragments(message.fragments, self.needs)
        except LocalProtocolError as error:
            raise RemoteProtocolError(
                printable(error.message, LONGEST_TOLD),
                data=bytes(body),
                offset=0,
                hint="the client must check what it sends",
            ) from None
        self._events.append(EpisodesArrived(message.fragments))
        if isinstance(message, EpisodesAndGetState):
            self._want(learned=True)

    def _want(self, *, learned: bool) -> None:
        self.state_wanted = True
        self._events.append(StateWanted(learned))
