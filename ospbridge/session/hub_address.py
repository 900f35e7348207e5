"""Where a hub is, the stream to it, and who says hello there."""

from __future__ import annotations

import os
import socket
import sys
from functools import lru_cache
from pathlib import Path

from ospbridge.errors import ConfigurationError, HubNotFound
from ospbridge.observe.runtime import found_hub, hubs
from ospbridge.transport.addresses import NAME_SERVER
from ospbridge.transport.patient import LocalStream, PatientStream, TlsStream
from ospbridge.transport.squatting import squatter
from ospbridge.transport.tls import TlsAddress, TlsFiles, connect_tls, parse_tls
from ospbridge.transport.unix import connect_unix, parse_unix

__all__ = ["hub_address", "hub_not_found", "hub_stream", "process", "program"]


def hub_address(bridge: str | None, tls: TlsFiles | None) -> Path | TlsAddress:
    """That of ``unix:PATH`` or ``tls://HOST:PORT``; None: the default. Raises ConfigurationError."""
    if bridge is not None and not isinstance(bridge, str):
        raise ConfigurationError(
            f"{bridge!r} is not a hub's address: it is no string",
            hint="write 'unix:PATH', or 'tls://HOST:PORT' for one on another host",
        )
    if bridge is not None and bridge.startswith("tls:"):
        endpoint = parse_tls(bridge)
        return TlsAddress(endpoint, tls or TlsFiles.of(None, None, None))
    if tls is not None:
        raise ConfigurationError(
            "certificates were given, but the bridge is on this host", hint="name the hub as tls://HOST:PORT"
        )
    if bridge is not None and "://" in bridge:
        raise ConfigurationError(
            f"{bridge!r} is not a hub's address",
            hint="write unix:PATH for a daemon on this host, tls://HOST:PORT for one on another",
        )
    return _usual_hub() if bridge is None else parse_unix(bridge)


def _usual_hub() -> Path:
    """No daemon of ours listens in a directory that somebody else has made: whoever does is not believed."""
    path = found_hub()
    if (user := squatter(path.parent)) is not None:
        raise ConfigurationError(
            f"the hub would be in {path.parent}, which belongs to user {user}: whatever listens there is not believed",
            hint="set XDG_RUNTIME_DIR to a directory of your own, the same as for the daemon, or name the hub",
        )
    return path


def hub_stream(address: Path | TlsAddress, seconds: float) -> PatientStream:
    """Connected; another host has so many seconds to accept.

    Raises OSError where nobody listens, and ConfigurationError for certificates that do not fit.
    """
    if isinstance(address, Path):
        return LocalStream(connect_unix(address))
    return TlsStream(connect_tls(address, seconds))


def hub_not_found(address: Path | TlsAddress, error: OSError) -> HubNotFound:
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


def program() -> str:
    """What people call this process."""
    path = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path("python")
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name.encode("utf-8", "replace").decode() if name.strip("-c") else "python"


def process() -> str:
    """What tells this process from all others, wherever they are: a number alone is another one's in each container."""
    return _token(os.getpid())


@lru_cache(maxsize=1)
def _token(_pid: int) -> str:
    """Of the process of that number; a forked child has one of its own."""
    return os.urandom(16).hex()
