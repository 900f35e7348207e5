"""An agent as the daemon describes it to others: its interface, and the spaces of the task that runs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import numpy as np

from ospbridge.interface import AgentInterface, BoxSpace, DiscreteSpace, InterfaceValue, Space

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AgentDescription", "Range"]

Choices: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""How many choices a discrete action has; 0 where it is not discrete."""
Range: TypeAlias = tuple[str, float, float]
"""Name, min and max of one interface value."""


class AgentDescription(msgspec.Struct, frozen=True, array_like=True):
    """An agent's interface, without the local id, and the spaces of the task that the daemon runs for it.

    ``observation`` and ``action`` are low and high as float32 bytes; a discrete action has ``choices`` instead, and
    travels as one float32.
    """

    name: str
    type: str
    inputs: list[Range]
    outputs: list[Range]
    infos: list[Range]
    observation: tuple[bytes, bytes]
    action: tuple[bytes, bytes]
    choices: Choices = 0
    observation_names: list[str] = []
    """What the numbers of an observation are; none: the outputs, in order."""
    action_names: list[str] = []
    """What the numbers of an action are; none: the inputs, in order."""
    scenario: str | None = None
    """The name of the one that the task is of; empty: of none. None where that is not told."""

    def __post_init__(self) -> None:
        """Raises ValueError, which the decoder turns into its own, for bounds that are no float32 bytes."""
        for low, high in (self.observation, self.action):
            if len(low) != len(high) or len(low) % 4:
                raise ValueError(f"bounds of {len(low)} and {len(high)} bytes, expected as many float32 each")

    @classmethod
    def of(
        cls,
        agent: AgentInterface,
        observation: BoxSpace,
        action: Space,
        *,
        observation_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        scenario: str | None = None,
    ) -> AgentDescription:
        inputs, outputs, infos = (
            [(value.name, value.min, value.max) for value in values]
            for values in (agent.inputs, agent.outputs, agent.infos)
        )
        return cls(
            agent.name,
            agent.type,
            inputs,
            outputs,
            infos,
            _bounds(observation),
            *_told(action),
            [] if list(observation_names) == [name for name, _, _ in outputs] else list(observation_names),
            [] if list(action_names) == [name for name, _, _ in inputs] else list(action_names),
            scenario,
        )

    def names(self) -> tuple[list[str], list[str]]:
        """What the numbers of an observation and of an action are."""
        return (
            self.observation_names or [name for name, _, _ in self.outputs],
            self.action_names or [name for name, _, _ in self.inputs],
        )

    def interface(self) -> AgentInterface:
        """As the rest of the package knows it. Local ids belong to the daemon's session, so the id is 0."""
        inputs, outputs, infos = (
            tuple(InterfaceValue(*value) for value in values)
            for values in (self.inputs, self.outputs, self.infos)
        )
        return AgentInterface(0, self.name, inputs, outputs, infos, self.type)

    def like(self, other: AgentDescription) -> bool:
        """Whether an environment that was made for ``other`` can go on with it."""
        alike = msgspec.structs.replace(other, inputs=self.inputs, outputs=self.outputs, infos=self.infos)
        # `like`, since a range may be NaN.
        return self == alike and self.interface().like(other.interface())

    def observation_space(self) -> BoxSpace:
        return _box(self.observation)

    def action_space(self) -> Space:
        return DiscreteSpace(self.choices) if self.choices else _box(self.action)


def _bounds(space: BoxSpace) -> tuple[bytes, bytes]:
    return space.low.astype("<f4").tobytes(), space.high.astype("<f4").tobytes()


def _told(space: Space) -> tuple[tuple[bytes, bytes], int]:
    return (_bounds(space), 0) if isinstance(space, BoxSpace) else ((b"", b""), space.n)


def _box(bounds: tuple[bytes, bytes]) -> BoxSpace:
    return BoxSpace(np.frombuffer(bounds[0], "<f4"), np.frombuffer(bounds[1], "<f4"))
