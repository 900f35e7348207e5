"""Joining the simulator, however long that takes: connect, take the agents; wait while there is nobody to join."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.patience import Patience
from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    ConfigurationError,
    OspBridgeError,
    SessionLost,
    SimulatorNotFound,
    VersionRefused,
)
from ospbridge.observe import logs
from ospbridge.session.trio_session import TrioSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.daemon.forcing import Forcing
    from ospbridge.daemon.settings import Settings
    from ospbridge.interface import AgentInterface
    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.budget import Budget

__all__ = ["join"]

log = logs.get(__name__)
LINGER: Final = 0.002
"""Seconds for which a step waits for its simulator before other tasks have their turn, where there is one simulator
only: the scheduler takes as long as a short step."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds: a simulator that comes back is joined within two."""


async def join(
    settings: Settings,
    *,
    number: int,
    away: bool,
    budget: Budget,
    forcing: Forcing,
    trace: TraceWriter | None,
    tally: Tally,
    report: Callable[[str], None],
) -> tuple[TrioSession, tuple[AgentInterface, ...]]:
    """A session that controls the agents asked for.

    Waits for an absent simulator, which costs nothing. What cannot be mended by waiting is raised, at the first
    time also what may be a mistake of the user's: an unknown host, agents that do not exist, are taken, or are too few.
    ``number`` counts sessions from 1. ``budget`` is given back what the loss of a session before has cost, where the
    simulator was away; ``away`` says that this has been seen already.
    """
    patience = Patience(
        settings.wait, first=FIRST_PAUSE, longest=LONGEST_PAUSE, say=partial(_waiting, settings)
    )
    first = number == 1
    away = away or first
    while True:
        error: OspBridgeError
        try:
            session = await _connected(settings, patience.left, trace, tally)
        except VersionRefused:
            raise
        except SimulatorNotFound as absent:
            error = absent
            if not away:
                away = True
                budget.give_back()
        except ConfigurationError as wrong:
            if first:
                raise
            error = wrong
        else:
            try:
                if await forcing.free(session):
                    continue
                return session, await _registered(session, settings, number=number)
            except (AgentNotFound, AgentTaken, ConfigurationError) as unfit:
                await session.aclose()
                if first:
                    raise
                error = unfit
            except OspBridgeError as broken:
                await session.aclose()
                if not budget.spend(trio.current_time()):
                    raise SessionLost(
                        f"joining {settings.simulator} failed too often: {broken.message}", hint=broken.hint
                    ) from None
                away = False
                error = broken
            except BaseException:
                await session.aclose()
                raise
        report(error.message)
        await patience.after(error)


def _waiting(settings: Settings, error: OspBridgeError, waited: float) -> None:
    log.info(
        "waiting for the simulator",
        **settings.whose,
        reason=error.message,
        hint=error.hint,
        waited=waited,
    )


async def _connected(settings: Settings, left: float, trace: TraceWriter | None, tally: Tally) -> TrioSession:
    limits = settings.limits
    if left < limits.connect:
        limits = replace(limits, connect=max(left, FIRST_PAUSE))
    return await TrioSession.connect(
        settings.simulator,
        profile=settings.profile,
        limits=limits,
        spin=settings.spin,
        linger=LINGER if settings.spin else 0.0,
        trace=trace,
        tally=tally,
    )


async def _registered(session: TrioSession, settings: Settings, *, number: int) -> tuple[AgentInterface, ...]:
    names = await session.matching(settings.agents)
    if number == 1 and len(names) < settings.quorum:
        raise ConfigurationError(
            f"a quorum of {settings.quorum} can never be met: {len(names)} agents",
            hint="lower --quorum, or take more agents with --agent",
        )
    interfaces = await session.register(*names)
    log.info(
        "joined",
        **settings.whose,
        session=number,
        profile=session.profile.name,
        agents=list(session.controlled),
        held_by_others=sorted(session.machine.foreign),
    )
    return interfaces
