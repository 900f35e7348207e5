"""TCP connections to a server of RLlink, with or without TLS, for trio.

In the clear only to this host, unless the user insists. A connection is ended gently: what was sent is left to arrive,
and what still comes is read, since closing over unread bytes resets the connection, which some servers do not survive.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from ospbridge.errors import ConfigurationError, OspBridgeError, UpstreamLost, UpstreamNotFound
from ospbridge.transport.addresses import parse_endpoint
from ospbridge.transport.lingering import linger
from ospbridge.transport.securing import no_authorities, refusal, see, show
from ospbridge.transport.settling import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.interface import Endpoint

__all__ = [
    "ServerTls",
    "Stream",
    "StreamAddress",
    "close_gently",
    "just_ended",
    "last_word",
    "linger_on",
    "listening_at",
    "open_stream",
    "parse_stream",
    "refused",
    "speaks_tls",
    "traceless",
    "was_refused",
]

Stream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

SCHEME: Final = "tls://"
DEFAULT_PORT: Final = 5555
"""Where RLlib's own example listens."""
READ_AT_ONCE: Final = 64 * 1024
ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""What OpenSSL calls a stream that just ended; or its reason says so."""
NEXT_ADDRESS_AFTER: Final = 0.25
"""Seconds that one address of a name is waited for alone."""
LAST_WORD_WITHIN: Final = 0.5
"""Seconds for the reason of a refusal to leave."""
PASSING: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY})
"""What a resolver says of itself rather than of a name: a host that starts has no name server yet."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: whose certificates to believe (none: those of the system), and what to show if asked."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Verifies the server's name and certificate; TLS 1.2 or later. Raises ConfigurationError for unfit files."""
        if (self.cert is None) != (self.key is None):
            raise ConfigurationError(
                "a TLS client shows a certificate and holds its key; only one of them was named",
                hint="name both, or neither",
            )
        see((self.ca, self.cert, self.key))
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise no_authorities(self.ca, error) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None and self.key is not None:
            show(context, self.cert, self.key)
        return context


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """Where a server listens. Without ``tls`` only on this host, unless ``insecure``."""

    endpoint: Endpoint
    tls: ServerTls | None = None
    insecure: bool = False

    def __str__(self) -> str:
        return f"{SCHEME}{self.endpoint}" if self.tls is not None else str(self.endpoint)


def parse_stream(
    text: str, *, tls: ServerTls | None = None, insecure: bool = False, default_port: int = DEFAULT_PORT
) -> StreamAddress:
    """The address of ``HOST:PORT`` or ``tls://HOST:PORT``; ``tls`` may say more about the latter.

    Raises ConfigurationError for anything else.
    """
    place = text.removeprefix(SCHEME)
    wants_tls = place != text
    if not wants_tls and tls is not None:
        raise ConfigurationError(
            f"certificates were given, but {text!r} is an address without TLS", hint=f"write {SCHEME}{text}"
        )
    endpoint = _place(place, default_port=default_port)
    return StreamAddress(endpoint, (tls or ServerTls()) if wants_tls else None, insecure)


def _place(text: str, *, default_port: int = DEFAULT_PORT, least_port: int = 1) -> Endpoint:
    try:
        return parse_endpoint(text, default_port=default_port, least_port=least_port)
    except ConfigurationError as error:
        why = error.message.partition(": ")[2]
        raise ConfigurationError(
            f"{text!r} is not a server's address: {why}",
            hint=f"write HOST:PORT or {SCHEME}HOST:PORT, for instance 127.0.0.1:{default_port}",
        ) from None


