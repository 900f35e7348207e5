"""Probes of resets: D8, D9, D10, D11, D22."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.diagnosis.reading import AGAINST, ROUNDS, mostly
from ospbridge.errors import OspBridgeError, QueryTimeout
from ospbridge.osp.messages import (
    ResetSimulation,
    ResetSimulationAck,
    ResetSimulationCompleted,
    ResetSimulationCompletedAck,
    SetValue,
    SetValueAck,
    StepCompleted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ospbridge.diagnosis.stage import Stage
    from ospbridge.interface import AgentInterface, ValueEntry

__all__ = ["completion_code", "observer_resets", "observer_told", "seed", "votes_survive"]

SEEDS: Final = (11, 22, 11, 22, 22, 11)
"""In no order that anything else follows by itself, such as what differs from one reset to the next."""
FEWEST: Final = 3
"""Resets that tell where all numbers follow the seed, or none."""
SEED_VALUE: Final = "/Simulation/Seed"


def completion_code(stage: Stage) -> Finding:
    """D8: the code of the reset notification."""
    with stage.controlling(1):
        told = stage.reset(1)
    if isinstance(told, ResetSimulationCompleted):
        return seen("a completed reset is told with code 75")
    return not_seen("a completed reset is told with code 76")


def observer_told(stage: Stage) -> Finding:
    """D9: whether a client without agents is told of a reset, and has to acknowledge it."""
    told = 0

    def unacknowledged() -> bool:
        nonlocal told
        with stage.second_client() as observer, stage.controlling(1):
            stage.reset(1)
            notice = observer.heard(ResetSimulationCompleted, ResetSimulationCompletedAck, wait=stage.unfired)
            if notice is None:
                return False
            told += 1
            if observer.eats():
                return True
            stage.acknowledge_reset(observer, notice.message)
            return False

    if mostly(unacknowledged):
        return seen(
            "a client without agents is told of a reset; without its answer its next datagram is lost"
        )
    if told:
        return not_seen("a client without agents is told of a reset, and need not answer")
    return not_seen(f"a client without agents is not told of a reset ({AGAINST} resets)")


def seed(stage: Stage) -> Finding:
    """D10: whether the seed of RESET_SIMULATION decides how the world begins."""
    with stage.controlling(1) as agents:
        by_reset = _decides(lambda number: _begin(stage, agents, number))
        if by_reset:
            return not_seen("equal seeds of RESET_SIMULATION begin alike, others do not")
        value = stage.value_named(SEED_VALUE)
        if value is None:
            return not_tried(f"no output or info depends on RESET's seed, and there is no {SEED_VALUE}")
        before = stage.content(value)
        try:
            by_value = _decides(lambda number: _begin(stage, agents, 0, (value, number)))
            kept = stage.content(value)
        finally:
            with suppress(OspBridgeError):
                stage.line.ask(SetValue(value.id, before), SetValueAck)
    if by_value:
        return seen(f"the seed of RESET_SIMULATION decides nothing; {SEED_VALUE} does")
    if by_reset is by_value is None:
        return not_tried("nothing here depends on a seed: every episode begins alike")
    return not_tried(
        f"this world begins as it likes: neither RESET's seed nor {SEED_VALUE} (now {kept}) decides how"
    )


def _decides(begin: Callable[[int], NDArray[np.uint32]]) -> bool | None:
    """Whether a number of the first completion follows the seed; None if all are the same whatever the seed.

    Others may follow a clock, a counter, or chance.
    """
    begins: dict[int, list[NDArray[np.uint32]]] = {number: [] for number in SEEDS}
    for count, number in enumerate(SEEDS, 1):
        begins[number].append(begin(number))
        if count < FEWEST:
            continue
        alike = [np.all([row == rows[0] for row in rows], axis=0) for rows in begins.values()]
        first, other = (rows[0] for rows in begins.values())
        follows = alike[0] & alike[1] & (first != other)
        if not follows.any():
            return None if np.all(alike) and np.array_equal(first, other) else False
        if count == FEWEST and alike[0].all():
            return True
    return True


def _begin(
    stage: Stage,
    agents: Sequence[AgentInterface],
    number: int,
    set_value: tuple[ValueEntry, int] | None = None,
) -> NDArray[np.uint32]:
    """The numbers of the first completion after a reset with a seed, or with a variable set before it, bit for bit."""
    if set_value is not None:
        value, content = set_value
        stage.line.ask(SetValue(value.id, str(content)), SetValueAck)
    stage.reset(len(agents), number)
    message = stage.step(agents)[0].message
    assert isinstance(message, StepCompleted)
    return np.concatenate([message.outputs, message.infos]).view(np.uint32)


def observer_resets(stage: Stage) -> Finding:
    """D11: whether the reset request of a client without agents counts."""
    with stage.second_client() as observer, stage.controlling(1):
        stage.reset(1)
        stage.reset_told(observer, stage.unfired)
        # A doubled notification of that reset must not be taken for one of the next.
        stage.line.drain()
        for _ in range(ROUNDS):
            observer.send(ResetSimulation(0))
            confirmed = observer.heard(ResetSimulationAck) is not None
            if stage.reset_told(stage.line, stage.unfired) is not None:
                stage.reset_told(observer, stage.unfired)
                return seen("a client without agents resets the world of one who controls the only agent")
            if confirmed:
                return not_seen("the request of a client without agents is acknowledged and does nothing")
    return not_seen(
        f"the request of a client without agents is not answered, and does nothing ({ROUNDS} tries)"
    )


def votes_survive(stage: Stage) -> Finding:
    """D22: whether a step request made before a reset still counts after it."""
    for _ in range(ROUNDS):
        with stage.controlling(2) as (one, other):
            stage.reset(2)
            if not stage.vote(one):
                continue
            stage.reset(2)
            if not stage.vote(other):
                continue
            fired = stage.completion(stage.unfired) is not None
            if not fired:
                # Clean up: with this vote the step of both is complete.
                stage.vote(one)
            for _ in range(1 if fired else 2):
                if stage.completion() is None:
                    raise QueryTimeout(
                        f"{stage.server} did not complete a step that was asked for of all agents"
                    )
            if fired:
                return seen("a step request from before a reset completes a step after it")
            return not_seen("a step request from before a reset counts no more after it")
    raise QueryTimeout(f"{stage.server} acknowledged no step request in {ROUNDS} tries")
