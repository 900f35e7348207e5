"""Whether a simulator whose handler is gone ended itself, or only this session: its main port tells them apart.

The first costs nothing and is joined as soon as it is back. The second may be a restart of the communication, and a
server that is joined at once may die of it.
"""

from __future__ import annotations

import select
import socket
from math import ceil
from time import monotonic, sleep
from typing import TYPE_CHECKING

import trio

from ospbridge.errors import ConfigurationError, SimulatorNotFound
from ospbridge.osp.timing import RESTART_SETTLES
from ospbridge.transport.udp import LARGEST_DATAGRAM, closed_port_probe

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

__all__ = ["Absence"]


class Absence:
    """A look at the main port at the moment at which a session is found to be over; ask later what it has shown.

    ``server`` is the simulator's address, resolved.
    """

    def __init__(self, server: Endpoint) -> None:
        self._begun = monotonic()
        self._probe: socket.socket | None = None
        try:
            self._probe = closed_port_probe(socket.AF_INET6 if ":" in server.host else socket.AF_INET, server)
        except (ConfigurationError, SimulatorNotFound):
            # No way there: joining will say why.
            self._closed = True
        except OSError:
            # No descriptor is left: nothing can be seen.
            self._closed = False
        else:
            self._closed = self._refused()

    def settled(self) -> bool:
        """Whether the simulator was away, without delay; else False, once it may be joined again."""
        try:
            while not self._closed and (left := self._left) > 0:
                if self._probe is None:
                    sleep(left)
                    break
                waiting = select.poll()
                waiting.register(self._probe, select.POLLIN)
                waiting.poll(ceil(left * 1000))
                self._closed = self._refused()
        finally:
            self.close()
        return self._closed

    async def settle(self) -> bool:
        """``settled`` for a trio task."""
        try:
            while not self._closed and (left := self._left) > 0:
                if self._probe is None:
                    await trio.sleep(left)
                    break
                with trio.move_on_after(left):
                    await trio.lowlevel.wait_readable(self._probe)
                self._closed = self._refused()
        finally:
            self.close()
        return self._closed

    @property
    def _left(self) -> float:
        """Seconds until it may be joined."""
        return self._begun + RESTART_SETTLES - monotonic()

    def close(self) -> None:
        """Forget it. Twice is once."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _refused(self) -> bool:
        """Whether the throw-away datagram has met a closed port. A server that answers it is there."""
        assert self._probe is not None
        try:
            self._probe.recv(LARGEST_DATAGRAM)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False
