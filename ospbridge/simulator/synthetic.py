"""Agents of any size that cost next to nothing: for tests, measurements, and for trying one's own client.

Output i of step n is a fixed, cheap function of the inputs and of n, so that a client can predict it: see ``expected``.
Nothing ever terminates.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import InterfaceValue
from ospbridge.osp.repository import double_variable
from ospbridge.osp.world import WorldAgent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["MARK_EVERY", "SyntheticWorld", "expected"]

MARK_EVERY = 10
"""The event ``/Synthetic/Mark`` occurs in every step whose number since the reset is a multiple of this."""

MARK = "/Synthetic/Mark"


def expected(inputs: NDArray[np.float32], step: int, count: int, seed: int = 0) -> NDArray[np.float32]:
    """float32[count]: the outputs of step ``step`` (1 is the first after the reset) for these inputs.

    Value i is ``mean(inputs) + (step + seed % 1000) / 1024 + i / 4096``, which goes on at -1 where it reaches 1; infos
    continue the count of the outputs.
    """
    # Much faster than ``inputs.mean()``, and this is what a step costs.
    mean = float(np.add.reduce(inputs)) / max(len(inputs), 1)
    values = np.arange(count) / 4096 + (mean + (step + seed % 1000) / 1024)
    # What is there already stays exactly what it is.
    return np.where(values < 1.0, values, (values + 1.0) % 2.0 - 1.0).astype(np.float32)


def _values(kind: str, wanted: int | Sequence[str]) -> list[InterfaceValue]:
    """By their names, or as many as are wanted."""
    names = [f"/{kind}/{index}" for index in range(wanted)] if isinstance(wanted, int) else wanted
    return [InterfaceValue(name, -1.0, 1.0) for name in names]


class SyntheticWorld:
    """``agents`` agents named "agent" (or "agent1", "agent2", ..) with the given numbers of interface values.

    ``inputs``, ``outputs``, ``infos``: how many, or their names.
    ``values``: how many extra variables the repository has. ``think``: seconds slept in each step.
    ``names``: agent names, where others are wanted.
    """

    def __init__(
        self,
        inputs: int | Sequence[str],
        outputs: int | Sequence[str],
        infos: int | Sequence[str] = 0,
        *,
        agents: int = 1,
        values: int = 0,
        think: float = 0.0,
        time_step: float = 0.01,
        names: Sequence[str] | None = None,
    ) -> None:
        counts = (count for count in (inputs, outputs, infos, values) if isinstance(count, int))
        if min(counts, default=0) < 0 or agents < 1:
            raise ConfigurationError(
                "a synthetic world needs 0 or more inputs, outputs, infos and values, and at least one agent"
            )
        if names is None:
            names = ["agent"] if agents == 1 else [f"agent{number}" for number in range(1, agents + 1)]
        self.agents = [
            WorldAgent(name, _values("motor", inputs), _values("sensor", outputs), _values("info", infos))
            for name in names
        ]
        self.events = (MARK,)
        self.time_step = time_step
        self._think = think
        self._steps = 0
        self._seed = 0
        self._occurred: list[str] = []
        held = [float(index) for index in range(values)]
        self.variables = [
            double_variable(
                f"/Synthetic/Value/{index:05d}",
                partial(held.__getitem__, index),
                partial(held.__setitem__, index),
            )
            for index in range(values)
        ]

    def reset(self, seed: int) -> None:
        """Begin again at step 0."""
        self._steps = 0
        self._seed = seed
        for agent in self.agents:
            agent.outputs[:] = 0.0
            agent.infos[:] = 0.0

    def step(self) -> None:
        """Write ``expected`` into outputs and, continued, into infos."""
        self._steps += 1
        if self._think > 0.0:
            time.sleep(self._think)
        for agent in self.agents:
            count = len(agent.outputs)
            values = expected(agent.inputs, self._steps, count + len(agent.infos), self._seed)
            agent.outputs[:], agent.infos[:] = values[:count], values[count:]
        if self._steps % MARK_EVERY == 0:
            self._occurred.append(MARK)

    def take_events(self) -> list[str]:
        """The marks since the last call."""
        events, self._occurred = self._occurred, []
        return events
