"""Joining the simulator, however long that takes: connect, take the agents; wait while it, or one of them, is away."""

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
    SimulatorNotStarted,
    VersionRefused,
)
from ospbridge.interface import chosen
from ospbridge.observe import logs
from ospbridge.session.trio_session import TrioSession
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.daemon.forcing import Forcing
    from ospbridge.daemon.launching import SimulatorLauncher
    from ospbridge.daemon.settings import Settings
    from ospbridge.interface import AgentInterface
    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.rebuild import Budget

__all__ = ["awaited", "join"]

log = logs.get(__name__)
LINGER: Final = 0.002
"""Seconds for which a step waits for its simulator before other tasks have their turn, where there is one simulator
only: the scheduler takes as long as a short step."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds: a simulator that comes back is joined within two."""
LONGEST_PAUSE_FOR_AGENTS: Final = 5.0
"""Seconds: each look at which agents there are is a session of its own, which the simulator opens and closes."""
SHORTEST_TRY: Final = 0.5
"""Seconds for an answer to INIT, however little is left: a real server takes a tenth of one."""


async def join(
    settings: Settings,
    *,
    number: int,
    away: bool,
    budget: Budget,
    forcing: Forcing,
    trace: TraceWriter | None,
    tally: Tally,
    report: Callable[[OspBridgeError], None],
    launcher: SimulatorLauncher | None = None,
) -> tuple[TrioSession, tuple[AgentInterface, ...]]:
    """A session that controls the agents asked for.

    Waits for an absent simulator, which costs nothing, and for one without agents: who starts a daemon before the
    simulator has loaded its scene is no worse off than who starts it before the simulator. What cannot be mended by
    waiting is raised, at the first time also what may be a mistake of the user's: an unknown host, fewer agents than a
    quorum, and, unless the settings say how long to wait, agents that do not exist or are taken. ``number`` counts
    sessions from 1. ``budget`` is given back what the loss of a session before has cost, where the simulator was away;
    ``away`` says that this has been seen already. ``report`` is called with what is in the way. ``launcher`` starts
    the simulator, each time that it does not run; what keeps it from that at first is raised.
    """
    patience = Patience(
        settings.wait, first=FIRST_PAUSE, longest=LONGEST_PAUSE, say=partial(_waiting, settings)
    )
    first = number == 1
    away = away or first
    while True:
        error: OspBridgeError
        try:
            if launcher is not None:
                await launcher.ensure(budget)
            session = await _connected(settings, patience.left, trace, tally, launcher)
        except VersionRefused:
            raise
        except SimulatorNotFound as absent:
            error = absent
            if not away:
                away = True
                budget.give_back()
        except (ConfigurationError, SimulatorNotStarted) as wrong:
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
                if first and _mistaken(unfit, settings, session):
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
        report(error)
        longest = LONGEST_PAUSE_FOR_AGENTS if awaited(error) == "agents" else LONGEST_PAUSE
        await patience.after(error, longest=longest)


def awaited(error: OspBridgeError) -> str:
    """What is waited for that ``join`` reports as missing."""
    return "agents" if isinstance(error, (AgentNotFound, AgentTaken)) else "the simulator"


def _mistaken(error: OspBridgeError, settings: Settings, session: TrioSession) -> bool:
    """It is likely to be the user's mistake.

    Agents are, where the scene is loaded and nothing says that they are to be waited for: a name may be mistyped.
    """
    return awaited(error) != "agents" or (settings.wait is None and bool(session.core.agents))


def _waiting(settings: Settings, error: OspBridgeError, waited: float) -> None:
    told = {"reason": error.message, "hint": error.hint, "waited": waited}
    if awaited(error) == "agents":
        # It may be that nobody will ever bring them: a name may be mistyped.
        log.warning("waiting for agents", **settings.whose, **told)
    else:
        log.info("waiting for the simulator", **settings.whose, **told)


async def _connected(
    settings: Settings,
    left: float,
    trace: TraceWriter | None,
    tally: Tally,
    launcher: SimulatorLauncher | None,
) -> TrioSession:
    limits = settings.limits
    # Without waiting there is one try, which the limit of a try is for.
    if settings.wait and left < limits.connect:
        limits = replace(limits, connect=max(left, SHORTEST_TRY))
    connect = partial(
        TrioSession.connect,
        settings.simulator,
        profile=settings.profile,
        limits=limits,
        spin=settings.spin,
        linger=LINGER if settings.spin else 0.0,
        trace=trace,
        tally=tally,
    )
    try:
        return await (connect() if launcher is None else launcher.while_alive(connect))
    except OSError as error:
        # Of this moment, as where no descriptor is left, or an interface has just gone down.
        raise ConfigurationError(
            f"cannot open a socket to {settings.simulator}: {error.strerror or error}",
            hint="see how many descriptors the daemon may have (`ulimit -n`, LimitNOFILE), and the network",
        ) from None


def _too_few(session: TrioSession, settings: Settings, *, free: Sequence[str]) -> OspBridgeError:
    """Fewer agents are free than must wait for the first reset: others may let go of theirs, or there are no more."""
    there = {entry.name for entry in session.core.agents}
    wanted = chosen(sorted(there), settings.agents) if settings.agents else sorted(there)
    if len(wanted) < settings.quorum:
        return ConfigurationError(
            f"a quorum of {settings.quorum} can never be met: {pluralize(len(wanted), 'agent')}",
            hint="lower --quorum, or take more agents with --agent",
        )
    taken = [name for name in wanted if name not in free]
    return AgentTaken(
        f"a quorum of {settings.quorum} needs more than the "
        f"{pluralize(len(free), 'agent')} of {session.server} that are free; "
        f"controlled by other clients: {listed(taken)}",
        agents=taken,
    )


async def _registered(session: TrioSession, settings: Settings, *, number: int) -> tuple[AgentInterface, ...]:
    names = await session.matching(settings.agents)
    if number == 1 and len(names) < settings.quorum:
        raise _too_few(session, settings, free=names)
    interfaces = await session.register(*names)
    log.info(
        "joined",
        **settings.whose,
        session=number,
        profile=session.profile.name,
        agents=list(session.controlled),
        held_by_others=sorted(session.machine.foreign),
    )
    if settings.meant and not any(match.fits(agent) for match in settings.meant for agent in interfaces):
        # Its reward would be missed only when a policy has learned nothing.
        log.warning(
            "the scenario matches no agent",
            **settings.whose,
            matches=[str(match) for match in settings.meant],
            agents=list(session.controlled),
            hint="`ospbridge check FILE --simulator HOST:PORT` tells what does not fit",
        )
    return interfaces
