"""Letting in an environment of another host: the TLS handshake, within bounds."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.transport.tls import refusal_in_words

if TYPE_CHECKING:
    from ospbridge.transport.tls import TlsListener

__all__ = ["admit"]

PATIENCE: Final = 10.0
"""Seconds for a handshake."""
GOODBYE: Final = 1.0
"""Seconds for one who is refused to hang up."""


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
            raise refusal_in_words(error, "the environment") from None
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
