"""What is the same wherever TLS is spoken: PEM files, and what a refusal means in words."""

from __future__ import annotations

import ssl
import stat
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["no_authorities", "refusal", "see", "show"]

_OLD: Final = frozenset({"UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW"})
"""What OpenSSL says where the other side's newest version is too old."""


def see(paths: Iterable[Path | None]) -> None:
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


def show(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Let ``context`` show a certificate. Raises ConfigurationError for files that are none, or do not fit."""
    try:
        # An empty password, or OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"{cert} and {key} are no certificate and its key: {_reason(error)}",
            hint="both must be PEM files, the key of that very certificate and without a password",
        ) from None


def no_authorities(path: Path | None, error: Exception) -> ConfigurationError:
    """What is wrong with a file that should hold a CA."""
    return ConfigurationError(
        f"{path} has no CA certificates: {_reason(error)}", hint="it must be a PEM file"
    )


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
