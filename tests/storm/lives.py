"""What a storm is, what environments believe of their episodes in it, and what of that is untrue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.simulator.synthetic import expected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "HARSH",
    "HORIZON",
    "INPUTS",
    "MILD",
    "OUTPUTS",
    "Episode",
    "Life",
    "Storm",
    "Weather",
    "inputs",
    "untrue",
]

HORIZON: Final = 20
"""Steps of an episode that nothing ends before."""
INPUTS: Final = 2
OUTPUTS: Final = 3
NEUTRAL: Final = [0.0] * INPUTS
DIFFERENT: Final = 19_997
"""Inputs of an agent, before one comes again."""


@dataclass(frozen=True)
class Weather:
    """What may happen to each datagram, either way."""

    drop: float = 0.1
    duplicate: float = 0.1
    reorder: float = 0.1
    delay: float = 0.1
    delay_max: float = 3.0


HARSH: Final = Weather()
MILD: Final = Weather(0.005, 0.005, 0.005, 0.005)
"""Most episodes get to their end in it."""


@dataclass(frozen=True)
class Storm:
    """What one seed stands for. ``clients``: the first is a daemon with all agents that are not the others'."""

    seed: int
    profile: str
    agents: int
    clients: int
    weather: Weather
    steps: int = 100
    """That each environment takes."""
    thinks: float = 0.0
    """Seconds before each step of an environment."""
    told: int = 0
    """After so many episodes whose end was told an environment has lived enough; 0: never."""
    ran: int = 0
    """After so many steps of the world every environment has lived enough; 0: never. For the machines alone."""

    @classmethod
    def of(cls, seed: int, weather: Weather | None = None, *, told: int = 0, ran: int = 0) -> Storm:
        """Each number of agents and clients that there can be, in both profiles, comes again every 18 seeds."""
        crews = [(agents, clients) for agents in range(1, 5) for clients in range(1, min(agents, 3) + 1)]
        agents, clients = crews[seed // 2 % len(crews)]
        profile = ("document", "nerd")[seed % 2]
        return cls(seed, profile, agents, clients, weather or HARSH, told=told, ran=ran)

    @property
    def direct(self) -> list[str]:
        """Agents of environments that join the simulator themselves."""
        return [f"agent{number}" for number in range(self.agents - self.clients + 1, self.agents)]

    @property
    def attached(self) -> list[str]:
        """Agents of environments at the daemon's hub."""
        return [f"agent{number}" for number in range(self.agents - self.clients + 1)]


@dataclass
class Episode:
    """What an environment believes of one."""

    actions: list[list[float]] = field(default_factory=list)
    observations: list[list[float]] = field(default_factory=list)
    """Of the reset, and of each step that came back."""
    ended: bool = False
    """A step said so."""
    told: str = ""
    """Why the bridge ended it."""


@dataclass
class Life:
    """One environment's."""

    agent: str
    episodes: list[Episode] = field(default_factory=list)
    steps: int = 0
    done: bool = False
    troubles: list[str] = field(default_factory=list)
    """Errors outside of an episode."""

    def enough(self, storm: Storm) -> bool:
        """Whether it took its steps, or was told so often that more would show nothing new."""
        often = bool(storm.told) and sum(bool(episode.told) for episode in self.episodes) >= storm.told
        return self.steps >= storm.steps or often


def inputs(number: int) -> list[float]:
    """The inputs of an environment's step: no others of its are the same, for long, and none are neutral."""
    value = np.float32(((number * 37) % DIFFERENT - DIFFERENT / 2) / 10_000)
    return [float(value)] * INPUTS


def untrue(lives: Sequence[Life], ledger: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is believed of an episode that nothing was told about, and was otherwise."""
    for life in lives:
        used = [entry["agents"][life.agent]["inputs"] for entry in ledger]
        ran: dict[tuple[float, ...], int] = {}
        for at, inputs in enumerate(used):
            if ledger[at]["kind"] == "step":
                ran.setdefault(tuple(inputs), at)
        for number, episode in enumerate(life.episodes):
            if episode.ended and not episode.told:
                for fault in _untrue(episode, used, ran, ledger):
                    yield f"{life.agent}, episode {number}: {fault}"


def _untrue(
    episode: Episode,
    used: Sequence[list[float]],
    ran: Mapping[tuple[float, ...], int],
    ledger: Sequence[dict[str, Any]],
) -> Iterator[str]:
    """What an environment believes of an episode that it was told nothing about, although it was otherwise.

    ``used``: the agent's inputs of each entry of the ledger; ``ran``: where which were first used. What runs between
    two episodes, when a request is late, belongs to neither.
    """
    first = ran.get(tuple(episode.actions[0]))
    if first is None:
        yield f"its first step, with {episode.actions[0]}, never ran"
        return
    begun: dict[str, Any] = ledger[first - 2] if first >= 2 else {"kind": "nothing"}
    if begun["kind"] != "reset" or used[first - 1] != NEUTRAL:
        yield f"its first step was number {ledger[first]['n']}, which no reset and neutral step went before"
        return
    for at, action in enumerate([NEUTRAL, *episode.actions]):
        place = first - 1 + at
        if place >= len(ledger) or ledger[place]["kind"] != "step" or used[place] != action:
            yield f"step {at} was given {action}, ran with {used[place] if place < len(ledger) else 'nothing'}"
            return
        true = expected(np.array(action, np.float32), at + 1, OUTPUTS, seed=begun["seed"])
        if episode.observations[at] != true.tolist():
            yield f"step {at} brought {episode.observations[at]}, it was {true.tolist()}"
