"""TLS over TCP: the PEM files and addresses that users name, connecting to a hub, and what a refusal means in words.

Between environments and a daemon both sides show a certificate, and each must be signed by the other's CA; the daemon's
must also name the host that the environment connects to. TLS is of version 1.2 or later.
"""

from __future__ import annotations

import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import ConfigurationError
from ospbridge.transport.addresses import PASSING, is_loopback, parse_endpoint
from ospbridge.transport.admission import set_keepalive as settle

if TYPE_CHECKING:
    import os

    from ospbridge.interface import Endpoint

__all__ = [
    "SCHEME",
    "ServerTls",
    "StreamAddress",
    "TlsAddress",
    "TlsFiles",
    "TlsSocket",
    "connect_tls",
    "hub_refusal",
    "listening_at",
    "parse_stream",
    "parse_tls",
    "refusal",
]

SCHEME: Final = "tls://"
DEFAULT_PORT: Final = 5555
"""Where the address of a server names none."""
SHORTEST_TRY: Final = 0.01
"""Seconds for an address, however little is left."""
_OLD: Final = frozenset({"UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW"})
"""What OpenSSL says where the other side's newest version is too old."""
_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


# --- files -----------------------------------------------------------------------------------------------------------


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
        context.verify_mode = ssl.CERT_REQUIRED
        context.sslsocket_class = TlsSocket
        return _load(context, self.cert, self.key, self.ca)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: whose certificates to believe (none: those of the system), and what to show if asked."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Verifies the server's name and certificate. Raises ConfigurationError for unfit files."""
        if (self.cert is None) != (self.key is None):
            raise ConfigurationError(
                "a TLS client shows a certificate and holds its key; only one of them was named",
                hint="name both, or neither",
            )
        of_system = self.ca is None
        context = ssl.create_default_context() if of_system else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return _load(context, self.cert, self.key, self.ca)


