"""What all floors speak of: agents, their interface values, variables. Plain data, no behaviour beyond names.

What is made for every step is a struct of msgspec, which takes a third of the time that a dataclass takes.

Facts: OSP 1.1, sections 4.3 and 4.5.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "LARGEST_SEED",
    "AgentEntry",
    "AgentInterface",
    "BoxSpace",
    "DiscreteSpace",
    "DrawnSeed",
    "Endpoint",
    "Feedback",
    "InterfaceValue",
    "Match",
    "Space",
    "StepOutcome",
    "ValueEntry",
    "ValueReading",
    "chosen",
    "fits",
    "several",
    "step_info",
]

DEFAULT_PORT = 45454
LARGEST_SEED: Final = 2**31 - 1
"""Of those that simulators are given: int32 from 1 on, since 0 says that any will do."""
Agent = TypeVar("Agent", bound="AgentEntry | AgentInterface")


def fits(name: str, pattern: str) -> bool:
    """Whether a name is meant by a name or shell glob; a name may itself look like a glob."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def chosen(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Those of ``names`` that names or shell globs mean: in the order of these, each once.

    A name may itself look like a glob: where it is there as it is written, it alone is meant.
    """
    known = list(dict.fromkeys(names))
    found: dict[str, None] = {}
    for pattern in patterns:
        hits = [pattern] if pattern in known else [name for name in known if fits(name, pattern)]
        found.update(dict.fromkeys(hits))
    return list(found)


def several(given: str | Sequence[str]) -> Sequence[str]:
    """Names or globs as they are, or the only one: its letters are not meant one by one."""
    return (given,) if isinstance(given, str) else given


class DrawnSeed(int):
    """A seed that was drawn because none was given: where several programs reset together, a given one counts."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which agents are meant: name and type as globs."""

    name: str = "*"
    type: str = "*"

    def fits(self, agent: AgentEntry | AgentInterface) -> bool:
        """Whether an agent is one of these, as far as it alone can tell."""
        return fits(agent.name, self.name) and fits(agent.type, self.type)

    def among(self, agents: Sequence[Agent]) -> list[Agent]:
        """Those of all that there are: one that is called as ``name`` is written counts, and others that fit do not."""
        names = chosen([agent.name for agent in agents], (self.name,))
        return [agent for agent in agents if agent.name in names and fits(agent.type, self.type)]

    def __str__(self) -> str:
        return repr(self.name) + (f" of type {self.type!r}" if self.type != "*" else "")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A UDP address; as text it is ``host:port``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class InterfaceValue:
    """One motor, sensor or info of an agent, with the announced range (infinite where unbounded)."""

    name: str
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """One line of the agent overview. ``id`` is valid only within the session that asked."""

    id: int
    name: str
    type: str
    available: bool


@dataclass(frozen=True, slots=True)
class AgentInterface:
    """An agent's inputs (motors), outputs (sensors) and infos, in the order of the arrays of a step.

    ``id`` is valid only within the session that asked.
    """

    id: int
    name: str
    inputs: tuple[InterfaceValue, ...]
    outputs: tuple[InterfaceValue, ...]
    infos: tuple[InterfaceValue, ...]
    type: str = "Agent"

    @property
    def info_names(self) -> list[str]:
        """What each info is called where infos stand by name: of several of one name the second is ``NAME (2)``."""
        found: dict[str, None] = {}
        for value in self.infos:
            name, number = value.name, 1
            while name in found:
                number += 1
                name = f"{value.name} ({number})"
            found[name] = None
        return list(found)

    def like(self, other: AgentInterface) -> bool:
        """Whether both have the same inputs, outputs and infos. Local ids differ from session to session."""
        mine, theirs = (self.inputs, self.outputs, self.infos), (other.inputs, other.outputs, other.infos)
        return mine == theirs or list(map(_shown, mine)) == list(map(_shown, theirs))


