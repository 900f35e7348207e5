"""Client machines wired to a server machine in memory, under a clock of their own.

No sockets and no waiting: time jumps to the next thing that happens. Every datagram passes ``fault``, which may lose,
double or delay it, so that each single fault of an exchange can be enumerated and replayed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ospbridge.interface import Endpoint
from ospbridge.osp.client import ClientMachine, Exchange
from ospbridge.osp.codes import SIMULATION_TIME
from ospbridge.osp.connect import ConnectMachine
from ospbridge.osp.profile import Profile
from ospbridge.osp.server import CloseHandler, Faults, OpenHandler, Send, ServerMachine
from ospbridge.osp.timing import Limits
from ospbridge.osp.world import World
from ospbridge.session.core import SessionCore

T = TypeVar("T")
LATENCY = 50e-6
MAIN = Endpoint("10.0.0.1", 45454)
EVENTS_AT_MOST = 200_000
NEVER = float("inf")


class Datagram(NamedTuple):
    """One datagram on its way: its number since the pair began, its direction, its bytes."""

    number: int
    to_server: bool
    data: bytes


Fault = Callable[[Datagram], Iterable[float]]
"""Extra delays in seconds of each copy that arrives: (0.0,) is no fault, () is a loss."""


def no_fault(_: Datagram) -> Iterable[float]:
    return (0.0,)


class Hang(AssertionError):
    """Virtual time or events ran out."""


class Pair:
    """A server and its clients. ``ledger`` holds every step and reset that really ran."""

    def __init__(
        self,
        world: World,
        profile: Profile,
        *,
        fault: Fault = no_fault,
        stall: Callable[[], bool] | None = None,
    ) -> None:
        self.now = 1000.0
        self.ledger: list[dict[str, Any]] = []
        self.server = ServerMachine(
            world, profile, ledger=self.ledger.append, faults=Faults() if stall is None else Faults(stall)
        )
        self.fault = fault
        self.count = 0
        self.sent: list[Datagram] = []
        self._stopped_until = self.now
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._clients: dict[Endpoint, Client] = {}
        self._handlers: dict[int, Endpoint] = {}
        self._ports = itertools.count(50_001)
        self._handler_ports = itertools.count(60_001)
        self._ports_of: dict[int, int] = {}
        self._by_port: dict[int, int] = {}

    def hide(self, *, clock: bool, values: bool) -> None:
        """Have no variable for the clock, none for what agents are given and bring."""
        variables = self.server.simulation.repository.variables
        for name in tuple(variables):
            if (clock and name == SIMULATION_TIME) or (values and name.startswith("/Sim/")):
                del variables[name]

    def client(self, profile: Profile | None = None, *, limits: Limits | None = None) -> Client:
        """A client that is not connected yet."""
        address = Endpoint("10.0.0.2", next(self._ports))
        client = Client(self, address, profile, limits or Limits())
        self._clients[client.address] = client
        return client

    def carry(self, data: bytes, *, to_server: bool, deliver: Callable[[bytes], None]) -> None:
        datagram = Datagram(self.count, to_server, data)
        self.count += 1
        self.sent.append(datagram)
        for delay in self.fault(datagram):
            self.at(self.now + LATENCY + delay, partial(deliver, data))

    def pause(self, seconds: float) -> None:
        """The server's process is stopped for so long: what arrives meanwhile waits in its sockets."""
        self._stopped_until = max(self._stopped_until, self.now + seconds)

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time, next(self._order), action))

    def flush_server(self) -> None:
        """Carry out what the server machine wants done."""
        for effect in self.server.take_effects():
            match effect:
                case OpenHandler(handler_id, peer):
                    assert isinstance(peer, Endpoint)
                    self._handlers[handler_id] = peer
                    port = self._ports_of[handler_id] = next(self._handler_ports)
                    self._by_port[port] = handler_id
                case CloseHandler(handler_id):
                    self._handlers.pop(handler_id, None)
                case Send(handler_id, data):
                    self._to_client(handler_id, data)

    def _to_client(self, handler_id: int, data: bytes) -> None:
        peer = self._handlers.get(handler_id)
        if peer is None:
            return
        source = Endpoint(MAIN.host, self._ports_of[handler_id])
        client = self._clients.get(peer)
        if client is not None:
            self.carry(data, to_server=False, deliver=lambda d: client.arrive(d, source))

    def to_main(self, data: bytes, peer: Endpoint) -> None:
        self.carry(data, to_server=True, deliver=lambda d: self._at_main(d, peer))

    def _at_main(self, data: bytes, peer: Endpoint) -> None:
        if self.now < self._stopped_until:
            self.at(self._stopped_until, partial(self._at_main, data, peer))
            return
        self.server.receive_main(data, peer, self.now)
        self.flush_server()

    def to_handler(self, data: bytes, port: int, peer: Endpoint) -> None:
        self.carry(data, to_server=True, deliver=lambda d: self._at_handler(d, port, peer))

    def _at_handler(self, data: bytes, port: int, peer: Endpoint) -> None:
        if self.now < self._stopped_until:
            self.at(self._stopped_until, partial(self._at_handler, data, port, peer))
            return
        handler_id = self._by_port.get(port)
        if handler_id is not None and self._handlers.get(handler_id) == peer:
            self.server.receive(handler_id, data, self.now)
            self.flush_server()
            return
        # Nobody listens there any more: the client's connected socket learns of it.
        if peer in self._clients:
            self.at(self.now + LATENCY, self._clients[peer].refused)

    def advance(self, *, until: float) -> None:
        """Let the next thing happen. Raises Hang behind ``until``."""
        queue, now = self._queue, self.now
        arrival = queue[0][0] if queue else NEVER
        if arrival <= now:  # most often
            heapq.heappop(queue)[2]()
            return
        deadline = self.server.next_deadline()
        if deadline is not None and deadline < self._stopped_until:
            deadline = self._stopped_until
        soonest = arrival if deadline is None else min(arrival, deadline)
        for client in self._clients.values():
            wanted = client.deadline
            if wanted is not None and wanted < soonest:
                soonest = wanted
        if soonest > until or soonest == NEVER:
            raise Hang(f"nothing more happens before {until - 1000:.1f} s")
        now = self.now = max(now, soonest)
        if arrival <= now:
            heapq.heappop(queue)[2]()
            return
        if deadline is not None and deadline <= now:
            self.server.handle_timer(now)
            self.flush_server()
            return
        for client in self._clients.values():
            wanted = client.deadline
            if wanted is not None and wanted <= now:
                client.timer()
                return

    def run(self, *exchanges: tuple[Client, Exchange[Any]], within: float = 300.0) -> list[Any]:
        """Run one exchange per client side by side; results or errors, in order. Bounded in virtual time."""
        for client, exchange in exchanges:
            client.begin(exchange)
        until = self.now + within
        for _ in range(EVENTS_AT_MOST):
            if all(client.finished for client, _ in exchanges):
                return [client.outcome() for client, _ in exchanges]
            self.advance(until=until)
        raise Hang("too many events")

    def settle(self, seconds: float = 2.0) -> None:
        """Let late datagrams arrive."""
        until = self.now + seconds
        for _ in range(EVENTS_AT_MOST):
            try:
                self.advance(until=until)
            except Hang:
                self.now = until
                return


