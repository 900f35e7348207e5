"""The client role of RLlink without I/O: one connection to one server.

Bytes and time go in (``receive``, ``eof``, ``handle_timer``), bytes come out (``data_to_send``), and one exchange at a
time runs to its result, because the protocol is strict request and response. An exchange is a generator that yields
the time at which it wants to be woken and is sent its reply, or None; ``exchanges`` has them. What the server says
unasked becomes an event.

What a driver must do beyond carrying bytes and time:

- Say ``sent`` whenever some of a message has left, and give up where nothing does until ``next_deadline``.
- Connect as ``ConnectPlan`` says, and believe in a connection only when ``exchanges.greet`` is done: a real server
  lets TCP connections come about that it never reads, or resets.
- Never close while ``may_close`` is false. New weights are being learned then; a connection that is reset when they
  are sent, which is what closing does to data that comes later, ends a real server for good. Keep reading until it is
  true or ``Limits.state`` has passed. Then ``shutdown(SHUT_WR)``, read to the end of the stream, and close. If a
  message could not be sent to its end, the server discards it and learns nothing: leave at once.
- After ``receive`` raised, ``lost`` is set, or an exchange ended with UpstreamLost, leave in the same way.

What this module must not do: read a clock, draw a random number, touch a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ospbridge.errors import LocalProtocolError, OspBridgeError, RemoteProtocolError, UpstreamLost
from ospbridge.rllink.connecting import Limits
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
)

if TYPE_CHECKING:
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import Weights

__all__ = ["MOST_ARRAYS", "ClientMachine", "Event", "Exchange", "Notice", "StateArrived"]

T = TypeVar("T")
Exchange: TypeAlias = Generator[float, "Message | None", T]
"""Yields when it wants to be woken; is sent its reply, or None; returns its result."""

EVENTS_KEPT: Final = 64
MOST_ARRAYS: Final = 1000
"""Of a server's weights, unless more are asked for; modules of RLlib have some 10 to 50."""
VALUES: Final = 20
"""Values of a message that one array takes: its name, five keys with what is said of each, its dimensions."""
LOOSE_VALUES: Final = 1000
"""Those around the arrays."""
REPLIES: Final[dict[type[Message], type[Message]]] = {
    Ping: Pong,
    GetConfig: SetConfig,
    GetState: SetState,
    EpisodesAndGetState: SetState,
}
"""What answers what. Nothing answers Episodes."""


@dataclass(frozen=True, slots=True)
class StateArrived:
    """Weights came that no exchange waits for: the server pushed them, or who asked is gone."""

    weights: Weights


@dataclass(frozen=True, slots=True)
class Notice:
    """Something came that nobody asked for, and that means nothing to us."""

    text: str


Event: TypeAlias = StateArrived | Notice


@dataclass(slots=True, eq=False)
class _Due:
    """A request whose reply has not come."""

    request: type[Message]
    owner: Exchange[Any] | None


