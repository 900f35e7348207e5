"""How a stream ends: why it broke, where TLS says it, and how it is ended by us.

Gently: what was sent is left to arrive, and what still comes is read, since closing over unread bytes resets the
connection, which some servers do not survive.
"""

from __future__ import annotations

import errno
import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from ospbridge.errors import UpstreamLost
from ospbridge.transport.lingering import linger
from ospbridge.transport.securing import refusal

if TYPE_CHECKING:
    from ospbridge.errors import ConfigurationError, OspBridgeError

__all__ = [
    "Stream",
    "close_gently",
    "cut_off",
    "just_ended",
    "last_word",
    "linger_on",
    "refused",
    "traceless",
    "was_refused",
]

Stream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"

READ_AT_ONCE: Final = 64 * 1024
ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""What OpenSSL calls a stream that just ended; or its reason says so."""
CUT_OFF: Final = frozenset(
    {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
)
"""What the kernel says of a connection that nobody has ended."""
LAST_WORD_WITHIN: Final = 0.5
"""Seconds for the reason of a refusal to leave."""


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
        hint="before a server that speaks no TLS itself, a TLS tunnel such as stunnel may stand",
    )
    told.__cause__ = cause
    return told


def cut_off(error: Exception, peer: str) -> UpstreamLost | None:
    """Why a stream broke, where it is the network that says so, and not the other side that ended it. Else None."""
    cause = error.__cause__
    if not isinstance(cause, OSError) or cause.errno not in CUT_OFF:
        return None
    return UpstreamLost(
        f"nothing reaches {peer} any more: {os.strerror(cause.errno)}",
        hint="see whether its host is up, and what is between: it may not know yet that the connection is lost",
    )


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
