"""TCP connections to servers, with or without TLS, for trio: opened, told apart when they break, and ended.

Without TLS they lead to this host only, unless insisted. They end gently: closing over unread bytes resets a
connection, which some servers do not survive before they have delivered what they owe.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from ospbridge.errors import ConfigurationError, OspBridgeError, UpstreamLost, UpstreamNotFound
from ospbridge.transport.addresses import is_loopback, unresolved
from ospbridge.transport.admission import closed_on_error, set_keepalive
from ospbridge.transport.tls import SCHEME, is_end_of_stream, refusal

if TYPE_CHECKING:
    from ospbridge.transport.tls import StreamAddress

Stream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

READ_AT_ONCE: Final = 64 * 1024
ALERT_WITHIN: Final = 0.5
"""Seconds for the reason of a refusal to leave."""
READER_STARTS: Final = 5.0
"""Seconds for the process of ``linger`` to be there."""
QUIET: Final = 1.0
"""Seconds without another byte after which what came was all."""
_NETWORK_FAILURES: Final = frozenset(
    {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
)
"""What the kernel says of a connection that nobody has ended."""
_READER: Final = """
import os, select, sys, time
if os.fork(): os._exit(0)
descriptor, wait, quiet = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
until = time.monotonic() + wait
looking = select.poll()
looking.register(descriptor, select.POLLIN)
while (left := until - time.monotonic()) > 0 and looking.poll(1000 * min(wait, left)) and os.read(descriptor, 1 << 20):
    wait = quiet
