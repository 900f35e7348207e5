"""One connection on a bare socket, for probes: datagrams as they come, and no recovery that would hide a deviation.

Each wait is bounded, whatever the server sends. What is harmless to repeat is repeated before silence means anything.
"""

from __future__ import annotations

import select
from contextlib import contextmanager, suppress
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ospbridge.errors import AgentTaken, OspBridgeError, QueryTimeout, RemoteProtocolError, SessionLost
from ospbridge.osp.client import ClientMachine
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    End,
    EndAck,
    GetValueIds,
    Message,
    RegisterForAgent,
    RegisterForAgentAck,
    Truncated,
    ValueIds,
    ValueInfo,
    decode_reply,
)
from ospbridge.osp.queries import UNREADABLE
from ospbridge.osp.timing import Limits
from ospbridge.session.channel import wait_readable
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from ospbridge.interface import AgentEntry, Endpoint
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client import Exchange
    from ospbridge.osp.connect import SurplusMachine
    from ospbridge.osp.profile import Profile
    from ospbridge.session.channel import OpenPort
    from ospbridge.session.lease import SessionLease

__all__ = ["SILENCE", "Line", "Reply"]

T = TypeVar("T")

SILENCE: Final = 0.4
"""Seconds without an answer after which a question counts as unanswered. A real server stalls 50 ms, seldom 100."""
WAITS: Final = (SILENCE, 2 * SILENCE, 4 * SILENCE)
LEAVING: Final = (SILENCE, SILENCE, SILENCE)
"""Who leaves does not wait as long."""
LISTING: Final = 15.0
"""Seconds for all pieces of a list, as long as some come."""
LISTED: Final = frozenset(
    kind.CODE for kind in (AgentOverview, AgentOverviewNext, AgentInfo, AgentInfoNext, ValueIds, ValueInfo)
)
"""What lists are made of."""
NOTHING: Final = "/ospbridge/conformance/no such value"
"""An expression that fits no variable: the question with the shortest answer."""


@contextmanager
def _hinted() -> Iterator[None]:
    """An answer that cannot be read says what to do about it."""
    try:
        yield
    except RemoteProtocolError as error:
        error.hint = UNREADABLE
        raise


class Reply(NamedTuple):
    """A message of the server, and its bytes."""

    message: Message
    data: bytes


