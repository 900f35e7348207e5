"""What ended an exchange with a daemon, in the words of a user of the hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ospbridge.errors import ConfigurationError, HubLost, RemoteProtocolError

if TYPE_CHECKING:
    from ospbridge.transport.tls import TlsAddress

__all__ = ["lost", "told"]


def lost(address: Path | TlsAddress, why: str) -> HubLost:
    """The connection is gone."""
    return HubLost(f"the connection to the daemon at {address} is lost: {why}")


def told(address: Path | TlsAddress, error: BaseException, *, greeted: bool) -> BaseException:
    """The error for what went wrong; that itself where it says so already. ``greeted``: a hub it is."""
    if isinstance(error, OSError):
        why = error.strerror or "the stream ended"
        if greeted:
            return lost(address, why)
        # So it looks as well to who waits to be let in when the daemon ends.
        ended = "" if isinstance(error, TimeoutError) else "try again if the daemon has just ended; or else, "
        return HubLost(f"{address} does not greet as a hub does: {why}", hint=f"{ended}{_is_it_one(address)}")
    if isinstance(error, RemoteProtocolError):
        if greeted:
            return lost(address, f"it sent what is no reply: {error.message}")
        return ConfigurationError(
            f"what listens at {address} is no hub: {error.message}", hint=_is_it_one(address)
        )
    return error


def _is_it_one(address: Path | TlsAddress) -> str:
    option = "--hub" if isinstance(address, Path) else "--listen"
    return f"is this the address of `ospbridge connect {option}`?"
