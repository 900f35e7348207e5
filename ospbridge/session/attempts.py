"""How often one reset is tried before its error is the user's.

A session that was lost is rebuilt, and the reset tried once more. Where the network repeats datagrams, or brings them
late, a first step in doubt says nothing of the next one: that is tried more often, and costs nothing of what rebuilds
may cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import StepUncertain

if TYPE_CHECKING:
    from ospbridge.errors import OspBridgeError
    from ospbridge.osp.client.machine import ClientMachine

__all__ = ["Attempts", "costs_nothing"]

TRIES: Final = 2
"""Of a reset that finds the session lost."""
BEGINNINGS: Final = 10
"""Of one whose steps are in doubt because the network repeats datagrams, or brings them late."""


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

    def go_on(self, *, free: bool) -> bool:
        """A try has failed, which costs nothing where it is ``free``: whether there may be another one."""
        if free:
            self._in_doubt += 1
        else:
            self._lost += 1
        return self._lost < TRIES and self._in_doubt < BEGINNINGS
