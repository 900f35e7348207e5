"""The TLS files of an environment, as its options name them, and which of several hubs they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.transport.tls import TlsFiles

__all__ = ["files_for", "is_remote", "tls_files"]


def tls_files(
    cert: str | None, key: str | None, ca: str | None, *, simulator: object = None
) -> TlsFiles | None:
    """None where none is named. Raises ConfigurationError for some of the three, UsageError beside a simulator."""
    if cert is None and key is None and ca is None:
        return None
    if simulator is not None:
        raise UsageError(
            "certificates were given together with simulator, and OSP knows no TLS",
            hint="run `ospbridge connect --listen HOST:PORT` beside the simulator, and name bridge='tls://HOST:PORT'",
        )
    # Whoever needs no TLS does not load it.
    from ospbridge.transport.tls import TlsFiles

    return TlsFiles.of(cert, key, ca)


def files_for(bridge: str | None, bridges: Sequence[str | None], files: TlsFiles | None) -> TlsFiles | None:
    """``files`` for the hubs on other hosts. Where none is, for all: connecting tells that they do not fit."""
    if is_remote(bridge) or not any(map(is_remote, bridges)):
        return files
    return None


def is_remote(bridge: str | None) -> bool:
    """A hub that is reached by TLS."""
    return bridge is not None and bridge.startswith("tls:")