def listening_at(text: str, *, secured: bool, insecure: bool) -> Endpoint:
    """Where to listen: ``HOST:PORT``, port 0 for a free one. Raises ConfigurationError, also for another host's reach.

    ``secured``: TLS is spoken there.
    """
    if text.startswith(SCHEME):
        raise ConfigurationError(
            f"{text!r} is how clients write an address, not where to listen",
            hint=f"write {text.removeprefix(SCHEME)}: with --tls-cert, --tls-key and --tls-ca TLS is spoken there",
        )
    endpoint = _place(text, least_port=0)
    if not (secured or insecure or endpoint.host == "localhost" or _is_loopback(endpoint.host)):
        raise ConfigurationError(
            f"{endpoint} can be reached by other hosts, and without TLS anybody between could read and change what is "
            "sent",
            hint="name a certificate, its key and a CA, or insist with --insecure",
        )
    return endpoint


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def open_stream(address: StreamAddress, *, within: float) -> Stream:
    """A connection, in ``within`` seconds, with the server's certificate verified where there is TLS.

    A connection proves little: some servers accept and reset it, and where TLS 1.3 is spoken, a certificate of ours is
    refused only afterwards. Raises UpstreamNotFound where nobody accepts or no name server answers, ConfigurationError
    for a name that does not exist, files that do not fit, and another host without TLS; and for what one side's TLS
    refused of the other's, which ``was_refused`` tells apart.
    """
    context = address.tls.context() if address.tls is not None else None
    failure = "its name is not resolved in time"
    with trio.move_on_after(within):
        places = await _resolved(address)
        failure = "nobody answered"
        refusals: list[str] = []
        try:
            sock = await _first_connected(places, refusals)
        finally:
            failure = refusals[-1] if refusals else failure
        if sock is not None:
            failure = "it does not finish the TLS handshake"
            # With it the kernel takes 16 KiB at most that cannot leave yet, so that what it took counts as sent.
            stream = trio.SocketStream(sock)
            return stream if context is None else await _secured(stream, context, address)
    raise UpstreamNotFound(f"no RLlink server accepts connections at {address}: {failure}")


async def _first_connected(
    places: Sequence[tuple[int, tuple[str, int]]], refusals: list[str]
) -> trio.socket.SocketType | None:
    """A connection to whichever place accepts first; None where none does. What the others said joins ``refusals``.

    They are tried in their order, the next one as soon as one fails or keeps us waiting (RFC 6555). The like of
    ``trio.open_tcp_stream``, which would resolve the name anew and could reach another host than was looked at.
    """
    connected: trio.socket.SocketType | None = None

    async def attempt(family: int, place: tuple[str, int], failed: trio.Event) -> None:
        nonlocal connected
        try:
            sock = trio.socket.socket(family, socket.SOCK_STREAM)
            try:
                settle(sock)
                await sock.connect(place)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            # Not `strerror`, which trio makes longer and which repeats the address.
            refusals.append(os.strerror(error.errno) if error.errno else str(error))
            failed.set()
        else:
            if connected is None:
                connected = sock
                nursery.cancel_scope.cancel()
            else:
                sock.close()

    try:
        async with trio.open_nursery() as nursery:
            for family, place in places:
                failed = trio.Event()
                nursery.start_soon(attempt, family, place, failed)
                with trio.move_on_after(NEXT_ADDRESS_AFTER):
                    await failed.wait()
    except BaseException:
        if connected is not None:
            connected.close()
        raise
    return connected


async def _resolved(address: StreamAddress) -> list[tuple[int, tuple[str, int]]]:
    """Families and numeric addresses, each once."""
    endpoint = address.endpoint
    try:
        found = await trio.socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError as error:
        why = f"the host name {endpoint.host!r} does not resolve: {error.strerror}"
        if not isinstance(error, socket.gaierror) or error.errno in PASSING:
            raise UpstreamNotFound(why, hint="see whether this host reaches its name server") from None
        raise ConfigurationError(why, hint="check the spelling, or write the IP address") from None
    places = [(family, (str(place[0]), int(place[1]))) for family, _, _, _, place in found]
    if address.tls is None and not address.insecure:
        far = [
            host for _, (host, _) in places if not ipaddress.ip_address(host.partition("%")[0]).is_loopback
        ]
        if far:
            raise ConfigurationError(
                f"{endpoint} is not on this host ({far[0]}), and without TLS anybody between could read and change "
                "experience and weights",
                hint=f"write {SCHEME}{endpoint} and give the server a certificate, or insist with --insecure",
            )
    return list(dict.fromkeys(places))


