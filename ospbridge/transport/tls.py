"""TLS over TCP: the PEM files and addresses that users name, connecting to a hub, and what a refusal means in words.

Between environments and a daemon both sides show a certificate, and each must be signed by the other's CA; the daemon's
must also name the host that the environment connects to. TLS is of version 1.2 or later.
"""

from __future__ import annotations

import os
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ospbridge.errors import ConfigurationError, HubNotFound
from ospbridge.transport.addresses import parse_endpoint, unresolved
from ospbridge.transport.admission import closed_on_error, set_keepalive

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

PemFile: TypeAlias = str | os.PathLike[str]

SCHEME: Final = "tls://"
DEFAULT_PORT: Final = 5555
"""Where the address of a server names none."""
_OLD: Final = frozenset({"UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW"})
"""What OpenSSL says where the other side's newest version is too old."""
_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""What OpenSSL calls a stream that just ended; or its reason says so."""


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate, its key, and the CA that the other side's certificate must come from.

    A client of an RLlink server needs no certificate where it is asked for none, and no CA that the system knows.
    """

    cert: PemFile | None = None
    key: PemFile | None = None
    ca: PemFile | None = None

    @classmethod
    def of(cls, cert: PemFile | None, key: PemFile | None, ca: PemFile | None) -> TlsFiles:
        """Raises ConfigurationError unless all three are named."""
        if cert is None or key is None or ca is None:
            raise ConfigurationError(
                "TLS needs three files: a certificate, its key, and the CA of the other side",
                hint="name all of tls_cert, tls_key and tls_ca (--tls-cert, --tls-key and --tls-ca)",
            )
        return cls(cert, key, ca)

    def context(self, *, server: bool = False) -> ssl.SSLContext:
        """Verifies the other side's certificate, and at a server its name, by TLS 1.2 or later.

        Raises ConfigurationError for files that cannot be read or do not belong together.
        """
        if (self.cert is None) != (self.key is None):
            raise ConfigurationError(
                "a TLS client shows a certificate and holds its key; only one of them was named",
                hint="name both, or neither",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.verify_mode = ssl.CERT_REQUIRED
        context.sslsocket_class = TlsSocket
        if self.ca is None and not server:
            context.load_default_certs()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for path in (self.cert, self.key, self.ca):
            if path is not None:
                _check_readable(Path(path))
        told = f"{self.cert} and {self.key} are no certificate and its key"
        hint = "both must be PEM files, the key of that very certificate and without a password"
        try:
            if self.cert is not None:
                # An empty password, or OpenSSL would ask for one on the terminal.
                context.load_cert_chain(self.cert, self.key, password="")
            told, hint = f"{self.ca} has no CA certificates", "it must be a PEM file"
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"{told}: {_reason(error)}", hint=hint) from None
        return context


def _check_readable(path: Path) -> None:
    """Raises ConfigurationError for a file that cannot be read; OpenSSL would not say which.

    Nor would it ever come back from a device that has no end, or from a pipe that nobody writes to.
    """
    why: str | None = "it is a device or a pipe"
    try:
        # What a shell's <(command) stands for is a pipe without a place of its own, and has a writer.
        if not (stat.S_ISCHR(path.stat().st_mode) or path.resolve().is_fifo()):
            path.open("rb").close()
            return
    except OSError as error:
        why = error.strerror
    raise ConfigurationError(f"cannot read {path}: {why}", hint="TLS needs a regular file there")


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


def is_end_of_stream(cause: BaseException | None) -> bool:
    """Whether a stream of TLS ended without a word, by whichever name OpenSSL calls it."""
    return isinstance(cause, _ENDED) or (
        isinstance(cause, ssl.SSLError) and "EOF" in (cause.reason or "").upper()
    )


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
    if is_end_of_stream(error):
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
    hint = f"write {SCHEME}HOST:PORT, for instance {SCHEME}trainer:45460"
    return parse_endpoint(text, what="a hub's address", hint=hint, scheme=SCHEME, default_port=None)


def connect_tls(address: TlsAddress, timeout: float) -> socket.socket:
    """A connected, non-blocking stream. Raises ConfigurationError for certificates that do not fit, OSError.

    The addresses of a name share ``timeout``. A name that there is not is a ConfigurationError; HubNotFound says that
    no name server answers.
    """
    context = address.files.context(server=False)
    endpoint = address.endpoint
    try:
        places = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise unresolved(endpoint.host, error, HubNotFound) from None
    failure = OSError("a name without addresses")
    for _, _, _, _, place in places:
        try:
            plain = socket.create_connection((str(place[0]), int(place[1])), timeout / len(places))
        except OSError as error:
            failure = error
        else:
            return _secured(plain, context, address)
    raise failure


def _secured(plain: socket.socket, context: ssl.SSLContext, address: TlsAddress) -> socket.socket:
    with closed_on_error(plain):
        set_keepalive(plain)
        try:
            sock = context.wrap_socket(plain, server_hostname=address.endpoint.host)
        except ssl.SSLError as error:
            raise _plain_error(error, str(address)) from None
        sock.setblocking(False)
        return sock


# --- addresses of other servers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """Where a server listens. Without ``tls`` only on this host, unless ``insecure``."""

    endpoint: Endpoint
    tls: TlsFiles | None = None
    insecure: bool = False

    def __str__(self) -> str:
        return f"{SCHEME}{self.endpoint}" if self.tls is not None else str(self.endpoint)


def parse_stream(text: str, *, tls: TlsFiles | None = None, insecure: bool = False) -> StreamAddress:
    """The address of ``HOST:PORT`` or ``tls://HOST:PORT``; ``tls`` may say more about the latter.

    Raises ConfigurationError for anything else.
    """
    hint = f"write HOST:PORT or {SCHEME}HOST:PORT, for instance 127.0.0.1:{DEFAULT_PORT}"
    endpoint = parse_endpoint(
        text, what="a server's address", hint=hint, scheme=SCHEME, default_port=DEFAULT_PORT
    )
    if text.startswith(SCHEME):
        return StreamAddress(endpoint, tls or TlsFiles(), insecure)
    if tls is not None:
        raise ConfigurationError(
            f"certificates were given, but {text!r} is an address without TLS", hint=f"write {SCHEME}{text}"
        )
    return StreamAddress(endpoint, None, insecure)
