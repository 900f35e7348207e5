"""What an environment wants of its session, and how long one is tried to be had on these terms."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from gymnasium import logger

from ospbridge.errors import AgentNotFound, ConfigurationError, SimulatorNotFound
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.rebuild import Awaiting
from ospbridge.text import LINE, printable
from ospbridge.transport.addresses import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import Endpoint
    from ospbridge.launch.simulator import LaunchedSimulator
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.timing import Limits
    from ospbridge.session.rebuild import Budget

__all__ = ["Terms", "connect", "once_they_are_there", "say"]

T = TypeVar("T")
BACKOFF: Final = (0.05, 1.0)
"""Seconds between tries to reach a simulator that is away: first, longest."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an environment wants of its session: of the simulator the same as those it shares it with."""

    simulator: Endpoint
    """Resolved when the environment was made, to tell simulators apart."""
    named: Endpoint
    """As it was given: a simulator that is started anew may have another address under the same name."""
    profile: str
    limits: Limits
    spin: bool
    wait: float
    """Seconds to wait for a simulator that is not there, or has no agents at all."""

    @property
    def address(self) -> Endpoint:
        """Where the simulator is by now."""
        try:
            return resolve(self.named)[1]
        except (ConfigurationError, SimulatorNotFound):
            # No name server answers, as where all of that network starts anew.
            return self.simulator


def say(text: str) -> None:
    """What is waited for, to the user."""
    logger.warn("%s", printable(text, LINE))


def connect(
    terms: Terms,
    trace: TraceWriter | None,
    *,
    wait: float,
    budget: Budget | None = None,
    launched: LaunchedSimulator | None = None,
) -> BlockingSession:
    """A session, for ``wait`` seconds where no simulator is there. Raises as ``BlockingSession.connect`` does.

    ``budget`` is given back what a rebuild has cost, where the simulator was away. A wait that takes a while is told.
    SimulatorNotStarted: it was ``launched``, and has ended or does not answer.
    """
    give_up = monotonic() + wait
    awaiting = Awaiting(wait, say)
    pause, longest = BACKOFF
    while True:
        try:
            return BlockingSession.connect(
                terms.address,
                profile=terms.profile,
                limits=terms.limits,
                spin=terms.spin,
                trace=trace,
                ended=None if launched is None else lambda: not launched.alive,
            )
        except SimulatorNotFound as error:
            if launched is not None and launched.has_ended():
                raise launched.error("ended before it answered") from None
            if budget is not None:
                budget.give_back()
                budget = None
            if monotonic() + pause >= give_up:
                if launched is not None:
                    raise launched.error(f"does not answer as an OSP server: {error.message}") from None
                error.after(awaiting.waited)
                raise
            awaiting.mention(error)
        sleep(pause)
        pause = min(2 * pause, longest)


def once_they_are_there(
    find: Callable[[], T], give_up: float, *, unless: Callable[[], bool] = lambda: False
) -> T:
    """What is found of agents: a simulator that was just started answers before it has loaded its scene.

    ``unless``: whether there is nothing to wait for, since one that has agents is not about to load others.
    """
    pause, longest = BACKOFF
    awaiting = Awaiting(give_up - monotonic(), say)
    while True:
        try:
            return find()
        except AgentNotFound as error:
            if unless():
                raise
            if monotonic() + pause >= give_up:
                error.after(awaiting.waited)
                raise
            awaiting.mention(error)
        sleep(pause)
        pause = min(2 * pause, longest)
