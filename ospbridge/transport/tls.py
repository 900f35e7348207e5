"""TCP with mutual TLS: files as users name them, listening, connecting, and what a refusal means in words.

Both sides show a certificate, and each must be signed by the other's CA; the daemon's must also name the host that the
environment connects to. TLS 1.2 or later.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import ConfigurationError
from ospbridge.transport.addresses import PASSING, parse_endpoint
from ospbridge.transport.securing import no_authorities, refusal, see, show
from ospbridge.transport.settling import settle
from ospbridge.transport.stream_addresses import SCHEME

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from ospbridge.interface import Endpoint

__all__ = [
    "TlsAddress",
    "TlsFiles",
    "TlsListener",
    "TlsSocket",
    "connect_tls",
    "parse_tls",
    "refusal_in_words",
]

BACKLOG: Final = 128
SHORTEST_TRY: Final = 0.01
"""Seconds for an address, however little is left."""


@dataclass(frozen=True, slots=True, init=False)
class TlsFiles:
    """PEM files: our certificate, its key, and the CA that the other side's certificate must come from."""

    cert: Path
    key: Path
    ca: Path

    def __init__(
        self, cert: str | os.PathLike[str], key: str | os.PathLike[str], ca: str | os.PathLike[str]
    ) -> None:
        for name, path in (("cert", cert), ("key", key), ("ca", ca)):
            object.__setattr__(self, name, Path(path))

    @classmethod
    def of(cls, cert: str | Path | None, key: str | Path | None, ca: str | Path | None) -> TlsFiles:
        """Raises ConfigurationError unless all three are named."""
        if cert is None or key is None or ca is None:
            raise ConfigurationError(
                "TLS needs three files: a certificate, its key, and the CA of the other side",
                hint="name all of tls_cert, tls_key and tls_ca (--tls-cert, --tls-key and --tls-ca)",
            )
        return cls(cert, key, ca)

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Raises ConfigurationError for files that cannot be read or do not belong together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.sslsocket_class = TlsSocket
        see((self.cert, self.key, self.ca))
        show(context, self.cert, self.key)
        try:
            context.load_verify_locations(self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise no_authorities(self.ca, error) from None
        return context


class TlsSocket(ssl.SSLSocket):
    """Tells like an ordinary non-blocking socket that nothing is there yet, and that the stream has ended.

    Raises ConfigurationError where the other side refuses our certificate: TLS 1.3 tells that after the handshake only.
    """

    def recv_into(self, *arguments: Any) -> int:
        try:
            return super().recv_into(*arguments)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0
        except ssl.SSLError as error:
            raise refusal_in_words(error) from None

    def send(self, *arguments: Any) -> int:
        try:
            return super().send(*arguments)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            raise ConnectionResetError(0, "the stream ended") from None
        except ssl.SSLError as error:
            raise refusal_in_words(error) from None


@dataclass(frozen=True, slots=True)
class TlsAddress:
    """Where a daemon listens for other hosts, and what to show it."""

    endpoint: Endpoint
    files: TlsFiles

    def __str__(self) -> str:
        return f"{SCHEME}{self.endpoint}"


def parse_tls(text: str) -> Endpoint:
    """The endpoint of ``tls://HOST:PORT``. Raises ConfigurationError for anything else."""
    place = text.removeprefix(SCHEME)
    if not text.startswith(SCHEME) or not place.strip("/") or not _names_port(place):
        raise _no_hub(text)
    try:
        return parse_endpoint(place)
    except ConfigurationError as error:
        raise _no_hub(text, error.message.partition(" address")[2]) from None


def _no_hub(text: str, why: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"{text!r} is not a hub's address{why}",
        hint=f"write {SCHEME}HOST:PORT, for instance {SCHEME}trainer:45460",
    )


def _names_port(place: str) -> bool:
    return "]:" in place if place.startswith("[") else place.count(":") == 1


def connect_tls(address: TlsAddress, timeout: float) -> socket.socket:
    """A connected, non-blocking stream. Raises ConfigurationError for certificates that do not fit, OSError.

    The addresses of a name share ``timeout``. A name that there is not is the former; that no name server answers is
    the latter.
    """
    context = address.files.context(server=False)
    host, port = address.endpoint.host, address.endpoint.port
    end = monotonic() + timeout
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in PASSING:
            raise
        raise ConfigurationError(
            f"the host name {host!r} does not resolve: {error.strerror}", hint="check the spelling"
        ) from None
    plain = _first_connected(places, end)
    try:
        settle(plain)
        sock = context.wrap_socket(plain, server_hostname=host)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        plain.close()
        raise ConnectionResetError(0, "the stream ended in the TLS handshake") from None
    except ssl.SSLError as error:
        plain.close()
        raise refusal_in_words(error, str(address)) from None
    except BaseException:
        plain.close()
        raise
    sock.setblocking(False)
    return sock


def _first_connected(places: Sequence[tuple[Any, ...]], end: float) -> socket.socket:
    """A connection to the first of several addresses that accepts one, each with its share of the time until ``end``.

    What is left then is the connection's time limit. Raises the OSError of the last one.
    """
    refusal = OSError("a name without addresses")
    for number, (family, kind, protocol, _, place) in enumerate(places):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(SHORTEST_TRY, (end - monotonic()) / (len(places) - number)))
            sock.connect(place)
            sock.settimeout(max(SHORTEST_TRY, end - monotonic()))
        except OSError as error:
            sock.close()
            refusal = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise refusal


class TlsListener:
    """A listening TCP socket. Raises ConfigurationError for files that do not fit, or an address that is taken."""

    def __init__(self, address: TlsAddress) -> None:
        self.address = address
        self._context = address.files.context(server=True)
        host, port = address.endpoint.host, address.endpoint.port
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
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


def refusal_in_words(error: ssl.SSLError, peer: str = "the other side") -> ConfigurationError:
    """What went wrong between two certificates, or with a peer that is no hub."""
    return refusal(
        error,
        peer,
        expected="TLS as a hub does",
        hint="is this the HOST:PORT of `ospbridge connect --listen`?",
    )
