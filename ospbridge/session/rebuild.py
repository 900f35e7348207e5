"""When a lost session is rebuilt: how often, at what cost, how long somebody waits, and whether the simulator was away.

A lost session is rebuilt, and the reset tried once more. A bucket that refills slowly keeps loops from going on for
ever. A simulator that was away, because it died or was started anew, costs nothing: who waits for it runs in no loop.
Nor does a step in doubt since datagrams come twice or late: tries of one reset are counted, and between resets there
are steps.
"""

from __future__ import annotations

import socket
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError, SimulatorNotFound, StepUncertain
from ospbridge.osp.timing import RESTART_SETTLES
from ospbridge.transport.udp import LARGEST_DATAGRAM, closed_port_probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.errors import OspBridgeError
    from ospbridge.interface import Endpoint
    from ospbridge.osp.client import ClientMachine

__all__ = ["Attempts", "Awaiting", "Budget", "PortProbe", "costs_nothing"]

CAPACITY: Final = 10
SECONDS_EACH: Final = 60.0
TRIES: Final = 2
"""Of a reset that finds the session lost."""
BEGINNINGS: Final = 10
"""Of one whose steps are in doubt because the network repeats datagrams, or brings them late."""
SAID_AFTER: Final = 3.0
"""Seconds: who is back sooner was hardly missed."""
SAID_AGAIN_AFTER: Final = 60.0
"""Seconds until it is said a second time; from then on twice as long each time."""
LOOK_EVERY: Final = 0.02
"""Seconds between looks at whether a port is closed."""


class Budget:
    """``capacity`` rebuilds at once, and one more each minute. Time is an argument."""

    def __init__(self, now: float, *, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._left = float(capacity)
        self._counted = now

    def spend(self, now: float) -> bool:
        """Take one; False where none is left."""
        self._left = min(self.capacity, self._left + (now - self._counted) / SECONDS_EACH)
        self._counted = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        """The latest one was needed because the simulator was away; or an episode has ended by itself."""
        self._left = min(self.capacity, self._left + 1.0)


def costs_nothing(error: OspBridgeError, machine: ClientMachine) -> bool:
    """Whether a session that is given up for ``error`` is rebuilt without counting: the network's doing, or a user's.

    Not where each session leaves a handler behind at the simulator.
    """
    in_doubt = isinstance(error, StepUncertain) and (error.by_network or error.interrupted)
    return in_doubt and machine.may_say_goodbye


class Attempts:
    """The tries of one reset."""

    def __init__(self) -> None:
        self._lost = 0
        self._in_doubt = 0

    def again(self, *, free: bool) -> bool:
        """A try has failed, which costs nothing where it is ``free``: whether there may be another one."""
        if free:
            self._in_doubt += 1
        else:
            self._lost += 1
        return self._lost < TRIES and self._in_doubt < BEGINNINGS


class Awaiting:
    """A wait of ``wait`` seconds at most, which begins now.

    ``say(text)`` is called where it is time for a word: once that takes a while, and then ever more rarely.
    """

    def __init__(self, wait: float, say: Callable[[str], object] | None) -> None:
        self._began = monotonic()
        self._wait = wait
        self._say = say
        self._said_at = self._began + SAID_AFTER
        self._silence = SAID_AGAIN_AFTER

    @property
    def waited(self) -> float:
        """Seconds until now."""
        return monotonic() - self._began

    def mention(self, error: OspBridgeError) -> None:
        """It goes on: ``error`` says why."""
        now = monotonic()
        if self._say is None or now < self._said_at:
            return
        self._said_at = now + self._silence
        self._silence *= 2
        left = max(self._began + self._wait - now, 0.0)
        self._say(f"still waiting, for {left:.0f} s at most: {error}")


class PortProbe:
    """Whether a simulator whose handler is gone ended itself, or only this session: its main port tells them apart.

    The first costs nothing and is joined as soon as it is back. The second may be a restart of the communication, and a
    server that is joined at once may die of it. Made at the moment at which a session is found to be over, and asked
    later. ``server`` is the simulator's address, resolved.
    """

    def __init__(self, server: Endpoint) -> None:
        self._settled_at = monotonic() + RESTART_SETTLES
        self._probe: socket.socket | None = None
        self._closed = False
        try:
            self._probe = closed_port_probe(server)
        except (ConfigurationError, SimulatorNotFound):
            # No way there: joining will say why.
            self._closed = True
        except OSError:
            # No descriptor is left: nothing can be seen.
            pass
        self._looks_open()

    def was_away(self) -> bool:
        """Whether the simulator was away, without delay; else False, once it may be joined again: so long it blocks."""
        while self._looks_open() and (left := self._settled_at - monotonic()) > 0:
            sleep(min(left, LOOK_EVERY))
        self.close()
        return self._closed

    def close(self) -> None:
        """Forget it. Twice is once."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _looks_open(self) -> bool:
        """Nothing says that it is closed: the throw-away datagram has met no closed port so far."""
        if self._probe is not None and not self._closed:
            try:
                self._probe.recv(LARGEST_DATAGRAM)
            except BlockingIOError:
                pass
            except OSError:
                self._closed = True
        return not self._closed
