"""The connection to a running daemon, for blocking callers: one stream, no thread, no event loop.

Every wait is bounded by the limits that the daemon tells when a client attaches. A daemon that went away is
``HubLost``; the next reset attaches again once it is back.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from msgspec.structs import asdict

from ospbridge.errors import (
    AgentTaken,
    ConfigurationError,
    HubLost,
    HubNotFound,
    OspBridgeError,
    RemoteProtocolError,
    SessionLost,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import decode_reply, encode
from ospbridge.hub.recurring import FLOAT
from ospbridge.hub.replies import (
    LONGEST_HOLD,
    Attached,
    HubReply,
    Kind,
    Moments,
    Observing,
    Refusal,
    Welcome,
)
from ospbridge.hub.requests import (
    VERSION,
    Attach,
    Detach,
    Hello,
    HubRequest,
    MomentsSince,
    Observe,
    Status,
)
from ospbridge.hub.status import StatusReply
from ospbridge.osp.timing import seconds_of
from ospbridge.session.hub_exchange import HubExchange, hub_address, hub_not_found
from ospbridge.session.names import agent_name
from ospbridge.session.one_thread import OneThread, crossed
from ospbridge.session.rebuild import Awaiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Match
    from ospbridge.session.hub_exchange import HubAddress
    from ospbridge.transport.tls import TlsFiles

__all__ = [
    "AgentObserver",
    "HubClient",
    "ObservedMoment",
]

R = TypeVar("R")
Say: TypeAlias = "Callable[[str], object]"
LEAVE: Final = 1.0
"""Seconds that giving agents back may take."""
PAUSE: Final = 0.05
"""Seconds between tries while the daemon is away or not ready."""
ASK_FOR: Final = 5.0
"""Seconds for which one question of an observer waits at the daemon."""


class HubClient:
    """One connection to a daemon. Make one with ``HubClient.connect``; close it, or use it as a context manager.

    For one thread at a time; ``close`` may come from any, and whoever uses the client meanwhile gets SessionClosed.
    """

    def __init__(self, address: HubAddress, timeout: float, wait: float, spin: bool, say: Say | None) -> None:
        self.address = address
        self.timeout = min(timeout, LONGEST_HOLD)
        self.wait = wait
        self.in_use = OneThread(f"the daemon at {address}")
        self._spin = spin
        self._say = say
        self._exchange: HubExchange | None = None
        self._greeted = False
        """A hub it is, for it has answered as one."""
        self.hung_up = False
        """The connection was lost because the daemon ended it, not because it was slow."""
        self._attached = False
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
        which it may be absent, and for which attaching and ``observe`` wait while it has no simulator. ``say``: told
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
        while True:
            self.check()
            try:
                return attempt()
            except absences as error:
                self.check()
                denied = isinstance(error.__cause__, PermissionError)
                silent = isinstance(error, HubLost) and not self.hung_up
                if denied or silent or awaiting.waited >= seconds:
                    raise error.after(awaiting.waited) from None
                awaiting.mention(error)
            sleep(PAUSE)

    def _open(self) -> None:
        """Connect and greet. Raises HubNotFound, HubLost.

        A daemon on another host, or one that has others to let in first, is waited for as long as for an answer.
        """
        give_up = monotonic() + self.timeout
        self.lose()
        while self._exchange is None:
            self.check()
            try:
                self._exchange = HubExchange.connect(self.address, self.timeout, spin=self._spin)
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

    def attach(self, agent: str | None = None) -> NoReturn:
        """Raises UsageError: what takes one agent is ``AgentHandle.attach``."""
        raise UsageError(
            "HubClient.attach is AgentHandle.attach now",
            hint=f"from ospbridge.envs.hub import AgentHandle, and AgentHandle.attach(client, {agent!r})",
        )

    def attach_all(
        self, patterns: Sequence[str], *, annotates: bool = False, meant: Sequence[Match] = ()
    ) -> Attached:
        """Take all agents that fit these names and globs, or none. Closes the client where that fails.

        Without patterns the only free one. ``annotates``: it will be said of each action what it was drawn from.
        ``meant``: where several agents fit, only these. Raises AgentNotFound, AgentTaken, SimulatorNotFound, HubLost.
        """
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
            # Connected without its agents it would not be attached again.
            self.lose()
            raise
        again = attached.agents
        if len(again) == len(agents) and all(map(AgentDescription.like, again, agents)):
            return attached
        self.lose()
        who = f"agent {agents[0].name!r}" if len(agents) == 1 else "the agents"
        raise SessionLost(
            f"{who} came back with another interface or scenario after the daemon restarted",
            hint="make the environment anew",
        )

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
        request = Observe(agent_name(agent))
        return self._retry(
            self.wait,
            lambda: AgentObserver(self, self.ask(request, Observing, self.timeout)),
            (SimulatorNotFound,),
        )

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
        if self._is_used_beneath():
            raise crossed(self.in_use.peer)
        self.in_use.enter()
        try:
            found = use(self._exchange or self._raise_lost())
            self.check()
        except BaseException as error:  # noqa: BLE001  # raised again, in our words
            raise self._interrupted(error) from None
        else:
            return found
        finally:
            self.in_use.leave()

    def _is_used_beneath(self) -> bool:
        """A handler of signals runs in the midst of this thread's own exchange, which Ctrl-C would have ended."""
        exchange = self._exchange
        return exchange is not None and exchange.awaiting_reply and self.in_use.mine

    def _interrupted(self, error: BaseException) -> BaseException:
        """The error to raise, in the words of a user of the hub. The connection is gone."""
        exchange = self._exchange
        if exchange is None:
            return error
        if self.in_use.closing:
            # Whoever closes waits for this thread.
            exchange.hang_up()
            exchange.drain(LEAVE)
        elif not self._greeted and isinstance(error, BrokenPipeError | ConnectionResetError):
            # A daemon that turns us away before it was asked anything says why, and hangs up at once.
            with suppress(OSError, OspBridgeError):
                reply = exchange.receive(LEAVE)
                error = reply.error() if isinstance(reply, Refusal) else error
        self.hung_up = isinstance(error, OSError) and not isinstance(error, TimeoutError)
        self.lose()
        if isinstance(error, Exception):
            self.check()
        return self._explained(error)

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, OSError):
            why = error.strerror or "the stream ended"
        elif isinstance(error, RemoteProtocolError):
            why = f"it sent what is no reply: {error.message}"
        else:
            return error
        if self._greeted:
            return self._lost(why)
        option = "--hub" if isinstance(self.address, Path) else "--listen"
        hint = f"is this the address of `ospbridge connect {option}`?"
        if isinstance(error, RemoteProtocolError):
            return ConfigurationError(f"what listens at {self.address} is no hub: {error.message}", hint=hint)
        if self.hung_up:
            # So it looks as well to who waits to be let in when the daemon ends.
            hint = f"try again if the daemon has just ended; or else, {hint}"
        return HubLost(f"{self.address} does not greet as a hub does: {why}", hint=hint)

    def _raise_lost(self) -> NoReturn:
        raise self._lost("it was lost before")

    def _lost(self, why: str) -> HubLost:
        return HubLost(f"the connection to the daemon at {self.address} is lost: {why}")

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """The connection is gone, but may be made anew."""
        return self._exchange is None and not self.in_use.closing

    def check(self) -> None:
        """Raises SessionClosed where this client must not be used any more."""
        self.in_use.check()

    def lose(self) -> None:
        """Drop the connection, for whoever uses it."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def close(self, within: float | None = None) -> None:
        """Give the agents back, which the daemon confirms within so many seconds, 1 unless told, and leave.

        From any thread, at any moment: whoever steps gets SessionClosed. Never raises. Safe to call again.
        """
        if self.in_use.closing:
            return
        give_up = monotonic() + (LEAVE if within is None else within)
        self.in_use.refuse()
        exchange, beneath = self._exchange, self._is_used_beneath()
        if exchange is not None and (beneath or self.in_use.by_others):
            exchange.hang_up()
        alone = self.in_use.close(give_up - monotonic())
        if not alone or beneath:
            # Whoever uses it drops it, and is woken for that.
            if exchange is not None:
                exchange.hang_up(socket.SHUT_RDWR)
            return
        try:
            if self._exchange is not None and self._attached:
                self._detach(self._exchange, give_up - monotonic())
            self.lose()
        finally:
            self.in_use.leave()

    @staticmethod
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        client.in_use.refuse("this environment belongs to the parent process")
        client.lose()


os.register_at_fork(after_in_child=_after_fork)


# --- one agent, observed --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ObservedMoment:
    """What happened to an agent: a reset, a step, or the end of an episode between two steps.

    ``observation``: float32[n] as the driver got it. ``inputs``: float32[n_inputs] that the simulator was given, and
    ``infos``: float32[n_infos]; empty where there are none. ``step`` counts within ``episode``, ``number`` through all.
    ``dropped`` moments just before this one were lost to this observer.
    """

    kind: Kind
    number: int
    episode: int
    step: int
    inputs: NDArray[np.float32]
    observation: NDArray[np.float32]
    infos: NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool
    reason: str
    seed: int
    dropped: int = 0


class AgentObserver:
    """An endless iterator over an agent's moments. Make one with ``HubClient.observe``; closing the client ends it.

    It takes no agent and has no vote, so nobody ever waits for it: the daemon keeps the latest moments only. Its client
    must not be used by another thread meanwhile. Raises HubLost, and SessionLost when the simulator was joined again
    without that agent.
    """

    def __init__(self, client: HubClient, observing: Observing) -> None:
        agent = observing.agent
        self.interface = agent.interface()
        self.observation_space = agent.observation_space()
        self.action_space = agent.action_space()
        self.dropped: int = 0
        """Moments that were lost to this observer, in all, because it was too slow."""
        self._client = client
        self._after = observing.latest
        self._ready: deque[ObservedMoment] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ObservedMoment:
        while (moment := self.take(ASK_FOR)) is None:
            pass
        return moment

    def take(self, wait: float = 0.0) -> ObservedMoment | None:
        """The next moment, or None where nothing happens for ``wait`` seconds. Raises as the iterator does."""
        until = monotonic() + wait
        while not self._ready:
            left = min(max(until - monotonic(), 0.0), ASK_FOR)
            request = MomentsSince(self.interface.name, self._after, left)
            self._learn(self._client.ask(request, Moments, self._client.timeout + left))
            if not self._ready and monotonic() >= until:
                return None
        return self._ready.popleft()

    def _learn(self, told: Moments) -> None:
        dropped = told.dropped
        self.dropped += dropped
        for moment in told.moments:
            self._after = moment.number
            arrays = {
                name: np.frombuffer(getattr(moment, name), FLOAT)
                for name in ("inputs", "observation", "infos")
            }
            self._ready.append(ObservedMoment(**{**asdict(moment), **arrays, "dropped": dropped}))
            dropped = 0