def _load(context: ssl.SSLContext, cert: Path | None, key: Path | None, ca: Path | None) -> ssl.SSLContext:
    """With what these files hold, for TLS 1.2 or later. Raises ConfigurationError for those that do not fit."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check_readable(cert, key, ca)
    try:
        if cert is not None:
            # An empty password, or OpenSSL would ask for one on the terminal.
            context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"{cert} and {key} are no certificate and its key: {_reason(error)}",
            hint="both must be PEM files, the key of that very certificate and without a password",
        ) from None
    try:
        if ca is not None:
            context.load_verify_locations(ca)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"{ca} has no CA certificates: {_reason(error)}", hint="it must be a PEM file"
        ) from None
    return context


def _check_readable(*paths: Path | None) -> None:
    """Raises ConfigurationError for a file that cannot be read; OpenSSL would not say which.

    Nor would it ever come back from a device that has no end, or from a pipe that nobody writes to.
    """
    for path in paths:
        if path is None:
            continue
        try:
            # What a shell's <(command) stands for is a pipe without a place of its own, and has a writer.
            if stat.S_ISCHR(path.stat().st_mode) or path.resolve().is_fifo():
                raise ConfigurationError(
                    f"cannot read {path}: it is a device or a pipe", hint="TLS needs a regular file there"
                )
            path.open("rb").close()
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {path}: {error.strerror}", hint="TLS needs this file"
            ) from None


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal(error: ssl.SSLError, peer: str, *, expected: str, hint: str) -> ConfigurationError:
    """What went wrong between two certificates, or with a peer that speaks no TLS, or not ``expected``."""
    reason = (error.reason or "").upper()
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"the certificate of {peer} does not hold: {error.verify_message}",
            hint="it must be valid now, signed by the CA that was given (tls_ca), and name the host connected to",
        )
    if "PROTOCOL_VERSION" in reason or reason in _OLD:
        return ConfigurationError(
            f"{peer} speaks no TLS of version 1.2 or later, and an older one is refused: {_reason(error)}",
            hint="bring the other side's TLS up to date, or let its settings allow TLS 1.2",
        )
    if "ALERT" in reason or reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return ConfigurationError(
            f"{peer} refuses the TLS connection: {_reason(error)}",
            hint="it may want a certificate, valid now and signed by the CA that the other side was given",
        )
    return ConfigurationError(f"{peer} does not speak {expected}: {_reason(error)}", hint=hint)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def hub_refusal(error: ssl.SSLError, peer: str = "the other side") -> ConfigurationError:
    """What went wrong between two certificates, or with a peer that is no hub."""
    hint = "is this the HOST:PORT of `ospbridge connect --listen`?"
    return refusal(error, peer, expected="TLS as a hub does", hint=hint)


# --- hubs on other hosts ----------------------------------------------------------------------------------------------


class TlsSocket(ssl.SSLSocket):
    """Tells like an ordinary non-blocking socket that nothing is there yet, and that the stream has ended.

    Raises ConfigurationError where the other side refuses our certificate: TLS 1.3 tells that after the handshake only.
    """

    def recv_into(self, *arguments: Any) -> int:
        try:
            return super().recv_into(*arguments)
        except ssl.SSLError as error:
            raise _plain_error(error) from None

    def send(self, *arguments: Any) -> int:
        try:
            return super().send(*arguments)
        except ssl.SSLError as error:
            raise _plain_error(error) from None

    def shutdown(self, how: int) -> None:
        """Beneath TLS, whose own farewell would change the stream under another thread that reads it."""
        socket.socket.shutdown(self, how)


def _plain_error(error: ssl.SSLError, peer: str = "the other side") -> Exception:
    """The error that a plain socket raises; ConfigurationError for what only TLS knows."""
    if isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
        return BlockingIOError()
    if isinstance(error, _ENDED):
        return ConnectionResetError(0, "the stream ended")
    return hub_refusal(error, peer)


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
    names_port = "]:" in place if place.startswith("[") else place.count(":") == 1
    why = ""
    if text.startswith(SCHEME) and place.strip("/") and names_port:
        try:
            return parse_endpoint(place)
        except ConfigurationError as error:
            why = error.message.partition(" address")[2]
    raise ConfigurationError(
        f"{text!r} is not a hub's address{why}",
        hint=f"write {SCHEME}HOST:PORT, for instance {SCHEME}trainer:45460",
    )


def connect_tls(address: TlsAddress, timeout: float) -> socket.socket:
    """A connected, non-blocking stream. Raises ConfigurationError for certificates that do not fit, OSError.

    The addresses of a name share ``timeout``. A name that there is not is the former; that no name server answers is
    the latter.
    """
    context = address.files.context(server=False)
    host = address.endpoint.host
    plain = _connected(address.endpoint, monotonic() + timeout)
    try:
        settle(plain)
        sock = context.wrap_socket(plain, server_hostname=host)
        sock.setblocking(False)
    except BaseException as error:
        plain.close()
        if isinstance(error, ssl.SSLError):
            raise _plain_error(error, str(address)) from None
        raise
    return sock


def _connected(endpoint: Endpoint, end: float) -> socket.socket:
    """A connection to the first of several addresses that accepts one, each with its share of the time until ``end``.

    What is left then is the connection's time limit. Raises the OSError of the last one.
    """
    host = endpoint.host
    try:
        places = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in PASSING:
            raise
        raise ConfigurationError(
            f"the host name {host!r} does not resolve: {error.strerror}", hint="check the spelling"
        ) from None
    failure = OSError("a name without addresses")
    for number, (family, kind, protocol, _, place) in enumerate(places):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(SHORTEST_TRY, (end - monotonic()) / (len(places) - number)))
            sock.connect(place)
            sock.settimeout(max(SHORTEST_TRY, end - monotonic()))
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failure = error
        else:
            return sock
    raise failure


# --- addresses of other servers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """Where a server listens. Without ``tls`` only on this host, unless ``insecure``."""

    endpoint: Endpoint
    tls: ServerTls | None = None
    insecure: bool = False

    def __str__(self) -> str:
        return f"{SCHEME}{self.endpoint}" if self.tls is not None else str(self.endpoint)


def parse_stream(text: str, *, tls: ServerTls | None = None, insecure: bool = False) -> StreamAddress:
    """The address of ``HOST:PORT`` or ``tls://HOST:PORT``; ``tls`` may say more about the latter.

    Raises ConfigurationError for anything else.
    """
    place = text.removeprefix(SCHEME)
    if place != text:
        return StreamAddress(_place(place), tls or ServerTls(), insecure)
    if tls is not None:
        raise ConfigurationError(
            f"certificates were given, but {text!r} is an address without TLS", hint=f"write {SCHEME}{text}"
        )
    return StreamAddress(_place(place), None, insecure)


def _place(text: str, *, least_port: int = 1) -> Endpoint:
    try:
        return parse_endpoint(text, default_port=DEFAULT_PORT, least_port=least_port)
    except ConfigurationError as error:
        why = error.message.partition(": ")[2]
        raise ConfigurationError(
            f"{text!r} is not a server's address: {why}",
            hint=f"write HOST:PORT or {SCHEME}HOST:PORT, for instance 127.0.0.1:{DEFAULT_PORT}",
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
    if not (secured or insecure or endpoint.host == "localhost" or is_loopback(endpoint.host)):
        raise ConfigurationError(
            f"{endpoint} can be reached by other hosts, and without TLS anybody between could read and change what is "
            "sent",
            hint="name a certificate, its key and a CA, or insist with --insecure",
        )
    return endpoint
