"""What a service manager and companions are told: systemd's notification protocol, and the whole daemon at a glance.

A notification, as ``sd_notify(3)`` has it, is a datagram to the socket that ``NOTIFY_SOCKET`` names, one ``NAME=value``
a line. The proof of life comes out of the event loop itself, so that one which does not turn any more gives none; and
only where no step and no reset has been under way for longer than its limits allow. Whoever waits, for a simulator, an
upstream or an environment, is alive.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.observe import logs
from ospbridge.text import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.hub.server import HubServer
    from ospbridge.daemon.relay.relay import Relay
    from ospbridge.hub.status import StatusReply

__all__ = ["Notifier", "Overlook", "reloading", "supervise"]

log = logs.get(__name__)
LONGEST: Final = 500
"""Bytes of a status."""
EVERY: Final = 1.0
"""Seconds between looks, at most."""
SLACK: Final = 30.0
"""Seconds by which a step may go beyond all of its limits before it is said to hang."""


class Overlook:
    """Reads, and changes nothing. One server for each conductor, in the same order."""

    def __init__(
        self, conductors: Sequence[Conductor], servers: Sequence[HubServer], relays: Sequence[Relay]
    ) -> None:
        self.conductors = conductors
        self.relays = relays
        self._servers = servers

    def statuses(self) -> list[StatusReply]:
        """One of each simulator."""
        return [server.status() for server in self._servers]

    def hanging(self, now: float) -> list[str]:
        """Simulators whose step or reset is under way for longer than any may take. Waiting is no hanging."""
        return [c.settings.title for c in self.conductors if _hangs(c, now)]

    def summary(self) -> str:
        """One line for whoever asks how the service is."""
        told = [self._simulators(), self._agents()]
        for relay in self.relays:
            status = relay.status
            told.append(f"upstream {status.address} {status.trouble or 'connected'}")
        return "; ".join(told)

    def _simulators(self) -> str:
        if len(self.conductors) == 1:
            (conductor,) = self.conductors
            return f"simulator {conductor.settings.title} {conductor.supervisor.connection.text}"
        away = [
            f"{conductor.settings.title} {conductor.supervisor.connection.text}"
            for conductor in self.conductors
            if not conductor.ready
        ]
        joined = (
            f"{len(self.conductors) - len(away)} of {pluralize(len(self.conductors), 'simulator')} joined"
        )
        return "; ".join([joined, *away])

    def _agents(self) -> str:
        held = [agent for conductor in self.conductors for agent in conductor.lockstep.held.values()]
        driven = sum(bool(agent.attachments) for agent in held)
        return f"{driven} of {pluralize(len(held), 'agent')} driven"


def _hangs(conductor: Conductor, now: float) -> bool:
    since = conductor.supervisor.busy_since
    if since is None:
        return False
    limits, lockstep = conductor.settings.limits, conductor.lockstep
    steps = 1 + lockstep.action_repeat + lockstep.settle_steps
    longest = limits.reset + limits.step * steps + limits.query * (1 + len(lockstep.held))
    return now - since > 2 * longest + SLACK


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

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _line(text: str) -> str:
    return printable(" ".join(text.split()), LONGEST)


async def supervise(notifier: Notifier, overlook: Overlook) -> None:
    """Until cancelled. Returns at once where nobody wants to know."""
    if not notifier.asked:
        return
    every = EVERY if notifier.watchdog is None else min(EVERY, notifier.watchdog / 3)
    said = ""
    hung: list[str] = []
    while True:
        hanging = overlook.hanging(trio.current_time())
        if hanging != hung:
            hung = hanging
            if hung:
                log.error(
                    "a step does not come to its end, and no limit ends it",
                    simulators=hung,
                    hint="the service manager restarts the daemon; please report what led to it",
                )
        if notifier.watchdog is not None and not hung:
            notifier.tell(WATCHDOG=1)
        summary = overlook.summary()
        if summary != said:
            said = summary
            notifier.tell(STATUS=summary)
        await trio.sleep(every)


def reloading(notifier: Notifier, reload: Callable[[], None]) -> None:
    """Do it, and let the manager know how long that takes."""
    notifier.tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
    try:
        reload()
    finally:
        notifier.tell(READY=1)
