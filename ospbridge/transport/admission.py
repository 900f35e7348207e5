"""What servers of ours check before they serve somebody, and how their TCP connections are set."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from ospbridge.transport.addresses import is_ip

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    import trio

AnySocket = TypeVar("AnySocket", bound="socket.socket | trio.socket.SocketType")

KEEPALIVE: Final = {
    socket.TCP_NODELAY: 1,
    socket.TCP_KEEPIDLE: 10,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 4,
}
"""After 10 s of silence the kernel asks every 5 s whether the other host is still there, four times at most."""
BROKEN_AFTER: Final = 30_000
"""Milliseconds of silence after which a connection counts as broken."""


class VisitorLimit:
    """At most ``most`` visitors at a time whom nobody knows yet.

    To come in costs nothing, so that one host could take all the room again and again. Where there is none left, the
    host that takes most of it yields to another one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: dict[trio.CancelScope, str] = {}
        """The host of each, who came first first."""

    def enter(self, host: str) -> trio.CancelScope | None:
        """What a visitor is to be served in, which is cancelled where it has to yield; None where there is no room.

        Say ``leave`` with it then.
        """
        # Whoever only looks at directories does without.
        import trio

        if len(self._inside) >= self._most:
            counts = Counter(self._inside.values())
            ((largest, count),) = counts.most_common(1)
            if count <= counts[host] + 1:
                return None
            first = next(scope for scope, of in self._inside.items() if of == largest)
            self.leave(first)
            first.cancel()
        scope = trio.CancelScope()
        self._inside[scope] = host
        return scope

    def leave(self, scope: trio.CancelScope) -> None:
        """It takes no room any more. Safe to call again."""
        self._inside.pop(scope, None)


def names_us(host: str, also: Container[str] = ()) -> bool:
    """Whether a Host header names us. Ports are left aside: a tunnel may lead here from another one.

    A page in the user's browser could read ours by a name that suddenly resolves to this host (DNS rebinding). So only
    names known to be ours are served: IP addresses, localhost, this host's name, and those added for a proxy.
    """
    name = host_name(host)
    if name is None:
        return False
    if name == "localhost" or name in also:
        return True
    own = socket.gethostname().lower()
    return name in (own, own.partition(".")[0], f"{own}.local") or is_ip(name)


def host_name(host: str) -> str | None:
    """The name in a Host header, in lower case; None where there is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for what is none
    except ValueError:
        return None
    if parts.netloc != host or "@" in host or parts.path:
        return None
    return (parts.hostname or "").rstrip(".") or None


def squatter(directory: Path) -> int | None:
    """The other user who made ``directory``, or a link of its name, where everybody may make one; None for nobody.

    Its owner may replace whatever is put into it, and another user may have been there first, as under /tmp.
    """
    try:
        owner, above = directory.lstat().st_uid, directory.parent.stat().st_mode
    except OSError:
        return None
    return owner if above & stat.S_IWOTH and owner not in {0, os.geteuid()} else None


@contextlib.contextmanager
def closed_on_error(sock: AnySocket) -> Iterator[AnySocket]:
    """A socket that is closed where what it is made ready for fails."""
    try:
        yield sock
    except BaseException:
        sock.close()
        raise


def set_keepalive(sock: socket.socket | trio.socket.SocketType) -> None:
    """Have a TCP connection send at once, and notice a host that vanished without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    with contextlib.suppress(OSError):  # not every network stack has it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, BROKEN_AFTER)