class ClientMachine:
    """One connection's side of the protocol. ``peer`` names the server in messages.

    ``largest`` limits the bytes of its bodies, and ``most_arrays`` the arrays of its weights.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        limits: Limits | None = None,
        largest: int = LARGEST_TAKEN,
        most_arrays: int = MOST_ARRAYS,
        peer: str = "the RLlink server",
    ) -> None:
        self.dialect = dialect
        self.limits = limits or Limits()
        self.peer = peer
        self.now = 0.0
        self.sent_at = float("-inf")
        """When the latest of what was to be sent left."""
        self.connected = False
        """A PONG has come."""
        self.seq_no: int | None = None
        """The number of the latest weights seen on this connection."""
        self.experienced = False
        """Experience was sent over this connection."""
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        """Oldest first. The driver takes them out after each call; of many, and of weights, only the latest stay."""
        self.lost: OspBridgeError | None = None
        """Why the connection cannot be used any more."""
        self._most_arrays = most_arrays
        self._deframer = Deframer(largest=largest)
        self._outgoing: list[bytes | bytearray] = []
        self._due: deque[_Due] = deque()
        self._deadline: float | None = None
        self._exchange: Exchange[Any] | None = None
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        """Of the latest exchange: what it returned, or the error it ended with."""

    # --- the driver's side -----------------------------------------------------------------------------------------

    def begin(self, exchange: Exchange[Any], now: float) -> None:
        """Start an exchange. Raises LocalProtocolError while another is under way, ``lost`` after the end."""
        if self._exchange is not None:
            exchange.close()
            raise LocalProtocolError("an exchange is under way on this connection already")
        if self.lost is not None:
            exchange.close()
            raise self.lost
        self.now = now
        self._exchange = exchange
        self._advance(None)

    def data_to_send(self) -> list[bytes | bytearray]:
        """What is to be sent now, in order; it counts as sent then."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def sent(self, now: float) -> None:
        """Some of ``data_to_send`` has left. A slow network is no silent server: limits count from then on."""
        self.now = self.sent_at = now
        if self._exchange is not None:
            self._advance(None)

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Bytes came. Raises RemoteProtocolError for what is no RLlink; the connection is lost then."""
        for body in self.bodies(data, now):
            self.take(self.decode(body), now)

    def bodies(self, data: bytes | bytearray | memoryview, now: float) -> Iterator[bytearray]:
        """The first half of ``receive``: what ``data`` completes. Give each to ``decode``, and that to ``take``."""
        if self.lost is not None:
            return
        self.now = now
        try:
            yield from self._deframer.bodies(data)
        except RemoteProtocolError as error:
            self._lose(error)
            raise
        if self._deadline is not None and now >= self._deadline:
            # A peer that never stops sending cannot stop the time.
            self._advance(None)

    def decode(self, body: bytearray) -> Message | RemoteProtocolError:
        """What a body says, or why it says nothing. Changes nothing, so that another thread may do it."""
        try:
            return self.dialect.decode(body, most_values=self._most_arrays * VALUES + LOOSE_VALUES)
        except RemoteProtocolError as error:
            if " holds more than " in error.message:
                error.hint = (
                    f"at most {self._most_arrays} arrays of weights are taken: where the server is trusted, raise the "
                    "limit with --rllink-most-arrays of the daemon"
                )
            return error

    def take(self, message: Message | RemoteProtocolError, now: float) -> None:
        """The second half of ``receive``."""
        if self.lost is not None:
            return
        self.now = now
        if isinstance(message, RemoteProtocolError):
            self._lose(message)
            raise message
        self._arrived(message)

    def eof(self, now: float, why: OspBridgeError | None = None) -> None:
        """The server closed the connection, or it broke; ``why``, where more is known than that."""
        if self.lost is not None:
            return
        self.now = now
        if why is not None:
            self._lose(why)
            return
        due = f" with a reply to {_name(self._due[0].request)} due" if self._due else ""
        cut = "" if self._deframer.empty else f", in mid-message: {self._deframer.unfinished()}"
        hint = ""
        if not self.connected:
            hint = (
                f"it may speak another dialect than {self.dialect.name}, or it has just lost a client: real servers "
                "take a new one 5 s later"
            )
        self._lose(UpstreamLost(f"{self.peer} closed the connection{due}{cut}", hint=hint))

    def next_deadline(self) -> float | None:
        return self._deadline

    def handle_timer(self, now: float) -> None:
        """``next_deadline`` has come."""
        self.now = now
        if self._exchange is not None and self._deadline is not None and now >= self._deadline:
            self._advance(None)

    def interrupt(self, error: BaseException) -> None:
        """End the exchange under way with ``error``, for instance because its caller was cancelled.

        Replies that are due to it still come and become events; until then later exchanges have patience.
        """
        if self._exchange is not None:
            self._exchange.close()
            self._finish(None, error)

    @property
    def finished(self) -> bool:
        """No exchange is under way."""
        return self._exchange is None

    def result(self) -> Any:
        """What the finished exchange returned, or the error it ended with."""
        if not self.finished:
            raise LocalProtocolError("the exchange is still under way")
        (result, error), self._outcome = self._outcome, (None, None)
        if error is not None:
            raise error
        return result

    @property
    def may_close(self) -> bool:
        """Whether the connection can end now without harm: no weights are being learned for it."""
        return self.lost is not None or not any(due.request is EpisodesAndGetState for due in self._due)

    # --- the exchanges' side ---------------------------------------------------------------------------------------

    def send(self, *messages: Message) -> None:
        """All of them or none.

        Raises LocalProtocolError for what the dialect cannot carry, and before the greeting for all but PING.
        """
        for message in messages:
            if not self.connected and not isinstance(message, Ping):
                raise LocalProtocolError(
                    f"{_name(type(message))} cannot be sent before {self.peer} answered a PING",
                    hint="greet it first",
                )
        self._outgoing += [self.dialect.encode(message) for message in messages]
        self.experienced = self.experienced or any(isinstance(message, Episodes) for message in messages)
        self._due += (_Due(type(message), self._exchange) for message in messages if type(message) in REPLIES)

    @property
    def held_up(self) -> bool:
        """Whether a real server reads nothing now, because it learns weights for an exchange that was interrupted."""
        return any(
            due.request is EpisodesAndGetState and due.owner is not self._exchange for due in self._due
        )

    def _arrived(self, message: Message) -> None:
        if isinstance(message, Pong):
            self.connected = True
        if isinstance(message, SetState):
            # A lower one, too: a learner that was restored from a checkpoint goes on from the number that it had then.
            self.seq_no = message.weights.seq_no
        due = next((due for due in self._due if isinstance(message, REPLIES[due.request])), None)
        if due is not None:
            self._due.remove(due)
        if due is not None and due.owner is not None and due.owner is self._exchange:
            self._advance(message)
            return
        if isinstance(message, SetState):
            self._keep(StateArrived(message.weights))
        elif due is None:
            self.events.append(Notice(f"{_shown(message)} came unasked"))
        if due is not None and self._exchange is not None:
            # The server reads on: whoever waits behind that reply may count its own time now.
            self._advance(None)

    def _keep(self, arrived: StateArrived) -> None:
        """Only the latest of weights that nobody took: they are large, and old ones are worth nothing."""
        for event in [event for event in self.events if isinstance(event, StateArrived)]:
            self.events.remove(event)
        self.events.append(arrived)

    def _advance(self, reply: Message | None) -> None:
        assert self._exchange is not None
        try:
            self._deadline = self._exchange.send(reply)
        except StopIteration as stop:
            self._finish(stop.value, None)
        except OspBridgeError as error:
            self._finish(None, error)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        for due in self._due:
            if due.owner is self._exchange:
                due.owner = None
        self._exchange = None
        self._deadline = None
        self._outcome = (result, error)

    def _lose(self, error: OspBridgeError) -> None:
        self.lost = error
        self._outgoing.clear()
        self.interrupt(error)


def _name(message: type[Message]) -> str:
    return message.__name__


def _shown(message: Message) -> str:
    kind = getattr(message, "type", None)
    return f"a message of unknown type {kind!r:.40}" if isinstance(kind, str) else _name(type(message))