"""


# --- opening ---------------------------------------------------------------------------------------------------------


async def open_stream(address: StreamAddress, *, within: float, wanted: str = "server") -> Stream:
    """A connection, in ``within`` seconds, with the server's certificate verified where there is TLS.

    ``wanted``: what should listen there, for messages. A connection proves little: some servers accept and reset it,
    and where TLS 1.3 is spoken, a certificate of ours is refused only afterwards. Raises UpstreamNotFound where nobody
    accepts or no name server answers, ConfigurationError for a name that does not exist, files that do not fit, and
    another host without TLS; and for what one side's TLS refused of the other's, which ``is_tls_failure`` tells apart.
    """
    context = address.tls.context() if address.tls is not None else None
    failure = "its name is not resolved in time"
    with trio.move_on_after(within) as scope:
        places = await _resolved(address)
        failure = "nobody answered"
        for number, (family, place) in enumerate(places):
            try:
                # Each address has its share of the time.
                with trio.move_on_after((scope.deadline - trio.current_time()) / (len(places) - number)):
                    stream = await _connected(family, place)
                    failure = "it does not finish the TLS handshake"
                    return stream if context is None else await _secured(stream, context, address)
            except OSError as error:
                # Not `strerror`, which trio makes longer and which repeats the address.
                failure = os.strerror(error.errno) if error.errno else str(error)
    raise UpstreamNotFound(f"no {wanted} accepts connections at {address}: {failure}")


async def _connected(family: int, place: tuple[str, int]) -> trio.SocketStream:
    with closed_on_error(trio.socket.socket(family, socket.SOCK_STREAM)) as sock:
        set_keepalive(sock)
        await sock.connect(place)
        # With it the kernel takes 16 KiB at most that cannot leave yet, so that what it took counts as sent.
        return trio.SocketStream(sock)


async def _resolved(address: StreamAddress) -> list[tuple[int, tuple[str, int]]]:
    """Families and numeric addresses, each once."""
    endpoint = address.endpoint
    try:
        found = await trio.socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise unresolved(endpoint.host, error, UpstreamNotFound) from None
    places = [(family, (str(place[0]), int(place[1]))) for family, _, _, _, place in found]
    far = [host for _, (host, _) in places if not is_loopback(host)]
    if far and address.tls is None and not address.insecure:
        raise ConfigurationError(
            f"{endpoint} is not on this host ({far[0]}), and without TLS anybody between could read and change "
            "what is sent",
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
    except BaseException as error:
        broken = isinstance(error, trio.BrokenResourceError)
        if broken:
            await send_alert(secured)
        await trio.aclose_forcefully(secured)
        if not broken:
            raise
        lost = UpstreamLost(f"{address} closed the connection in the TLS handshake")
        why = why_broken(error, str(address)) or lost
        raise why from why.__cause__
    return secured


# --- why one broke ---------------------------------------------------------------------------------------------------


def why_broken(error: BaseException, peer: str) -> OspBridgeError | None:
    """Why a stream broke, where TLS or the network says it. None where the other side ended it.

    TLS 1.3 tells only after the handshake that our certificate is refused.
    """
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError) and not is_end_of_stream(cause):
        hint = "before a server that speaks no TLS itself, a TLS tunnel such as stunnel may stand"
        told = refusal(cause, peer, expected="TLS as expected", hint=hint)
        told.__cause__ = cause
        return told
    if isinstance(cause, OSError) and cause.errno in _NETWORK_FAILURES:
        return UpstreamLost(
            f"nothing reaches {peer} any more: {os.strerror(cause.errno)}",
            hint="see whether its host is up, and what is between: it may not know yet that the connection is lost",
        )
    return None


def is_tls_failure(error: OspBridgeError) -> bool:
    """Whether ``error`` is TLS's: unlike an unfit file of ours, the server's end may mend it."""
    return isinstance(error.__cause__, ssl.SSLError)


def strip_tracebacks(error: BaseException) -> None:
    """Take the tracebacks from ``error`` and from what caused it.

    Their frames may refer to the error: a circle that would keep whole connections, as the daemon seldom collects.
    """
    found: BaseException | None = error
    while found is not None:
        found.__traceback__ = None
        found = found.__cause__ or found.__context__


# --- ending ----------------------------------------------------------------------------------------------------------


async def send_alert(stream: Stream) -> None:
    """Tell the other side why a handshake failed. ``stream`` is to be closed forcefully then.

    OpenSSL has made an alert of it, which trio keeps: the other side would see that the stream ends, and not why.
    """
    # It has no other name; a release of trio that calls it differently must not end us, only say less.
    outgoing: ssl.MemoryBIO | None = getattr(stream, "_outgoing", None)
    if isinstance(stream, trio.SSLStream) and outgoing is not None:
        with (
            trio.move_on_after(ALERT_WITHIN, shield=True),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            await stream.transport_stream.send_all(outgoing.read())


async def close_gently(stream: Stream, *, within: float) -> None:
    """Say that nothing more comes, read until the other side says so too, ``within`` seconds at most, and close."""
    with trio.move_on_after(within, shield=True):
        try:
            plain = tcp_stream(stream)
            await plain.send_eof()
            while await plain.receive_some(READ_AT_ONCE):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError) as error:
            # Busy: somebody is cut short in the middle of a message.
            strip_tracebacks(error)
    await trio.aclose_forcefully(stream)


def tcp_stream(stream: Stream) -> trio.SocketStream:
    """What is beneath TLS, where there is TLS."""
    return stream if isinstance(stream, trio.SocketStream) else stream.transport_stream


async def linger(descriptor: int, seconds: float) -> None:
    """Have a socket read in a process of its own, until it is quiet behind what came; ours may be closed then.

    What a server owes may take it minutes, and a program that must end does not wait for that. For ``seconds`` at most,
    whether nothing comes or no end of it. What is read is thrown away. Where no process can be started, nobody reads.
    """
    # Isolated and without site-packages: it starts in milliseconds, whatever the environment is like. What is awaited
    # is only its start: it reads in a child, which is nobody's to wait for.
    command = [sys.executable, "-I", "-S", "-c", _READER, str(descriptor), f"{seconds:g}", f"{QUIET:g}"]
    with trio.move_on_after(READER_STARTS, shield=True), suppress(OSError, subprocess.CalledProcessError):
        await trio.run_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
        )
