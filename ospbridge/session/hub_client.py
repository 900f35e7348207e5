"""Driving an agent through a running daemon, for blocking callers: one stream, no thread, no event loop.

Every wait is bounded by the limits that the daemon tells when a client attaches. A daemon that went away is
``HubLost``; the next reset attaches again once it is back.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self, TypeVar

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    HubLost,
    OspBridgeError,
    SessionClosed,
    SessionLost,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.hub.decoding import VERSION, decode_reply
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import encode
from ospbridge.hub.refusals import raised_again
from ospbridge.hub.replies import LONGEST_HOLD, Attached, Detached, HubReply, Observing, Refusal, Welcome
from ospbridge.hub.requests import Attach, Detach, Hello, HubRequest, Observe, Status
from ospbridge.hub.status import StatusReply
from ospbridge.observe.runtime import default_hub
from ospbridge.osp.timing import seconds_of
from ospbridge.session.arguments import agent_name
from ospbridge.session.awaiting import Awaiting
from ospbridge.session.hub_address import hub_address, hub_not_found, hub_stream, process, program
from ospbridge.session.hub_exchange import HubExchange
from ospbridge.session.hub_losses import lost, told
from ospbridge.transport.tls import TlsAddress, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.interface import Match
    from ospbridge.session.hub_seat import HubSeat
    from ospbridge.session.observing import AgentObserver

__all__ = ["HubClient", "default_hub"]

R = TypeVar("R")
LEAVE: Final = 1.0
"""Seconds that giving an agent back may take."""
HANDSHAKE: Final = 10.0
"""Seconds for a daemon on another host to accept, at least, where the connect timeout allows that."""
PAUSE: Final = 0.05
"""Seconds between tries while the daemon is away or not ready."""


class HubClient:
    """One connection to a daemon. Make one with ``HubClient.connect``; close it, or use it as a context manager."""

    def __init__(
        self,
        address: Path | TlsAddress,
        *,
        timeout: float,
        wait: float,
        spin: bool,
        say: Callable[[str], object] | None = None,
    ) -> None:
        self.address = address
        self.timeout = min(timeout, LONGEST_HOLD)
        self.wait = wait
        self._spin = spin
        self._say = say
        self._awaiting = Awaiting(wait, say)
        self._exchange: HubExchange | None = None
        self._greeted = False
        """A hub it is, for it has answered as one."""
        self.hung_up = False
        """The connection was lost because the daemon ended it, not because it was slow."""
        self._closed: str = ""
        """Why this client cannot be used any more."""
        _clients.add(self)

    @classmethod
    def connect(
        cls,
        bridge: str | None = None,
        *,
        timeout: float = 30.0,
        wait: float = 0.0,
        spin: bool = True,
        tls: TlsFiles | None = None,
        say: Callable[[str], object] | None = None,
    ) -> Self:
        """Say hello to the daemon at ``unix:PATH``, at ``tls://HOST:PORT`` (with ``tls``), or at the default path.

        ``timeout``: seconds for the daemon to answer, and to come back once lost; a day at most. ``wait``: seconds for
        which it may be absent, and for which ``attach`` and ``observe`` wait while it has no simulator. ``say``: told
        what is waited for, where that takes a while. Raises HubNotFound, HubLost, ConfigurationError for a wrong
        address, UsageError for what are no seconds.
        """
        if not seconds_of(timeout) > 0 or not seconds_of(wait) >= 0:
            raise UsageError(
                f"timeout must be a positive number of seconds and wait one of 0 or more, got {timeout!r} and {wait!r}",
                hint="wait=0 does not wait for a daemon that is absent",
            )
        client = cls(hub_address(bridge, tls), timeout=timeout, wait=wait, spin=spin, say=say)
        give_up = monotonic() + wait
        while True:
            try:
                client.open(max(give_up - monotonic(), 0.0))
            except HubLost:
                # It ended while it let us in: another may take its place.
                if not client.hung_up or monotonic() >= give_up:
                    raise
                sleep(PAUSE)
            else:
                return client

    def open(self, patience: float, *, in_line: float | None = None) -> None:
        """Connect and greet, for ``patience`` seconds while nobody listens. Raises HubNotFound, HubLost.

        ``in_line``: seconds while the daemon has others to let in first; as for an answer unless told otherwise.
        """
        began = monotonic()
        crowded = max(patience, self.timeout if in_line is None else in_line)
        stream = None
        while stream is None:
            try:
                seconds = max(began + patience - monotonic(), HANDSHAKE)
                stream = hub_stream(self.address, min(seconds, self.timeout))
            except OSError as error:
                seconds = crowded if isinstance(error, BlockingIOError) else patience
                absent = hub_not_found(self.address, error)
                if monotonic() >= began + seconds or isinstance(error, PermissionError):
                    raise absent.after(self._awaiting.waited) from None
                self._awaiting.mention(absent)
                sleep(PAUSE)
        self._exchange = HubExchange(stream, spin=self._spin)
        self.hung_up = False
        self._greeted = False
        try:
            hello = Hello(VERSION, program(), os.getpid(), process())
            self.ask(hello, Welcome, self.timeout)
        except BaseException:
            self.lose()
            raise
        self._greeted = True

    # --- requests --------------------------------------------------------------------------------------------------

    def attach(
        self, agent: str | None = None, *, annotates: bool = False, meant: Sequence[Match] = ()
    ) -> HubSeat:
        """Take an agent, by name or glob; None: the only free one. Closes the client where that fails.

        ``annotates``: it will be said of each action what it was drawn from. ``meant``: where several agents fit, only
        these. Raises AgentNotFound, AgentTaken, UsageError, SimulatorNotFound, HubLost.
        """
        from ospbridge.session.hub_seat import HubSeat

        if agent is not None:
            agent_name(agent)
        attached = self.attach_all([] if agent is None else [agent], annotates=annotates, meant=meant)
        if len(attached.agents) > 1:
            self.close()
            names = [found.name for found in attached.agents]
            raise AgentNotFound(
                f"{agent!r} fits more than one agent of the daemon: {', '.join(names)}",
                hint=f"choose one, for instance agent={names[0]!r}",
            )
        return HubSeat(self, attached, annotates=annotates)

    def attach_all(
        self, patterns: Sequence[str], *, annotates: bool = False, meant: Sequence[Match] = ()
    ) -> Attached:
        """Take all agents that fit, or none. Raises as ``attach`` does."""
        kinds = [(kind.name, kind.type) for kind in meant]
        give_up = monotonic() + self.wait
        self._awaiting = Awaiting(self.wait, self._say)
        while True:
            try:
                if self.lost:
                    self.open(max(give_up - monotonic(), 0.0))
                return self._take(Attach(list(patterns), annotates, kinds))
            except (SimulatorNotFound, HubLost) as error:
                # A daemon that ended meanwhile may be there again, too.
                silent = isinstance(error, HubLost) and not self.hung_up
                if silent or monotonic() >= give_up:
                    self.close()
                    error.after(self._awaiting.waited)
                    raise
                self._awaiting.mention(error)
                sleep(PAUSE)
            except BaseException:
                self.close()
                raise

    def _take(self, request: Attach) -> Attached:
        """Attach, and be ready for steps."""
        attached = self.ask(request, Attached, self.timeout)
        exchange = self._exchange
        assert exchange is not None
        try:
            exchange.open_lane(self.timeout)
        except BaseException as error:  # noqa: BLE001  # raised again, in our words
            raise self._interrupted(error, exchange) from None
        if not attached.agents:
            raise self.failed(attached, "no agent is in it")
        return attached

    def observe(self, agent: str) -> AgentObserver:
        """Look on at what happens to an agent from now on. Raises AgentNotFound, SimulatorNotFound, HubLost."""
        from ospbridge.session.observing import AgentObserver

        agent_name(agent)
        give_up = monotonic() + self.wait
        while True:
            try:
                return AgentObserver(self, self.ask(Observe(agent), Observing, self.timeout))
            except SimulatorNotFound:
                if monotonic() >= give_up:
                    raise
            sleep(PAUSE)

    def status(self) -> StatusReply:
        """What the daemon does, and how its agents stand. Raises HubLost."""
        return self.ask(Status(), StatusReply, self.timeout)

    def ask(self, request: HubRequest, kind: type[R], limit: float) -> R:
        """The reply to a request within ``limit`` seconds, or the error that the daemon answered with."""
        frame = bytearray()
        encode(request, frame)
        self.send(frame, limit)
        reply = self.receive(limit)
        if isinstance(reply, kind):
            return reply
        raise self.failed(reply)

    def failed(self, reply: HubReply, why: str = "") -> OspBridgeError:
        """The error for a reply that is not the one awaited; ``why``: where its kind is."""
        if isinstance(reply, Refusal):
            return raised_again(reply)
        self.hung_up = False
        self.lose()
        return HubLost(
            f"the daemon at {self.address} gave an answer that was not asked for: {type(reply).__name__}"
            + (f", {why}" if why else "")
        )

    def exchange_step(self, frame: bytearray, limit: float) -> HubReply:
        """Send the message of a step and await the reply. Whatever interrupts it costs the connection."""
        exchange = self._exchange
        if exchange is None:
            raise self._unusable()
        try:
            return exchange.step(frame, limit)
        except BaseException as error:  # noqa: BLE001  # raised again, in our words
            raise self._interrupted(error, exchange) from None

    def send(self, frame: bytearray, limit: float, *, step: bool = False) -> None:
        """A request, of a ``step`` or not; ``receive`` must follow."""
        exchange = self._exchange
        if exchange is None:
            raise self._unusable()
        try:
            exchange.send(frame, limit, step=step)
        except BaseException as error:  # noqa: BLE001  # raised again, in our words
            refused = self._refused(exchange, error)
            told = self._interrupted(error, exchange)
            raise refused or told from None

    def _refused(self, exchange: HubExchange, error: BaseException) -> OspBridgeError | None:
        """What a daemon said that turned us away before it was asked anything: it hangs up at once then."""
        with suppress(OSError, OspBridgeError):
            if not self._greeted and isinstance(error, BrokenPipeError | ConnectionResetError):
                reply = exchange.receive(LEAVE)
                return raised_again(reply) if isinstance(reply, Refusal) else None
        return None

    def receive(
        self, limit: float, read: Callable[[memoryview], HubReply | R] = decode_reply
    ) -> HubReply | R:
        """The reply to what was sent. ``read`` may make something else of what it knows."""
        exchange = self._exchange
        if exchange is None:
            raise self._unusable()
        try:
            return exchange.receive(limit, read)
        except BaseException as error:  # noqa: BLE001  # raised again, in our words
            raise self._interrupted(error, exchange) from None

    def _interrupted(self, error: BaseException, exchange: HubExchange) -> BaseException:
        """Replies have no numbers, so that the connection is lost to whatever interrupted one."""
        if exchange is not self._exchange and isinstance(error, ValueError):
            # Somebody else has closed it meanwhile, and with it the memory that was waited at.
            return self._unusable()
        self._note(error)
        self.lose()
        return told(self.address, error, greeted=self._greeted)

    def _note(self, error: BaseException) -> None:
        self.hung_up = isinstance(error, OSError) and not isinstance(error, TimeoutError)

    # --- the end ---------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """The connection is gone, but may be made anew."""
        return self._exchange is None and not self._closed

    def _unusable(self) -> OspBridgeError:
        if self._closed:
            return SessionClosed(self._closed)
        return lost(self.address, "it was lost before")

    def lose(self) -> None:
        """Drop the connection."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def reopen(self, agents: list[AgentDescription], *, annotates: bool) -> Attached:
        """Connect and attach to the same agents again, within the connect timeout. Raises SessionLost for others."""
        attached = self._attach_again(Attach([agent.name for agent in agents], annotates))
        again = attached.agents
        if len(again) != len(agents) or not all(map(AgentDescription.like, again, agents)):
            self.lose()
            who = f"agent {agents[0].name!r}" if len(agents) == 1 else "the agents"
            raise SessionLost(
                f"{who} came back with another interface or scenario after the daemon restarted",
                hint="make the environment anew",
            )
        return attached

    def _attach_again(self, request: Attach) -> Attached:
        give_up = monotonic() + self.timeout
        self._awaiting = Awaiting(self.timeout, self._say)
        while True:
            self.lose()
            try:
                left = max(give_up - monotonic(), 0.0)
                self.open(left, in_line=left)
                return self._take(request)
            except (SimulatorNotFound, AgentTaken, HubLost) as error:
                # It is back, but has not joined yet, or has not noticed yet that this client was gone.
                self.lose()
                if monotonic() >= give_up:
                    error.after(self._awaiting.waited)
                    raise
                self._awaiting.mention(error)
            except BaseException:
                # Connected without an agent it would not be attached again.
                self.lose()
                raise
            sleep(PAUSE)

    def check(self) -> None:
        """Raises SessionClosed where this client must not be used any more."""
        if self._closed:
            raise SessionClosed(self._closed)

    def close(self, detach: bool = False) -> None:
        """Leave. With ``detach`` the daemon confirms that the agent is free. Safe to call again."""
        if self._closed:
            return
        if detach and self._exchange is not None:
            with suppress(OspBridgeError):
                self.ask(Detach(), Detached, LEAVE)
        self._closed = f"the connection to the daemon at {self.address} was closed"
        self.lose()

    def forked(self) -> None:
        """This is a child of the process that connected: the stream is the parent's alone."""
        if not self._closed:
            self._closed = "this environment belongs to the parent process"
            self.lose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_clients: weakref.WeakSet[HubClient] = weakref.WeakSet()
"""All of this process. A child closes its copies of the sockets, or the daemon would not see the parent end."""


def _after_fork() -> None:
    for client in _clients:
        client.forked()


os.register_at_fork(after_in_child=_after_fork)
