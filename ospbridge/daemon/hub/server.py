"""The daemon's door: accepts environments of this host, and those of others once both certificates hold."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import trio

import ospbridge
from ospbridge.daemon.attachment import FREE
from ospbridge.daemon.hub.connection import HubConnection, HubWatch
from ospbridge.errors import ConfigurationError, HubError
from ospbridge.hub.framing import encode
from ospbridge.hub.replies import Refusal
from ospbridge.hub.status import AgentStatus, StatusReply
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing, SparingEach
from ospbridge.transport.admission import VisitorLimit, set_keepalive
from ospbridge.transport.tls import hub_refusal

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import HeldAgent
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.hub.listener import HubSocket
    from ospbridge.daemon.relay.relay import Relay
    from ospbridge.transport.tls import TlsAddress

__all__ = ["HubServer", "TlsListener"]

log = logs.get(__name__)
MOST_CLIENTS: Final = 512
"""Connections at a time. A process may have 1,024 descriptors where the system allows no more, and some must be left to
join a simulator with."""
MOST_HANDSHAKES: Final = 64
"""Connections of other hosts at a time whose certificates are yet to be seen: who has none takes nobody's place, and
where one host has all of these, it gives way to another."""
STRANGERS: Final = f"{MOST_HANDSHAKES} of other hosts have yet to show their certificates"
BACKLOG: Final = 128
PATIENCE: Final = 10.0
"""Seconds for a handshake."""
GOODBYE: Final = 1.0
"""Seconds for one who is refused to hang up."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks at whether the hub's socket can still be found."""
TRY_AGAIN: Final = 0.5
"""Seconds until somebody is let in again, where accepting failed."""
NOT_LISTENING: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
"""What accepting says of the listener. All else is of one connection, as where a firewall or a security module denies
it (EPERM, EACCES), or of the moment, as where no descriptor is left."""