def _shown(values: Iterable[InterfaceValue]) -> list[tuple[str, str, str]]:
    """Equal also where a range is NaN, which servers may announce, and which equals nothing."""
    return [(value.name, repr(value.min), repr(value.max)) for value in values]


@dataclass(frozen=True, slots=True)
class ValueEntry:
    """A variable of the simulator's repository. ``id`` is valid only within the session that asked."""

    id: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ValueReading:
    """A variable with its content as the simulator writes it."""

    name: str
    type: str
    value: str


class StepOutcome(msgspec.Struct):
    """What one step brought for one agent.

    ``outputs``: float32[n_outputs], ``infos``: float32[n_infos], in the unit the simulator sends.
    ``events`` are all that the session was told of with this step: they are the simulator's, not the agent's.
    ``values``: the contents of watched variables, by name. ``restored`` says that the completion was lost, or cut in
    front of events, and read back from the repository; events are lost then.
    """

    outputs: NDArray[np.float32]
    infos: NDArray[np.float32]
    events: tuple[str, ...] = ()
    values: dict[str, str] = {}
    restored: bool = False


def unobserved(agent: AgentInterface) -> StepOutcome:
    """What is known of an agent whose world was reset and has not stepped: nothing, as zeros."""
    return StepOutcome(np.zeros(len(agent.outputs), np.float32), np.zeros(len(agent.infos), np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class BoxSpace:
    """Vectors within bounds: ``low`` and ``high`` are float32[n], infinite where unbounded."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]

    def __post_init__(self) -> None:
        # Programs make them too, of lists and of other numbers.
        object.__setattr__(self, "low", np.asarray(self.low, np.float32))
        object.__setattr__(self, "high", np.asarray(self.high, np.float32))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoxSpace):
            return NotImplemented
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def __hash__(self) -> int:
        return hash(len(self.low))


@dataclass(frozen=True, slots=True)
class DiscreteSpace:
    """One of ``n`` choices, counted from 0."""

    n: int


Space: TypeAlias = BoxSpace | DiscreteSpace
"""What an environment's space is made from; no gymnasium needed."""


def step_info(
    seed: int,
    infos: dict[str, float],
    *,
    events: Sequence[str] = (),
    values: Mapping[str, str] | None = None,
    restored: bool = False,
    reason: str = "",
) -> dict[str, Any]:
    """What an environment tells beside observation and reward: always these keys."""
    return {
        "osp_seed": seed,
        "infos": infos,
        "events": events,
        "values": {} if values is None else values,
        "restored": restored,
        "reason": reason,
    }


class PlainInfo(dict[str, Any]):
    """The info of a step with nothing to tell but numbers, without their names; shared, so that nobody changes it."""

    __slots__ = ()


class Feedback(msgspec.Struct):
    """What a task makes of one step's outcome, or of a reset's: what an environment returns.

    ``observation``: float32[n]. ``info`` has the keys of an environment's. ``reason`` says why an episode was truncated
    by the bridge; of a reset, why the episode that it abandoned cannot be trusted; empty else.
    """

    observation: NDArray[np.float32]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    reason: str = ""
    info: dict[str, Any] = {}

    @classmethod
    def cut(
        cls, observation: NDArray[np.float32], reason: str, *, seed: int, info_names: Iterable[str]
    ) -> Self:
        """The honest end of an episode whose last step cannot be told: the last observation again."""
        info = step_info(seed, dict.fromkeys(info_names, float("nan")), reason=reason)
        return cls(observation, truncated=True, reason=reason, info=info)

    @property
    def over(self) -> bool:
        """The episode has ended."""
        return self.terminated or self.truncated

    def truncate(self, why: str) -> None:
        """The bridge ends the episode here: what it cuts is truncated, never terminated."""
        self.terminated = False
        self.truncated = True
        self.reason = why
        self.info = {**self.info, "reason": why}

    def doubt_the_one_before(self, why: str) -> None:
        """It is a reset's: say why the episode that this abandoned cannot be trusted."""
        self.reason = f"the episode before this reset cannot be trusted: {why}"
        self.info = {**self.info, "reason": self.reason}
