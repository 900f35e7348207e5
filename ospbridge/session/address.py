"""Where a hub is: addresses as users write them, a stream to one, and the words for one that is not there."""

from __future__ import annotations

import socket
from pathlib import Path

from ospbridge.errors import ConfigurationError, HubNotFound
from ospbridge.observe.runtime import found_hub, hubs
from ospbridge.transport.addresses import NAME_SERVER
from ospbridge.transport.admission import squatter
from ospbridge.transport.tls import TlsAddress, TlsFiles, connect_tls, parse_tls
from ospbridge.transport.unix import connect_unix, parse_unix

__all__ = ["HubAddress", "hub_address", "hub_not_found", "hub_socket"]

HubAddress = Path | TlsAddress


def hub_address(hub: str | None, tls: TlsFiles | None) -> HubAddress:
    """That of ``unix:PATH`` or ``tls://HOST:PORT``; None: the default. Raises ConfigurationError."""
    if hub is not None and not isinstance(hub, str):
        raise ConfigurationError(
            f"{hub!r} is not a hub's address: it is no string",
            hint="write 'unix:PATH', or 'tls://HOST:PORT' for one on another host",
        )
    if hub is not None and hub.startswith("tls:"):
        endpoint = parse_tls(hub)
        return TlsAddress(endpoint, tls or TlsFiles.of(None, None, None))
    if tls is not None:
        raise ConfigurationError(
            "certificates were given, but the bridge is on this host", hint="name the hub as tls://HOST:PORT"
        )
    if hub is not None and "://" in hub:
        raise ConfigurationError(
            f"{hub!r} is not a hub's address",
            hint="write unix:PATH for a daemon on this host, tls://HOST:PORT for one on another",
        )
    return _default() if hub is None else parse_unix(hub)


def _default() -> Path:
    """No daemon of ours listens in a directory that somebody else has made: whoever does is not believed."""
    path = found_hub()
    if (user := squatter(path.parent)) is not None:
        raise ConfigurationError(
            f"the hub would be in {path.parent}, which belongs to user {user}: whatever listens there is not believed",
            hint="set XDG_RUNTIME_DIR to a directory of your own, the same as for the daemon, or name the hub",
        )
    return path


def hub_socket(address: HubAddress, timeout: float) -> socket.socket:
    """A connected, non-blocking stream; another host has ``timeout`` seconds to accept.

    Raises OSError where nobody listens, and ConfigurationError for certificates that do not fit.
    """
    return connect_unix(address) if isinstance(address, Path) else connect_tls(address, timeout)


def hub_not_found(address: HubAddress, error: OSError) -> HubNotFound:
    """The error for an address at which nobody could be connected to."""
    if isinstance(error, PermissionError):
        return HubNotFound(
            f"this user may not use the daemon's hub at {address}",
            hint="join the group that owns it, or run the daemon as this user",
        )
    if isinstance(error, socket.gaierror):
        return HubNotFound(f"the host name of {address} does not resolve: {error.strerror}", hint=NAME_SERVER)
    if isinstance(address, TlsAddress):
        return HubNotFound(
            f"no daemon listens at {address} ({error.strerror or error})",
            hint="start it there with `ospbridge connect --listen HOST:PORT`, or look whether a firewall is between",
        )
    if isinstance(error, BlockingIOError):
        return HubNotFound(
            f"the daemon at {address} lets nobody in: more wait already than it takes",
            hint="see whether it still runs, `ps` shows its state, or start fewer environments at once",
        )
    there = hubs()
    # One that a dead daemon of several simulators left is named as it should be: those beside it are of others.
    others = "" if address in there else ", ".join(f"unix:{path}" for path in there)
    return HubNotFound(
        f"no daemon listens at {address} ({error.strerror or error})",
        hint=f"name the simulator's own hub: {others}" if others else "",
    )