class HubServer:
    """Serves one conductor at a Unix socket, and with ``remote`` environments of other hosts too."""

    def __init__(
        self,
        listener: HubSocket,
        conductor: Conductor,
        *,
        spin: bool,
        remote: TlsListener | None = None,
    ) -> None:
        self._listener = listener
        self._remote = remote
        self._conductor = conductor
        self.relays: list[Relay] = []
        """Upstreams of its agents."""
        self._started = trio.current_time()
        self._clients = 0
        """Those that are connected."""
        self._shaking = VisitorLimit(MOST_HANDSHAKES)
        """Those of other hosts that have not shown yet that they may be."""
        self._watch = HubWatch(conductor.barrier, spin=spin)
        self._complaint = Sparing()
        self._crowded = Sparing()
        self._turned_away = 0
        self._refused = SparingEach()
        self._said = ""
        """Why the hub's socket, which is gone, cannot be made anew."""
        self.at_rest = trio.Event()
        """Nobody is served any more."""

    async def serve(self) -> None:
        """Accept until cancelled; all connections are closed then."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch.run)
                nursery.start_soon(self._conductor.barrier.mind)
                if self._remote is not None:
                    nursery.start_soon(partial(self._accept, self._remote.socket, nursery, remote=True))
                while True:
                    with trio.move_on_after(LOOK_EVERY):
                        await self._accept(self._listener.socket, nursery, remote=False)
                    self._look_after_the_socket()
        finally:
            self.at_rest.set()

    async def _accept(
        self,
        listener: socket.socket,
        nursery: trio.Nursery,
        *,
        remote: bool,
    ) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno in NOT_LISTENING:
                    raise
                if self._complaint.due():
                    log.warning("cannot accept an environment", reason=error.strerror)
                await trio.sleep(TRY_AGAIN)
                continue
            sock.setblocking(False)
            # A Unix socket's may be a name that its client has chosen.
            host = str(address[0]) if isinstance(address, tuple) else ""
            if not remote:
                if self._takes(sock, host):
                    nursery.start_soon(self._serve_one, sock, host)
            elif (scope := self._shaking.enter(host)) is not None:
                # An environment of another host speaks once both certificates hold.
                nursery.start_soon(self._admit, sock, host, scope)
            else:
                self._crowd(STRANGERS, host)
                sock.close()

    def _takes(self, sock: socket.socket, host: str) -> bool:
        """Whether there is room for one more, who counts from then on; else it is told so."""
        if self._clients < MOST_CLIENTS:
            self._clients += 1
            return True
        self._crowd(f"{MOST_CLIENTS} are connected", host)
        _turn_away(sock)
        return False

    def _crowd(self, reason: str, host: str) -> None:
        """Somebody is turned away, who may come again at once, and again."""
        self._turned_away += 1
        if self._crowded.due():
            log.warning(
                "an environment is turned away", reason=reason, host=host, turned_away=self._turned_away
            )

    def _look_after_the_socket(self) -> None:
        """Somebody may have removed its file, with a whole runtime directory for instance: nobody could come in."""
        listener = self._listener
        if listener.stands:
            return
        try:
            trio.lowlevel.notify_closing(listener.socket)
            listener.renew()
        except ConfigurationError as error:
            if error.message != self._said:
                self._said = error.message
                log.warning("the hub's socket is gone", reason=error.message, hint=error.hint)
        else:
            self._said = ""
            log.warning("the hub's socket was gone, and is there again", hub=str(listener.path))

    async def _admit(self, sock: socket.socket, host: str, scope: trio.CancelScope) -> None:
        assert self._remote is not None
        stream = None
        try:
            with scope:
                stream = await admit(self._remote, sock)
        except (ConfigurationError, OSError, trio.TooSlowError) as error:
            reason = str(error) or "no TLS handshake in time"
            # Whatever looks whether somebody listens, or was given a wrong certificate, comes again and again.
            if self._refused.due((host, reason)):
                log.warning("an environment of another host was refused", host=host, reason=reason)
            return
        finally:
            self._shaking.leave(scope)
        if stream is None:
            self._crowd(STRANGERS, host)
        elif self._takes(stream, host):
            # What TLS has read already no descriptor tells of.
            await self._serve_one(stream, host, watched=False)

    async def _serve_one(self, sock: socket.socket, host: str, *, watched: bool = True) -> None:
        """One of the ``_clients``."""
        connection = HubConnection(
            sock,
            self._conductor,
            status=self.status,
            watch=self._watch if watched else None,
            host=host,
        )
        descriptor = sock.fileno()
        self._watch.add(descriptor, connection, reads=watched)
        try:
            await connection.run()
        finally:
            self._watch.remove(descriptor, reads=watched)
            self._clients -= 1

    def close(self) -> None:
        """Forget all connections, which ``serve`` has closed."""
        self._watch.close()

    def status(self) -> StatusReply:
        """What the daemon does."""
        conductor = self._conductor
        connection, session = conductor.supervisor.connection, conductor.supervisor.session
        return StatusReply(
            ready=conductor.ready,
            simulator=conductor.settings.title,
            connection=connection.text,
            profile=session.profile.name if session is not None else "",
            agents=[_agent(held) for held in conductor.lockstep.held.values()],
            steps=conductor.steps,
            resets=conductor.resets,
            rebuilds=conductor.rebuilds,
            uptime=trio.current_time() - self._started,
            version=ospbridge.__version__,
            pid=os.getpid(),
            recording=conductor.recording.status if conductor.recording is not None else None,
            upstreams=[relay.status for relay in self.relays],
            step_times=conductor.stats.step_times,
            datagrams=conductor.stats.datagrams(session.machine.retries if session is not None else 0),
            rebuilds_by_reason=dict(conductor.stats.rebuilds),
            clients=self._clients,
            name=conductor.settings.name,
            hint=connection.hint,
            launched=conductor.launcher.status if conductor.launcher is not None else None,
        )


def _turn_away(sock: socket.socket) -> None:
    """Say why."""
    said = bytearray()
    full = HubError(
        f"the daemon serves {MOST_CLIENTS} connections, which is all it takes",
        hint="close environments that are not needed, or start another daemon",
    )
    encode(Refusal.of(full), said)
    with suppress(OSError, ConfigurationError):
        sock.send(said)
    sock.close()


def _agent(held: HeldAgent) -> AgentStatus:
    driving = held.driver or next(iter(held.attachments), None)
    status = AgentStatus(
        held.interface.name,
        FREE,
        episodes=held.episodes,
        returns=[round(value, 6) for value in held.returns],
        lengths=list(held.lengths),
    )
    if driving is None:
        return status
    return msgspec.structs.replace(
        status, state=driving.state.value, driver=str(driving.driver), steps=driving.episode.steps
    )


# --- other hosts ----------------------------------------------------------------------------------------------------


class TlsListener:
    """A listening TCP socket. Raises ConfigurationError for files that do not fit, or an address that is taken."""

    def __init__(self, address: TlsAddress) -> None:
        self.address = address
        self.read_again()
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                address.endpoint.host, address.endpoint.port, type=socket.SOCK_STREAM
            )[0]
            self.socket = socket.socket(family, kind, protocol)
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.socket.setblocking(False)
                self.socket.bind(place)
                self.socket.listen(BACKLOG)
            except BaseException:
                self.socket.close()
                raise
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen at {address}: {error.strerror}", hint="choose another HOST:PORT with --listen"
            ) from None

    def read_again(self) -> None:
        """Use the files as they are now, from the next connection on. Raises ConfigurationError, and keeps them."""
        self._context = self.address.files.context(server=True)

    def wrapped(self, sock: socket.socket) -> ssl.SSLSocket:
        """An accepted connection, before its handshake."""
        sock.setblocking(False)
        set_keepalive(sock)
        return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


async def admit(listener: TlsListener, sock: socket.socket) -> ssl.SSLSocket:
    """The stream, once both certificates hold. Raises ConfigurationError, OSError or TooSlowError, and hangs up."""
    stream = listener.wrapped(sock)
    try:
        with trio.fail_after(PATIENCE):
            while True:
                try:
                    stream.do_handshake()
                except ssl.SSLWantReadError:
                    await trio.lowlevel.wait_readable(stream)
                except ssl.SSLWantWriteError:
                    await trio.lowlevel.wait_writable(stream)
                else:
                    return stream
    except BaseException as error:
        if isinstance(error, ssl.SSLError):
            await _say_goodbye(stream)
        stream.close()
        if isinstance(error, ssl.SSLError):
            raise hub_refusal(error, "the environment") from None
        raise


async def _say_goodbye(stream: ssl.SSLSocket) -> None:
    """Let the alert arrive: closing with something unread would reset the stream, and the alert be lost."""
    with suppress(OSError), trio.move_on_after(GOODBYE):
        stream.shutdown(socket.SHUT_WR)
        while True:
            await trio.lowlevel.wait_readable(stream)
            # Beneath TLS, which is over. What is said is thrown away.
            if not socket.socket.recv(stream, 4096):
                return
