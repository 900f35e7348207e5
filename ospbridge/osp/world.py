"""What a server hosts: a world with agents, variables and events, as the server machine drives it.

A world knows nothing of datagrams, clients or barriers. The machine writes inputs, calls ``step`` or ``reset``, and
reads outputs, infos, variables and events. Facts: OSP 1.1, sections 4.3 to 4.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ospbridge.interface import AgentInterface

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import InterfaceValue


class WorldAgent:
    """One controllable agent and the three arrays through which it is driven.

    ``inputs``: float32[n_inputs], written by the server after clamping, read by the world in ``step``.
    ``outputs``: float32[n_outputs] and ``infos``: float32[n_infos], written by the world, read by the server after
    each step. The arrays stay the same objects for the life of the agent: worlds write into them.
    """

    __slots__ = ("high", "infos", "inputs", "interface", "low", "name", "neutral", "outputs")

    def __init__(
        self,
        name: str,
        inputs: Sequence[InterfaceValue],
        outputs: Sequence[InterfaceValue],
        infos: Sequence[InterfaceValue] = (),
        *,
        type: str = "Agent",  # noqa: A002  # the protocol's word
    ) -> None:
        self.name = name
        self.interface = AgentInterface(0, name, tuple(inputs), tuple(outputs), tuple(infos), type)
        self.low: NDArray[np.float32] = np.array([value.min for value in inputs], "<f4")
        self.high: NDArray[np.float32] = np.array([value.max for value in inputs], "<f4")
        self.neutral: NDArray[np.float32] = np.clip(np.zeros(len(inputs), "<f4"), self.low, self.high)
        self.inputs: NDArray[np.float32] = self.neutral.copy()
        self.outputs: NDArray[np.float32] = np.zeros(len(outputs), "<f4")
        self.infos: NDArray[np.float32] = np.zeros(len(infos), "<f4")

    def __setattr__(self, name: str, value: object) -> None:
        """The server goes on with the arrays that it knows: another one, perhaps of doubles, would be sent as it is."""
        # ``agent.outputs += 1`` sets the same array again.
        if name in ("inputs", "outputs", "infos") and getattr(self, name, value) is not value:
            raise AttributeError(
                f"{name} of agent {self.name!r} cannot be another object: write into it, agent.{name}[:] = ..."
            )
        super().__setattr__(name, value)


@dataclass(frozen=True, slots=True)
class Variable:
    """An entry of the repository, whose content is text. ``set`` returns False for a text that it refuses."""

    name: str
    type: str
    get: Callable[[], str]
    set: Callable[[str], bool] = lambda _: False


class World(Protocol):
    """What a server needs of a simulation: any object with these members is one."""

    @property
    def agents(self) -> Sequence[WorldAgent]:
        """All agents, in the order of their ids; fixed for the life of the world."""

    @property
    def variables(self) -> Sequence[Variable]:
        """Repository entries of the world's own, beside those that the server adds itself."""

    @property
    def events(self) -> Sequence[str]:
        """Names of the events that can occur, beside those of the server itself."""

    @property
    def time_step(self) -> float:
        """Simulated seconds of one step, as the world starts out."""

    def reset(self, seed: int) -> None:
        """Go back to the start. ``seed`` 0 means "don't care". Inputs were set to neutral before."""

    def step(self) -> None:
        """Advance by one step with the agents' inputs; write outputs and infos."""

    def take_events(self) -> list[str]:
        """Names of the events that occurred since the last call, in their order."""
