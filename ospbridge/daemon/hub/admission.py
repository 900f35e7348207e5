"""Letting in environments of other hosts: where they connect to, and the TLS handshake, within bounds."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import ConfigurationError
from ospbridge.transport.admission import set_keepalive as settle
from ospbridge.transport.tls import hub_refusal

if TYPE_CHECKING:
    from ospbridge.transport.tls import TlsAddress

__all__ = ["TlsListener", "admit"]

BACKLOG: Final = 128
PATIENCE: Final = 10.0
"""Seconds for a handshake."""
GOODBYE: Final = 1.0
"""Seconds for one who is refused to hang up."""


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
        settle(sock)
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
