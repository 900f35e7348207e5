"""TCP connections to servers, with or without TLS, for trio: opened in the clear to this host only, unless insisted."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import ConfigurationError, OspBridgeError, UpstreamLost, UpstreamNotFound
from ospbridge.transport.addresses import NAME_SERVER, PASSING, is_loopback
from ospbridge.transport.settling import settle
from ospbridge.transport.stream_addresses import SCHEME
from ospbridge.transport.stream_ends import last_word, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.transport.stream_addresses import StreamAddress
    from ospbridge.transport.stream_ends import Stream

__all__ = ["open_stream", "speaks_tls"]

NEXT_ADDRESS_AFTER: Final = 0.25
"""Seconds that one address of a name is waited for alone."""


async def open_stream(address: StreamAddress, *, within: float, wanted: str = "server") -> Stream:
    """A connection, in ``within`` seconds, with the server's certificate verified where there is TLS.

    ``wanted``: what should listen there, for messages. A connection proves little: some servers accept and reset it,
    and where TLS 1.3 is spoken, a certificate of ours is refused only afterwards. Raises UpstreamNotFound where nobody
    accepts or no name server answers, ConfigurationError for a name that does not exist, files that do not fit, and
    another host without TLS; and for what one side's TLS refused of the other's, which ``was_refused`` tells apart.
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
    raise UpstreamNotFound(f"no {wanted} accepts connections at {address}: {failure}")


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
            raise UpstreamNotFound(why, hint=NAME_SERVER) from None
        raise ConfigurationError(why, hint="check the spelling, or write the IP address") from None
    except UnicodeError:
        # trio has rules of its own for names beyond ASCII.
        raise ConfigurationError(
            f"{endpoint.host!r} can be no host's name", hint="check the spelling, or write the IP address"
        ) from None
    places = [(family, (str(place[0]), int(place[1]))) for family, _, _, _, place in found]
    if address.tls is None and not address.insecure:
        far = [host for _, (host, _) in places if not is_loopback(host)]
        if far:
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
