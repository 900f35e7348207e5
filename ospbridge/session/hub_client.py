"""Driving agents through a running daemon, for blocking callers: one stream, no thread, no event loop.

Every wait is bounded by the limits that the daemon tells when a client attaches. A daemon that went away is
``HubLost``; the next reset attaches again once it is back.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeAlias, TypeVar

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    ConfigurationError,
    HubLost,
    HubNotFound,
    OspBridgeError,
    RemoteProtocolError,
    SessionClosed,
    SessionLost,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import decode_reply, encode
from ospbridge.hub.replies import LONGEST_HOLD, Attached, HubReply, Observing, Refusal, Welcome
from ospbridge.hub.requests import VERSION, Attach, Detach, Hello, HubRequest, Observe, Status
from ospbridge.hub.status import StatusReply
from ospbridge.observe.runtime import default_hub
from ospbridge.osp.timing import seconds_of
from ospbridge.session.address import hub_address, hub_not_found, hub_socket
from ospbridge.session.hub_exchange import HubExchange
from ospbridge.session.names import agent_name
from ospbridge.session.one_thread import crossed
from ospbridge.session.rebuild import Awaiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.interface import Match
    from ospbridge.session.address import HubAddress
    from ospbridge.session.agent_handle import AgentHandle
    from ospbridge.session.observing import AgentObserver
    from ospbridge.transport.tls import TlsFiles

__all__ = ["HubClient", "default_hub"]

R = TypeVar("R")
Say: TypeAlias = "Callable[[str], object]"
LEAVE: Final = 1.0
"""Seconds that giving agents back may take."""
PAUSE: Final = 0.05
"""Seconds between tries while the daemon is away or not ready."""
LOOK_EVERY: Final = 0.001
"""Seconds between looks at whether another thread has let go."""


class HubClient:
    """One connection to a daemon. Make one with ``HubClient.connect``; close it, or use it as a context manager.

    For one thread at a time; ``close`` may come from any, and whoever uses the client meanwhile gets SessionClosed.
    """

    def __init__(self, address: HubAddress, timeout: float, wait: float, spin: bool, say: Say | None) -> None:
        self.address = address
        self.timeout = min(timeout, LONGEST_HOLD)
        self.wait = wait
        self._spin = spin
        self._say = say
        self._exchange: HubExchange | None = None
        self._greeted = False
        """A hub it is, for it has answered as one."""
        self.hung_up = False
        """The connection was lost because the daemon ended it, not because it was slow."""
        self._attached = False
        self._closed = ""
        """Why this client cannot be used any more."""
        self._user = 0
        """The thread that uses the connection, while one does."""
        _clients.add(self)

    @classmethod
    def connect(
        cls,
        hub: str | None = None,
        *,
        timeout: float = 30.0,
        wait: float = 0.0,
        spin: bool = True,
        tls: TlsFiles | None = None,
        say: Say | None = None,
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
        client = cls(hub_address(hub, tls), timeout, wait, spin, say)
        client._retry(wait, client._open)
        return client

    # --- finding the daemon ------------------------------------------------------------------------------------------

    def _retry(
        self,
        seconds: float,
        attempt: Callable[[], R],
        absences: tuple[type[OspBridgeError], ...] = (HubNotFound, HubLost, SimulatorNotFound),
    ) -> R:
        """Attempt for so many seconds what fails while somebody is away."""
        awaiting = Awaiting(seconds, self._say)
        give_up = monotonic() + seconds
        while True:
            self.check()
            try:
                return attempt()
            except absences as error:
                self.check()
                denied = isinstance(error.__cause__, PermissionError)
                silent = isinstance(error, HubLost) and not self.hung_up
                if denied or silent or monotonic() >= give_up:
                    raise error.after(awaiting.waited) from None
                awaiting.mention(error)
            sleep(PAUSE)

    def _open(self) -> None:
        """Connect and greet. Raises HubNotFound, HubLost.

        A daemon on another host, or one that has others to let in first, is waited for as long as for an answer.
        """
        give_up = monotonic() + self.timeout
        exchange = None
        while exchange is None:
            self.check()
            try:
                sock = hub_socket(self.address, self.timeout)
                exchange = self._exchange = HubExchange(sock, spin=self._spin)
            except OSError as error:
                if not isinstance(error, BlockingIOError) or monotonic() >= give_up:
                    raise hub_not_found(self.address, error) from error
                sleep(PAUSE)
        self.hung_up = self._greeted = self._attached = False
        try:
            pid = os.getpid()
            self.ask(Hello(VERSION, _program(), pid, _process(pid)), Welcome, self.timeout)
        except BaseException:
            self.lose()
            raise
        self._greeted = True

    # --- agents ------------------------------------------------------------------------------------------------------

    def attach(
        self, agent: str | None = None, *, annotates: bool = False, meant: Sequence[Match] = ()
    ) -> AgentHandle:
        """Take an agent, by name or glob; None: the only free one. Closes the client where that fails.

        ``annotates``: it will be said of each action what it was drawn from. ``meant``: where several agents fit, only
        these. Raises AgentNotFound, AgentTaken, UsageError, SimulatorNotFound, HubLost.
        """
        from ospbridge.session.agent_handle import AgentHandle

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
        return AgentHandle(self, attached, annotates=annotates)

    def attach_all(
        self, patterns: Sequence[str], *, annotates: bool = False, meant: Sequence[Match] = ()
    ) -> Attached:
        """Take all agents that fit, or none. Raises as ``attach`` does."""
        request = Attach(list(patterns), annotates, [(kind.name, kind.type) for kind in meant])
        try:
            # A daemon that ended meanwhile may be there again, too.
            return self._retry(self.wait, lambda: self._take(request))
        except BaseException:
            self.close()
            raise

    def attach_again(self, agents: list[AgentDescription], *, annotates: bool) -> Attached:
        """Connect and attach to the same agents again, within the connect timeout. Raises SessionLost for others."""
        request = Attach([agent.name for agent in agents], annotates)

        def attempt() -> Attached:
            self.lose()
            return self._take(request)

        try:
            # It may be back, but not have joined yet, or not have noticed yet that this client was gone.
            absences = HubNotFound, HubLost, SimulatorNotFound, AgentTaken
            attached = self._retry(self.timeout, attempt, absences)
        except BaseException:
            # Connected without an agent it would not be attached again.
            self.lose()
            raise
        again = attached.agents
        if len(again) != len(agents) or not all(map(AgentDescription.like, again, agents)):
            self.lose()
            who = f"agent {agents[0].name!r}" if len(agents) == 1 else "the agents"
            raise SessionLost(
                f"{who} came back with another interface or scenario after the daemon restarted",
                hint="make the environment anew",
            )
        return attached

    def _take(self, request: Attach) -> Attached:
        if self.lost:
            self._open()
        attached = self.ask(request, Attached, self.timeout)
        if not attached.agents:
            raise self.failed(attached, "no agent is in it")
        self._attached = True
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

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, request: HubRequest, kind: type[R], limit: float) -> R:
        """The reply to a request within ``limit`` seconds, or the error that the daemon answered with."""
        frame = bytearray()
        encode(request, frame)
        reply = self.exchange(frame, limit)
        if isinstance(reply, kind):
            return reply
        raise self.failed(reply)

    def failed(self, reply: HubReply, why: str = "") -> OspBridgeError:
        """The error for a reply that is not the one awaited; ``why``: where its kind is."""
        if isinstance(reply, Refusal):
            return reply.error()
        self.hung_up = False
        self.lose()
        return HubLost(
            f"the daemon at {self.address} gave an answer that was not asked for: {type(reply).__name__}"
            + (f", {why}" if why else "")
        )

    def exchange(self, frame: bytearray, limit: float) -> HubReply:
        """Send a request and await the reply. Whatever interrupts it costs the connection."""
        return self._use(lambda exchange: exchange.ask(frame, limit))

    def send(self, frame: bytearray, limit: float) -> None:
        """The first half of ``exchange``; ``receive`` must follow."""
        self._use(lambda exchange: exchange.send(frame, limit))

    def receive(
        self, limit: float, read: Callable[[memoryview], HubReply | R] = decode_reply
    ) -> HubReply | R:
        """The reply to what was sent. ``read`` may make something else of what it knows."""
        return self._use(lambda exchange: exchange.receive(limit, read))

    def _use(self, use: Callable[[HubExchange], R]) -> R:
        """Replies have no numbers, so that the connection is lost to whatever interrupts one, and is for one thread."""
        me = threading.get_ident()
        # From here to the mark of this thread no other one runs, and no signal interrupts.
        if self._is_used():
            raise self._unusable() if self._closed else crossed("the daemon")
        try:
            self._user = me
            found = use(self._exchange or self._raise_unusable())
            if self._closed:
                self.check()
        except BaseException as error:  # noqa: BLE001  # raised again, in our words
            raise self._interrupted(error) from None
        else:
            return found
        finally:
            self._user = 0

    def _is_used(self) -> bool:
        """Another thread uses the connection, or what runs beneath. Ctrl-C may leave this thread's mark behind it."""
        user, exchange = self._user, self._exchange
        mine = user == threading.get_ident()
        return bool(user) and not (mine and (exchange is None or not exchange.awaiting_reply))

    def _raise_unusable(self) -> NoReturn:
        raise self._unusable()

    def _interrupted(self, error: BaseException) -> BaseException:
        """The error to raise, in the words of a user of the hub. The connection is gone."""
        exchange = self._exchange
        if exchange is None:
            return error
        said = None
        if self._closed:
            # Whoever closes waits for this thread.
            exchange.hang_up()
            exchange.drain(LEAVE)
        elif not self._greeted:
            said = _refusal_before_greeting(exchange, error)
        self.hung_up = isinstance(error, OSError) and not isinstance(error, TimeoutError)
        self.lose()
        if not isinstance(error, Exception):
            return error
        return self._unusable() if self._closed else said or self._explain(error)

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, OSError):
            why = error.strerror or "the stream ended"
            if self._greeted:
                return self._lost(why)
            # So it looks as well to who waits to be let in when the daemon ends.
            ended = (
                "" if isinstance(error, TimeoutError) else "try again if the daemon has just ended; or else, "
            )
            return HubLost(
                f"{self.address} does not greet as a hub does: {why}", hint=f"{ended}{self._address_hint}"
            )
        if isinstance(error, RemoteProtocolError):
            if self._greeted:
                return self._lost(f"it sent what is no reply: {error.message}")
            return ConfigurationError(
                f"what listens at {self.address} is no hub: {error.message}", hint=self._address_hint
            )
        return error

    def _lost(self, why: str) -> HubLost:
        return HubLost(f"the connection to the daemon at {self.address} is lost: {why}")

    @property
    def _address_hint(self) -> str:
        option = "--hub" if isinstance(self.address, Path) else "--listen"
        return f"is this the address of `ospbridge connect {option}`?"

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """The connection is gone, but may be made anew."""
        return self._exchange is None and not self._closed

    def _unusable(self) -> OspBridgeError:
        return SessionClosed(self._closed) if self._closed else self._lost("it was lost before")

    def check(self) -> None:
        """Raises SessionClosed where this client must not be used any more."""
        if self._closed:
            raise SessionClosed(self._closed)

    def lose(self) -> None:
        """Drop the connection, for whoever uses it."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def close(self, within: float | None = None) -> None:
        """Give the agents back, which the daemon confirms within so many seconds, 1 unless told, and leave.

        From any thread, at any moment: whoever steps gets SessionClosed. Never raises. Safe to call again.
        """
        if self._closed:
            return
        self._closed = f"the connection to the daemon at {self.address} was closed"
        give_up = monotonic() + (LEAVE if within is None else within)
        if not self._acquire(give_up):
            return
        try:
            if self._exchange is not None and self._attached:
                _detach(self._exchange, give_up - monotonic())
            self.lose()
        finally:
            self._user = 0

    def _acquire(self, give_up: float) -> bool:
        """Be the one who uses the connection. False: another thread does not let go of it, and will drop it itself."""
        me = threading.get_ident()
        exchange = self._exchange
        if exchange is not None and self._is_used():
            exchange.hang_up()
            # What runs beneath, in this very thread, cannot let go before this returns.
            while self._user not in {0, me} and monotonic() < give_up:
                sleep(LOOK_EVERY)
            if self._is_used():
                exchange.abort()
        if self._is_used():
            return False
        self._user = me
        return True

    def forked(self) -> None:
        """This is a child of the process that connected: the stream is the parent's alone."""
        self._user = 0
        if not self._closed:
            self._closed = "this environment belongs to the parent process"
            self.lose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _detach(exchange: HubExchange, seconds: float) -> None:
    """Give the agents back, and await that the daemon has them."""
    if not exchange.awaiting_reply:
        frame = bytearray()
        encode(Detach(), frame)
        with suppress(OSError, OspBridgeError):
            exchange.ask(frame, seconds)
            return
    # What would answer now is the reply to what was asked before.
    exchange.hang_up()
    exchange.drain(seconds)


def _refusal_before_greeting(exchange: HubExchange, error: BaseException) -> OspBridgeError | None:
    """What a daemon said that turned us away before it was asked anything: it hangs up at once then."""
    if isinstance(error, BrokenPipeError | ConnectionResetError):
        with suppress(OSError, OspBridgeError):
            reply = exchange.receive(LEAVE)
            return reply.error() if isinstance(reply, Refusal) else None
    return None


def _program() -> str:
    """What people call this process."""
    path = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path("python")
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name.encode("utf-8", "replace").decode() if name.strip("-c") else "python"


@lru_cache(maxsize=1)
def _process(_pid: int) -> str:
    """What tells the process of that number from all others, wherever they are: each container has that number, too."""
    return os.urandom(16).hex()


_clients: weakref.WeakSet[HubClient] = weakref.WeakSet()
"""All of this process. A child closes its copies of the sockets, or the daemon would not see the parent end."""


def _after_fork() -> None:
    for client in _clients:
        client.forked()


os.register_at_fork(after_in_child=_after_fork)
