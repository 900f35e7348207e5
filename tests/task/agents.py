"""Agents and outcomes to try tasks with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ospbridge.interface import AgentInterface, InterfaceValue, StepOutcome
from ospbridge.task.making import make_task
from ospbridge.task.reading import read
from ospbridge.task.scenario_task import ScenarioTask

INFOS = ("/episode/reward", "/episode/terminated", "/episode/truncated")


def arm(*, infos: Sequence[str] = ()) -> AgentInterface:
    """Two motors in [-2, 2] and [0, 1], three sensors: two in [-1, 1], one open."""
    inf = float("inf")
    return AgentInterface(
        1,
        "arm",
        (InterfaceValue("/Left/Motor", -2.0, 2.0), InterfaceValue("/Right/Motor", 0.0, 1.0)),
        (
            InterfaceValue("/Left/Angle [-1,1]", -1.0, 1.0),
            InterfaceValue("/Right/Angle", -1.0, 1.0),
            InterfaceValue("/Force", -inf, inf),
        ),
        tuple(InterfaceValue(name, 0.0, 1.0) for name in infos),
        "Robot",
    )


def task(
    agent_table: str = "",
    top: str = "",
    *,
    infos: Sequence[str] = (),
    bounded: bool = True,
    agent: AgentInterface | None = None,
) -> ScenarioTask:
    """The task of the arm, or another agent, for what stands in ``[[agent]]`` and above it."""
    scenario = read(f'name = "test"\n{top}\n[[agent]]\n{agent_table}')
    made = make_task(scenario, agent or arm(infos=infos), bounded=bounded)
    assert isinstance(made, ScenarioTask)
    return made


def outcome(
    *outputs: float, infos: Sequence[float] = (), events: Sequence[str] = (), **values: str
) -> StepOutcome:
    """Outputs that are not given are 0; values by name, without the slash."""
    padded = [*outputs, 0.0, 0.0, 0.0][:3]
    return StepOutcome(
        np.array(padded, np.float32),
        np.array(infos, np.float32),
        tuple(events),
        {f"/{name}": text for name, text in values.items()},
    )
