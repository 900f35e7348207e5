"""What is measured: each way of taking a step, as a function that takes many and says how long each took.

A subject joins, resets, warms up, steps, and leaves; only its steps count. All subjects step the same agent of the
same responder, but for hub environments, whose daemons keep a responder each.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ospbridge.bench.figures import timed
from ospbridge.bench.floors import one_floor
from ospbridge.bench.stage import AGENT, START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gymnasium import Env

    from ospbridge.bench.figures import Run
    from ospbridge.bench.stage import Stage

__all__ = [
    "BLOCKING_FLOOR",
    "CONDUCTOR",
    "DIRECT",
    "ENVIRONMENT",
    "FLOORS",
    "HUB",
    "IN_EPISODES",
    "NEVER_SPINNING",
    "PLAIN",
    "RAW",
    "RELAYED",
    "SPINNING_FLOOR",
    "SUBJECTS",
    "WITH_SCENARIO",
]

ENVIRONMENT: Final = "ospbridge/Agent-v0"
BLOCKING_FLOOR: Final = "blocking floor"
SPINNING_FLOOR: Final = "spinning floor"
FLOORS: Final = (BLOCKING_FLOOR, SPINNING_FLOOR)
DIRECT: Final = "direct environment"
WITH_SCENARIO: Final = "direct environment, with scenario"
WRAPPED: Final = "direct environment, wrapped"
NEVER_SPINNING: Final = "direct environment, never spinning"
CONDUCTOR: Final = "conductor, without a hub"
HUB: Final = "hub environment"
IN_EPISODES: Final = "hub environment, in episodes"
RELAYED: Final = "hub environment, relayed"
WORK: Final = {0.0005: ", 0.5 ms of work between", 0.002: ", 2 ms of work between"}
"""What a learner does between steps, in seconds, is told behind a name; its time does not count."""
RAW: Final = {
    f"{name}{told}": f"raw sockets{told}" for told in WORK.values() for name in ("raw sockets", DIRECT)
}
"""Against which such ways are held."""
PLAIN: Final = {WITH_SCENARIO: DIRECT, WRAPPED: DIRECT, RELAYED: IN_EPISODES}
"""What the subjects have in addition, another is without: their figures are also told as differences to its."""


def _floor(stage: Stage, steps: int, warm_up: int, *, spin: bool, work: float = 0.0) -> Run:
    with one_floor(stage.responder, stage.profile, stage.inputs, stage.outputs, spin=spin) as step:
        return timed(step, steps, warm_up, alone=stage.apart, work=work)


def _blocking_session(stage: Stage, steps: int, warm_up: int, *, spin: bool = True) -> Run:
    from ospbridge.session.blocking import BlockingSession

    with BlockingSession.connect(stage.responder, profile=stage.profile, spin=spin) as session:
        session.register(AGENT)
        session.reset()
        actions = {AGENT: stage.action}
        return timed(partial(session.step, actions), steps, warm_up, alone=stage.apart)


def _trio_session(stage: Stage, steps: int, warm_up: int) -> Run:
    from ospbridge.bench.conducting import run_in_trio, timed_async
    from ospbridge.session.trio_session import TrioSession

    async def run() -> Run:
        async with await TrioSession.connect(stage.responder, profile=stage.profile) as session:
            await session.register(AGENT)
            await session.reset()
            actions = {AGENT: stage.action}
            return await timed_async(lambda: session.step(actions), steps, warm_up, alone=stage.apart)

    return run_in_trio(run)


def _direct(
    stage: Stage, steps: int, warm_up: int, *, wrapped: bool = False, work: float = 0.0, **options: Any
) -> Run:
    place = {"simulator": stage.responder, "profile": stage.profile.name}
    with _environment(wrapped=wrapped, **place, **options) as env:
        step, action = env.step, stage.action
        return timed(lambda: step(action), steps, warm_up, alone=stage.apart, work=work)


def _with_scenario(stage: Stage, steps: int, warm_up: int) -> Run:
    return _direct(stage, steps, warm_up, scenario=stage.scenario)


def _conductor(stage: Stage, steps: int, warm_up: int) -> Run:
    from ospbridge.bench.conducting import conducted

    return conducted(stage, steps, warm_up)


def _hub(stage: Stage, steps: int, warm_up: int) -> Run:
    with _environment(bridge=stage.hub, wait=START) as env:
        stage.keep_daemons_apart()
        step, action = env.step, stage.action
        return timed(lambda: step(action), steps, warm_up, alone=stage.apart)


def _in_episodes(stage: Stage, steps: int, warm_up: int, *, relayed: bool = False) -> Run:
    """A step that ends an episode counts with the reset behind it, and so with what is done meanwhile."""
    with _environment(bridge=stage.relayed_hub if relayed else stage.hub_of_episodes, wait=START) as env:
        stage.keep_daemons_apart()
        action = stage.action

        def step() -> None:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

        run = timed(step, steps, warm_up, alone=stage.apart)
    if relayed:
        # What is left to be done for these is none of the next ones' time.
        stage.drain_relay()
    return run


@contextlib.contextmanager
def _environment(*, wrapped: bool = False, **options: Any) -> Iterator[Env[Any, Any]]:
    """Of the stage's agent, after its first reset; ``wrapped`` as gymnasium makes it."""
    import gymnasium

    import ospbridge  # noqa: F401  # registers the id

    made = gymnasium.make(ENVIRONMENT, agent=AGENT, **options)
    try:
        env = made if wrapped else made.unwrapped
        env.reset(seed=1)
        yield env
    finally:
        made.close()


SUBJECTS: Final[dict[str, Callable[[Stage, int, int], Run]]] = {
    BLOCKING_FLOOR: partial(_floor, spin=False),
    SPINNING_FLOOR: partial(_floor, spin=True),
    "BlockingSession": _blocking_session,
    "BlockingSession, never spinning": partial(_blocking_session, spin=False),
    "TrioSession": _trio_session,
    DIRECT: _direct,
    WITH_SCENARIO: _with_scenario,
    WRAPPED: partial(_direct, wrapped=True),
    NEVER_SPINNING: partial(_direct, spin=False),
    CONDUCTOR: _conductor,
    HUB: _hub,
    IN_EPISODES: _in_episodes,
    RELAYED: partial(_in_episodes, relayed=True),
    **{f"raw sockets{WORK[work]}": partial(_floor, spin=True, work=work) for work in WORK},
    **{f"{DIRECT}{WORK[work]}": partial(_direct, work=work) for work in WORK},
}
"""By name; floors first, and slower ways behind faster ones."""
