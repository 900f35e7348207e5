"""A scenario as data: all that OSP leaves open about a simulator's agents. One dataclass a table, one field a key.

What the keys mean to users stands in ``docs/reference/scenario-keys.md``; what is not allowed, in ``reading``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from ospbridge.interface import Match

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ospbridge.interface import AgentInterface
    from ospbridge.toml.tables import PerValue

__all__ = [
    "Action",
    "ActionKind",
    "AgentScenario",
    "ArenaTable",
    "Episode",
    "GymTable",
    "Match",
    "NotFinite",
    "Observe",
    "OutOfBounds",
    "OutOfRange",
    "Range",
    "Ranges",
    "ResetObservation",
    "RobotTable",
    "Scenario",
    "Source",
    "SourceKind",
    "SyntheticTable",
    "WorldTable",
]


class ActionKind(StrEnum):
    """What an action is."""

    CONTINUOUS = "continuous"
    DISCRETE = "discrete"


class OutOfBounds(StrEnum):
    """What becomes of an action outside its bounds."""

    CLIP = "clip"
    ERROR = "error"
    PASS = "pass"  # noqa: S105  # not a password


class Ranges(StrEnum):
    """Where the bounds of observed values come from, unless ``range`` names them."""

    AUTO = "auto"
    ANNOUNCED = "announced"
    UNBOUNDED = "unbounded"


class OutOfRange(StrEnum):
    """What becomes of a sensor outside its range."""

    PASS = "pass"  # noqa: S105  # not a password
    CLIP = "clip"
    END = "end"


class NotFinite(StrEnum):
    """What becomes of NaN and infinity from the simulator."""

    END = "end"
    ZERO = "zero"
    PASS = "pass"  # noqa: S105  # not a password


class ResetObservation(StrEnum):
    """What ``reset`` returns."""

    STEP = "step"
    ZEROS = "zeros"


class SourceKind(StrEnum):
    """What a short name stands for."""

    OUTPUT = "output"
    INFO = "info"
    INPUT = "input"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the number behind a short name comes from. ``component``: of a variable that is a vector."""

    kind: SourceKind
    name: str
    component: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" + ("" if self.component is None else f"#{self.component}")


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high``."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """``[agent.action]``: how an action becomes inputs."""

    kind: ActionKind = ActionKind.CONTINUOUS
    inputs: tuple[str, ...] = ("*",)
    choices: tuple[tuple[float, ...], ...] = ()
    normalised: bool = False
    low: PerValue | None = None
    high: PerValue | None = None
    rate: PerValue | None = None
    out_of_bounds: OutOfBounds = OutOfBounds.CLIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """``[agent.observe]``: what an observation holds."""

    outputs: tuple[str, ...] = ("*",)
    infos: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    ranges: Ranges = Ranges.AUTO
    range: Mapping[str, Range] = field(default_factory=dict)
    out_of_range: OutOfRange = OutOfRange.PASS
    not_finite: NotFinite = NotFinite.END
    scale: bool = False
    history: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """``[agent.episode]``: reward, ends, and how it begins. Without an expression, the simulator decides."""

    reward: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    terminated_on: tuple[str, ...] = ()
    max_steps: int | None = None
    neutral: PerValue | None = None
    settle_steps: int | None = None
    reset_observation: ResetObservation = ResetObservation.STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentScenario:
    """``[[agent]]``: the task of the agents that match."""

    match: Match = field(default_factory=Match)
    env_id: str = ""
    nondeterministic: bool = False
    task: str = ""
    names: Mapping[str, Source] = field(default_factory=dict)
    action: Action = field(default_factory=Action)
    observe: Observe = field(default_factory=Observe)
    episode: Episode = field(default_factory=Episode)


@dataclass(frozen=True, slots=True, kw_only=True)
class GymTable:
    """``[world]`` with ``kind = "gym"``: Gymnasium environments, one agent each."""

    kind: str = "gym"
    env: str = ""
    copies: int = 1
    time_step: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaTable:
    """``[world]`` with ``kind = "arena"``: two-wheeled robots in a walled arena."""

    kind: str = "arena"
    robots: int = 2
    obstacles: int = 4
    time_step: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTable:
    """``[world]`` with ``kind = "synthetic"``: an agent of the named interface that computes next to nothing."""

    kind: str = "synthetic"
    agents: tuple[str, ...] = ("agent",)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    time_step: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotTable:
    """``[world]`` with ``kind = "robot"``: a stand-in for a robot of a NERD simulator."""

    kind: str = "robot"
    robot: str = ""


WorldTable: TypeAlias = GymTable | ArenaTable | SyntheticTable | RobotTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole file. ``origin`` is the file's path, or what it is called in messages."""

    name: str
    description: str = ""
    action_repeat: int = 1
    time_step: float | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    randomise: Mapping[str, Range] = field(default_factory=dict)
    world: WorldTable | None = None
    agent: tuple[AgentScenario, ...] = ()
    origin: str = ""

    def for_agent(self, agent: AgentInterface) -> AgentScenario | None:
        """The first table that matches; None where none does."""
        return next((table for table in self.agent if table.match.fits(agent)), None)

    def only_chooses(self, agent: AgentInterface) -> bool:
        """It may say that it is for this agent, but nothing of the task."""
        if self.action_repeat != 1 or self.values or self.randomise:
            return False
        rules = self.for_agent(agent)
        return rules is None or rules == AgentScenario(
            match=rules.match, env_id=rules.env_id, nondeterministic=rules.nondeterministic
        )
