"""Probes of steps: D14, D15, D18, D21."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.diagnosis.reading import ROUNDS
from ospbridge.diagnosis.stage import neutral
from ospbridge.diagnosis.values import cut_list, forget, observing
from ospbridge.errors import QueryTimeout
from ospbridge.osp.messages import StepCompleted
from ospbridge.osp.restore import find_interface_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.diagnosis.stage import Stage
    from ospbridge.interface import AgentInterface, InterfaceValue

__all__ = ["cut_completion", "first_step", "outputs_in_range", "pushed_values"]

HEADER: Final = 21
"""Bytes of a completion in front of its values."""
LARGE: Final = 251
"""Outputs and infos of which a NERD server sends only a part."""
REST: Final = 10
"""Steps at neutral."""
MOVE: Final = 40
"""Steps at the ends of the inputs' ranges."""
LONGEST: Final = 20.0
"""Seconds for all of them; a slow world is watched for fewer steps."""
LOST: Final = 10
"""Of them may be lost."""


def first_step(stage: Stage) -> Finding:
    """D21: what a step does before any reset.

    Where this kind of server was never reset, the first step loses its inputs, which is seen in the repository.
    """
    with stage.controlling(1) as agents:
        agent = agents[0]
        inputs = _away_from(neutral(agent), agent)
        for _ in range(ROUNDS):
            counted = stage.vote(agent, inputs)
            ran = stage.completion(stage.barrier if counted else stage.unfired) is not None
            if counted or ran:
                break
        else:
            stage.reset(1)
            stage.step(agents, inputs)
            return not_seen("a step without a reset before it is not answered; after a reset it is")
        if not ran:
            return not_tried("a step without a reset before it was acknowledged and never completed")
        name = agent.inputs[0].name if agent.inputs else ""
        (value_id,) = find_interface_values(stage.values(), agent.name, [name])
        entry = next((value for value in stage.values() if value.id == value_id), None)
        if entry is None:
            return not_tried(
                "a step ran; whether it was the first of all cannot be told: no input can be read"
            )
        first = stage.content(entry)
        stage.step(agents, inputs)
        second = stage.content(entry)
    if first != second:
        return seen(
            f"the first step of all ran without a reset, and lost its inputs ({entry.name} read {first}, then {second})"
        )
    return not_tried(
        "a step ran; whether the world was reset before it cannot be told: start the simulator anew to find out"
    )


def _away_from(rest: NDArray[np.float32], agent: AgentInterface) -> NDArray[np.float32]:
    """Inputs between neutral and an end of their range."""
    ends = np.array(
        [value.max if value.max != at else value.min for value, at in zip(agent.inputs, rest, strict=True)]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        halfway = np.where(np.isfinite(ends), (rest + ends) / 2, rest + 1.0)
    return halfway.astype(np.float32)


def pushed_values(stage: Stage) -> Finding:
    """D14: whether observed variables follow a completion."""
    with stage.controlling(1) as agents:
        stage.reset(1)
        observed = observing(stage, stage.values())
        if not observed:
            return not_tried("no registration for a variable was confirmed")
        replies = [stage.step(agents)[0] for _ in range(2)]
        forget(stage, observed)
    counts = []
    for reply in replies:
        assert isinstance(reply.message, StepCompleted)
        counts.append(reply.message.observed)
    detail = f"{len(observed)} observed, {counts[-1]} told of with a step"
    return not_seen(detail) if any(counts) else seen(detail)


def cut_completion(stage: Stage) -> Finding:
    """D15: whether a datagram above 1024 bytes is cut; by a list of ids, else by an agent that is large enough."""
    found = cut_list(stage)
    if found is not None:
        return found
    if stage.taken_by_others():
        return not_tried("there are too few variables to ask for, and other clients control agents")
    for entry in stage.agents():
        agent = stage.interface(entry)
        count = len(agent.outputs) + len(agent.infos)
        if count < LARGE:
            continue
        stage.line.take(entry)
        try:
            stage.reset(1)
            (reply,) = stage.step([agent])
        finally:
            stage.line.give_back()
        detail = f"a completion of {count} values has {len(reply.data)} of {HEADER + 4 * count} bytes"
        return seen(detail) if len(reply.data) < HEADER + 4 * count else not_seen(detail)
    return not_tried(
        "nothing is long enough: no agent has over 250 outputs and infos, nor are there 256 variables"
    )


def outputs_in_range(stage: Stage) -> Finding:
    """D18: whether outputs and infos stay in their announced ranges."""
    with stage.controlling(1) as agents:
        agent = agents[0]
        told = (*agent.outputs, *agent.infos)
        if not any(np.isfinite((value.min, value.max)).all() for value in told):
            return not_tried(f"agent {agent.name} announces no range")
        stage.reset(1)
        rest = neutral(agent)
        lost = 0
        steps = 0
        until = monotonic() + LONGEST
        for number in range(REST + MOVE):
            if monotonic() > until:
                break
            inputs = rest if number < REST else _end(agent, rest, upper=number % 20 < 10)
            try:
                (reply,) = stage.step(agents, inputs)
            except QueryTimeout:
                lost += 1
                if lost > LOST:
                    raise
                continue
            assert isinstance(reply.message, StepCompleted)
            steps += 1
            brought = np.concatenate([reply.message.outputs, reply.message.infos])
            outside = [
                f"{value.name} {at:g} of [{value.min:g}, {value.max:g}]"
                for value, at in zip(told, brought.tolist(), strict=False)
                if _is_outside(value, at)
            ]
            if outside:
                return seen(
                    f"{len(outside)} of {len(told)} left their range in step {number + 1}: {outside[0]}"
                )
    return not_seen(f"agent {agent.name}: all {len(told)} stayed in their ranges for {steps} steps")


def _end(agent: AgentInterface, rest: NDArray[np.float32], *, upper: bool) -> NDArray[np.float32]:
    ends = np.array([value.max if upper else value.min for value in agent.inputs], np.float32)
    return np.where(np.isfinite(ends), ends, rest).astype(np.float32)


def _is_outside(value: InterfaceValue, at: float) -> bool:
    """By more than float32 rounds."""
    if not np.isfinite((value.min, value.max)).all():
        return False
    slack = 1e-5 * max(abs(value.min), abs(value.max), 1e-30)
    return not value.min - slack <= at <= value.max + slack