class Line:
    """Our end of a handler: a non-blocking socket that is connected to it. ``greeting`` is its answer to the INIT.

    ``others``: handlers that further INITs are answered by, when this one has left.
    """

    def __init__(
        self,
        sock: socket.socket,
        profile: Profile,
        server: Endpoint,
        handler: Endpoint,
        greeting: bytes,
        *,
        lease: SessionLease,
        others: OpenPort[SurplusMachine] | None = None,
        trace: TraceWriter | None = None,
    ) -> None:
        self.profile = profile
        self.server = server
        self.handler = handler
        self.greeting = greeting
        self.controlled: dict[int, str] = {}
        """Agents that are ours, or may be: name by local id."""
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._trace = trace
        self._lease = lease
        self._others = [] if others is None else [others]
        self._open = True
        self._over = False
        """Nothing is ours there any more."""
        self.lists = ClientMachine(
            profile, limits=Limits(query=sum(WAITS), listing=LISTING), peer=str(server)
        )
        """Asks for lists, by ``listed``, and for nothing else."""
        self._renew_lease()

    # --- datagrams -------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send one datagram. Raises SessionLost where the handler is gone."""
        self._send(message.encode(end=self.profile.end_marker))

    def _send(self, data: bytes) -> None:
        if self._trace is not None:
            self._trace.sent(data, self.handler.port)
        try:
            self._socket.send(data)
        except BlockingIOError:
            pass  # a full send buffer is a lost datagram
        except ConnectionRefusedError:
            raise self._gone() from None
        except OSError:
            pass  # turned away on its way: lost

    def hear(self, wait: float) -> bytes | None:
        """The next datagram, or None after ``wait`` seconds. Raises SessionLost where the handler is gone."""
        until = monotonic() + wait
        while True:
            try:
                data = self._socket.recv(LARGEST_DATAGRAM)
            except BlockingIOError:
                left = until - monotonic()
            except ConnectionRefusedError:
                raise self._gone() from None
            except OSError:
                left = until - monotonic()  # an earlier datagram was turned away on its way
            else:
                if self._trace is not None:
                    self._trace.received(data, self.handler.port)
                return data
            if left <= 0.0:
                return None
            self._poll.poll(ceil(left * 1000))

    def heard(self, *kinds: type[Message], wait: float = SILENCE) -> Reply | None:
        """The next message of one of these kinds; others are dropped. None after ``wait`` seconds.

        Raises RemoteProtocolError for one that has the code but not the form of its kind.
        """
        codes = {int(kind.CODE) for kind in kinds}
        until = monotonic() + wait
        while (left := until - monotonic()) > 0.0:
            data = self.hear(left)
            if data is None:
                return None
            if data and data[0] in codes:
                with _hinted():
                    reply = decode_reply(data, limit=self.profile.datagram_limit)
                return Reply(reply.message if isinstance(reply, Truncated) else reply, data)
        return None

    def drain(self) -> None:
        """Forget what has come so far."""
        until = monotonic() + SILENCE
        while monotonic() < until and self.hear(0.0) is not None:
            pass

    def ask(
        self,
        question: Message,
        kind: type[Message],
        *,
        fits: Callable[[Message], bool] = lambda _: True,
        waits: tuple[float, ...] = WAITS,
    ) -> Reply:
        """Ask what is harmless to ask again, until it is answered. Raises QueryTimeout.

        ``fits`` tells the answer from a late one to an earlier question.
        """
        self.drain()
        for wait in waits:
            self.send(question)
            until = monotonic() + wait
            while (reply := self.heard(kind, wait=until - monotonic())) is not None:
                if fits(reply.message):
                    return reply
        raise self.silent(question)

    def silent(self, question: Message) -> QueryTimeout:
        """The error for a question that was not answered."""
        return QueryTimeout(
            f"{self.server} answered the INIT, but not {type(question).__name__} within {sum(WAITS):.1f} s"
        )

    def listed(self, exchange: Exchange[T]) -> T:
        """What a list holds that is asked for as sessions do: they understand those of more servers than one kind.

        ``exchange`` is one of ``lists``. Raises QueryTimeout, RemoteProtocolError.
        """
        self.drain()
        lists = self.lists
        lists.begin(exchange, monotonic())
        try:
            while not lists.finished:
                self._pass_on()
                assert lists.deadline is not None
                data = self.hear(max(lists.deadline - monotonic(), 0.0))
                if data and data[0] in LISTED:
                    with _hinted():
                        lists.receive(data, monotonic())
                elif data is None or monotonic() >= lists.deadline:
                    lists.handle_timer(monotonic())
            self._pass_on()
        except BaseException as error:
            lists.interrupt(error)
            lists.outgoing.clear()
            raise
        found: T = lists.result()
        return found

    def _pass_on(self) -> None:
        for data in self.lists.outgoing:
            self._send(bytes(data))
        self.lists.outgoing.clear()

    def eats(self) -> bool:
        """Whether the handler takes the next datagram for an acknowledgement, and so leaves it unanswered.

        Two answers to two questions mean that the first was merely late. Raises QueryTimeout.
        """
        question = GetValueIds(NOTHING)
        self.drain()
        self.send(question)
        if self.heard(ValueIds):
            return False
        self.ask(question, ValueIds)
        return self.heard(ValueIds, wait=SILENCE / 2) is None

    # --- agents ----------------------------------------------------------------------------------------------------

    def take(self, agent: AgentEntry) -> None:
        """Register for an agent. Raises AgentTaken."""
        self.controlled[agent.id] = agent.name
        self._renew_lease()
        reply = self.ask(RegisterForAgent(agent.id), RegisterForAgentAck, fits=_of(agent.id)).message
        assert isinstance(reply, RegisterForAgentAck)
        if reply.status != 1:
            del self.controlled[agent.id]
            self._renew_lease()
            raise AgentTaken(f"{self.server} refused to give agent {agent.name!r}")

    def give_back(self, *, waits: tuple[float, ...] = WAITS) -> None:
        """Deregister every agent. Raises QueryTimeout."""
        for agent_id in list(self.controlled):
            self.ask(DeregisterFromAgent(agent_id), DeregisterFromAgentAck, fits=_of(agent_id), waits=waits)
            del self.controlled[agent_id]
        self._renew_lease()

    def _renew_lease(self) -> None:
        self._lease.renew({name: agent_id for agent_id, name in self.controlled.items()})

    @property
    def listened(self) -> bool:
        """Whether an event was registered for."""
        return self._lease.events

    def listen(self) -> None:
        """An event is about to be registered for."""
        agents = {name: agent_id for agent_id, name in self.controlled.items()}
        self._lease.renew(agents, events=True)

    def owe(self, others: OpenPort[SurplusMachine]) -> None:
        """INITs from elsewhere met silence: a server that serves one client at a time reads them when this one left."""
        self._others.append(others)

    def leave(self) -> None:
        """Give back all agents, say goodbye where that is safe, and close. Never raises; idempotent."""
        if not self._open:
            return
        self._open = False
        try:
            with suppress(OspBridgeError, OSError):
                self.give_back(waits=LEAVING)
                self._over = True
            if not self.listened or self.profile.end_after_events_is_safe:
                self._over = False
                with suppress(OspBridgeError, OSError):
                    self.ask(End(), EndAck, waits=LEAVING)
                    self._over = True
                    for others in self._others:
                        others.machine.begin(monotonic(), monotonic() + sum(LEAVING))
                        while not others.turn(monotonic()):
                            wait_readable([others.sock], others.machine.deadline)
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket; what may still be ours stays in the lease, for a successor to free."""
        self._open = False
        if self._over:
            self._lease.end()
        self._lease.close()
        for others in self._others:
            others.sock.close()

    def forget(self) -> None:
        """All agents of this line are free, for its handler is gone."""
        self._over = True
        self.close()

    def _gone(self) -> SessionLost:
        # A handler that is gone controls nothing: servers release what it held.
        self._over = True
        return SessionLost(f"the handler of {self.server} at port {self.handler.port} is gone")


def _of(agent_id: int) -> Callable[[Message], bool]:
    return lambda reply: getattr(reply, "agent_id", None) == agent_id