async def _secured(
    stream: trio.SocketStream, context: ssl.SSLContext, address: StreamAddress
) -> trio.SSLStream[trio.SocketStream]:
    # Messages say themselves where they end, so that a stream without TLS's own farewell loses nothing.
    secured = trio.SSLStream(stream, context, server_hostname=address.endpoint.host, https_compatible=True)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as error:
        await last_word(secured)
        await trio.aclose_forcefully(secured)
        why = refused(error, str(address))
        if why is not None:
            raise why from why.__cause__
        raise UpstreamLost(f"{address} closed the connection in the TLS handshake") from None
    except BaseException:
        await trio.aclose_forcefully(secured)
        raise
    return secured


async def speaks_tls(address: StreamAddress, *, within: float) -> bool:
    """Whether what listens at an address that is written without TLS finishes a handshake, or fails at it in TLS."""
    with trio.move_on_after(within):
        try:
            plain = await open_stream(address, within=within)
        except OspBridgeError:
            return False
        assert isinstance(plain, trio.SocketStream)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Nothing is said to it, so nobody need be believed.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        secured = trio.SSLStream(plain, context, https_compatible=True)
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            return "ALERT" in (getattr(error.__cause__, "reason", None) or "")
        else:
            return True
        finally:
            await trio.aclose_forcefully(secured)
    return False


def refused(error: Exception, peer: str) -> ConfigurationError | None:
    """Why a stream broke, where TLS says it: in the handshake, or after it. None where the stream only ended.

    TLS 1.3 tells only after the handshake that our certificate is refused.
    """
    cause = error.__cause__
    if not isinstance(cause, ssl.SSLError) or just_ended(cause):
        return None
    told = refusal(
        cause,
        peer,
        expected="TLS as expected",
        hint="RLlib's own server speaks no TLS; a TLS tunnel such as stunnel may stand before it",
    )
    told.__cause__ = cause
    return told


def just_ended(cause: BaseException | None) -> bool:
    """Whether a stream of TLS ended without a word, by whichever name OpenSSL calls it."""
    return isinstance(cause, ENDED) or (
        isinstance(cause, ssl.SSLError) and "EOF" in (cause.reason or "").upper()
    )


def was_refused(error: OspBridgeError) -> bool:
    """Whether ``error`` is from ``refused``: unlike an unfit file of ours, the server's end may mend it."""
    return isinstance(error.__cause__, ssl.SSLError)


async def last_word(stream: Stream) -> None:
    """Tell the other side why a handshake failed. ``stream`` is to be closed forcefully then.

    OpenSSL has made an alert of it, which trio keeps: the other side would see that the stream ends, and not why.
    """
    # It has no other name; a release of trio that calls it differently must not end us, only say less.
    outgoing: ssl.MemoryBIO | None = getattr(stream, "_outgoing", None)
    if isinstance(stream, trio.SSLStream) and outgoing is not None:
        with (
            trio.move_on_after(LAST_WORD_WITHIN, shield=True),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            await stream.transport_stream.send_all(outgoing.read())


def linger_on(stream: Stream, seconds: float) -> None:
    """Have another process read what comes, for ``seconds`` at most; ``stream`` is to be closed forcefully then."""
    plain = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
    linger(plain.socket.fileno(), seconds)


def traceless(error: BaseException) -> None:
    """Take the tracebacks from ``error`` and from what caused it.

    The frames in them refer to their callers' frames, and may refer to the error itself. Such a circle would keep whole
    connections until Python looks for circles, which the daemon seldom lets it do.
    """
    found: BaseException | None = error
    while found is not None:
        found.__traceback__ = None
        found = found.__cause__ or found.__context__


async def close_gently(stream: Stream, *, within: float) -> None:
    """Say that nothing more comes, read until the other side says so too, ``within`` seconds at most, and close."""
    with trio.move_on_after(within, shield=True):
        try:
            socket_stream = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
            await socket_stream.send_eof()
            while await socket_stream.receive_some(READ_AT_ONCE):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError) as error:
            # Busy: somebody is cut short in the middle of a message.
            traceless(error)
    await trio.aclose_forcefully(stream)
