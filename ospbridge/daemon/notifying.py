"""What a service manager is told: systemd's notification protocol, as ``sd_notify(3)`` has it.

A datagram to the socket that ``NOTIFY_SOCKET`` names, one ``NAME=value`` a line. Without that variable nobody asks, and
nothing is told. The protocol is stable, and its few lines need no library.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ospbridge.text import printable

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import TracebackType
    from typing import Self

__all__ = ["Notifier"]

LONGEST: Final = 500
"""Bytes of a status."""


class Notifier:
    """Takes the variables out of ``environment``: what the daemon starts must not speak for it."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = variables.pop("NOTIFY_SOCKET", "")
        interval = variables.pop("WATCHDOG_USEC", "")
        whose = variables.pop("WATCHDOG_PID", "")
        self.watchdog: float | None = None
        """Seconds within which the manager wants to hear that all is well, each time; None where it does not."""
        if interval.isdecimal() and int(interval) and whose in ("", str(os.getpid())):
            self.watchdog = int(interval) / 1e6
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def asked(self) -> bool:
        """Whether anybody wants to know."""
        return self._socket is not None

    def tell(self, **fields: str | int) -> None:
        """Send it, without waiting: a manager that cannot take it now learns of the next."""
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        text = "\n".join(f"{name}={_line(str(value))}" for name, value in fields.items())
        with suppress(OSError):
            self._socket.sendto(text.encode(errors="replace"), address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()


def _line(text: str) -> str:
    return printable(" ".join(text.split()), LONGEST)