class Client:
    """A client on the pair's network: connects, then talks through a ``Conversation`` as real sessions do."""

    def __init__(
        self,
        pair: Pair,
        address: Endpoint,
        profile: Profile | None,
        limits: Limits,
    ) -> None:
        self.pair = pair
        self.address = address
        self.limits = limits
        self._profile = profile
        self._connecting: ConnectMachine | None = None
        self._error: BaseException | None = None
        self._conversation: SessionCore | None = None

    @property
    def deadline(self) -> float | None:
        if self._connecting is not None:
            return self._connecting.deadline
        return self._conversation.machine.deadline if self._conversation else None

    @property
    def conversation(self) -> SessionCore:
        assert self._conversation is not None, "connect first"
        return self._conversation

    @property
    def finished(self) -> bool:
        return self.conversation.machine.finished

    def connect(self) -> Client:
        """Find the handler, as the real drivers do."""
        self.begin_to_connect()
        until = self.pair.now + self.limits.connect + 1
        while self._connecting is not None:
            self.pair.advance(until=until)
        if self._error is not None:
            raise self._error
        return self

    def begin_to_connect(self) -> None:
        """Send the first INIT; ``connected`` or ``failed`` tell how it goes on."""
        self._connecting = ConnectMachine(MAIN, self._profile, limits=self.limits, now=self.pair.now)
        self._go_on_connecting(self._connecting)

    @property
    def connected(self) -> bool:
        return self._conversation is not None

    @property
    def failed(self) -> BaseException | None:
        """Why it did not connect."""
        return self._error

    def _go_on_connecting(self, machine: ConnectMachine) -> None:
        for data, to in machine.outgoing:
            if to == MAIN:
                self.pair.to_main(data, self.address)
            else:
                self.pair.to_handler(data, to.port, self.address)
        machine.outgoing.clear()
        if machine.finished:
            self._connecting = None
            assert machine.answered is not None
            handler, profile = machine.answered
            client = ClientMachine(profile, limits=self.limits, peer=str(MAIN))
            self._conversation = SessionCore(MAIN, handler, client)

    def inherit(self, before: Client) -> None:
        """Take the place of a session that ended."""
        self.conversation.machine.succeed(before.conversation.machine)

    def vanish(self) -> None:
        """Its socket is closed: what is still on its way to it meets nobody."""
        del self.pair._clients[self.address]

    def arrive(self, data: bytes, source: Endpoint) -> None:
        if self._connecting is not None:
            self._connecting.receive(data, source, self.pair.now)
            self._go_on_connecting(self._connecting)
        elif self._conversation and source == self.conversation.handler:
            self.conversation.machine.receive(data, self.pair.now)
            self._flush()

    def refused(self) -> None:
        if self._conversation:
            self.conversation.machine.handle_refused(self.pair.now)

    def timer(self) -> None:
        try:
            if self._connecting is not None:
                self._connecting.handle_timer(self.pair.now)
                self._go_on_connecting(self._connecting)
            else:
                self.conversation.machine.handle_timer(self.pair.now)
                self._flush()
        except Exception as error:
            if self._connecting is None:
                raise
            self._connecting, self._error = None, error

    def begin(self, exchange: Exchange[Any]) -> None:
        self.conversation.machine.begin(exchange, self.pair.now)
        self._flush()

    def _flush(self) -> None:
        machine = self.conversation.machine
        for data in machine.outgoing:
            self.pair.to_handler(bytes(data), self.conversation.handler.port, self.address)
        machine.outgoing.clear()

    def outcome(self) -> Any:
        """The result of the last exchange; an error is raised."""
        return self.conversation.machine.result()

    def do(self, exchange: Exchange[T], *, within: float = 300.0) -> T:
        """Run one exchange to its end."""
        (result,) = self.pair.run((self, exchange), within=within)
        return result  # type: ignore[no-any-return]  # what the exchange returned
