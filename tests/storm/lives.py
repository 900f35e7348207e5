"""What a storm is, what environments believe of their episodes in it, and what of that is untrue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ospbridge.interface import StepOutcome
from ospbridge.simulator.synthetic import expected

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
    horizon: int = HORIZON
    """Steps of an episode. This and what follows: for sessions without a bridge."""
    stall: float = 0.0
    """Probability that a completion comes 50 ms late."""
    runs: float = 0.0
    """Seconds that the simulator's process runs until it is stopped for 0.1 to 2 s, on the average; 0: it never is."""

    @classmethod
    def of(cls, seed: int, weather: Weather | None = None, *, told: int = 0) -> Storm:
        """Each number of agents and clients that there can be, in both profiles, comes again every 18 seeds."""
        crews = [(agents, clients) for agents in range(1, 5) for clients in range(1, min(agents, 3) + 1)]
        agents, clients = crews[seed // 2 % len(crews)]
        profile = ("document", "nerd")[seed % 2]
        return cls(seed, profile, agents, clients, weather or HARSH, told=told)

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
    after_end: bool = False
    """Its session took the place of one that had ended: requests of that one may have stepped the world before."""
    written: int = 0
    """Entries that the ledger had when its audit began, where that is known: no step among them may be too many."""


@dataclass
class Life:
    """One environment's."""

    agent: str
    episodes: list[Episode] = field(default_factory=list)
    steps: int = 0
    done: bool = False
    troubles: list[str] = field(default_factory=list)
    """Errors outside of an episode."""
    other: int = 0
    """Added to the number of its steps, so that no two agents are given the same."""

    def next_inputs(self) -> list[float]:
        """Of its next step: nobody else is given the same, for long."""
        self.steps += 1
        return inputs(self.other + self.steps)

    def enough(self, storm: Storm) -> bool:
        """Whether it took its steps, or was told so often that more would show nothing new."""
        often = bool(storm.told) and sum(bool(episode.told) for episode in self.episodes) >= storm.told
        return self.steps >= storm.steps or often


def begin_episode(lives: Sequence[Life], outcome: Mapping[str, StepOutcome], *, after_end: bool) -> None:
    """One session plays for all of them: its neutral step behind a reset brought this."""
    for life in lives:
        life.episodes.append(Episode(after_end=after_end))
    observe(lives, outcome)


def observe(lives: Sequence[Life], outcome: Mapping[str, StepOutcome]) -> None:
    """The step brought this."""
    for life in lives:
        life.episodes[-1].observations.append(outcome[life.agent].outputs.tolist())


def give(lives: Sequence[Life]) -> dict[str, NDArray[np.float32]]:
    """The inputs of the next step."""
    for life in lives:
        life.episodes[-1].actions.append(life.next_inputs())
    return {life.agent: np.array(life.episodes[-1].actions[-1], np.float32) for life in lives}


def inputs(number: int) -> list[float]:
    """The inputs of an environment's step: no others of its are the same, for long, and none are neutral."""
    value = np.float32(((number * 37) % DIFFERENT - DIFFERENT / 2) / 10_000)
    return [float(value)] * INPUTS


@dataclass(frozen=True)
class Untruth:
    """What an environment believes of a step, and was otherwise."""

    agent: str
    episode: int
    step: int
    """0 is the neutral step behind the reset."""
    given: list[float]
    what: str
    ran: tuple[float, ...] = ()
    """The inputs of the step in truth, where they were others."""
    brought: tuple[float, ...] = ()
    """The observation, where it was another step's."""
    surplus: bool = False
    """All was as it should be, and one step more ran."""

    def __str__(self) -> str:
        return f"{self.agent}, episode {self.episode}: {self.what}"


def untrue(lives: Sequence[Life], ledger: Sequence[Mapping[str, Any]]) -> Iterator[Untruth]:
    """What is believed of an episode that nothing was told about, and was otherwise: the first of each episode."""
    for life in lives:
        used = [entry["agents"][life.agent]["inputs"] for entry in ledger]
        ran: dict[tuple[float, ...], int] = {}
        for at, inputs in enumerate(used):
            if ledger[at]["kind"] == "step":
                ran.setdefault(tuple(inputs), at)
        for number, episode in enumerate(life.episodes):
            if episode.ended and not episode.told:
                found = _untrue(episode, used, ran, ledger)
                if found is not None:
                    yield replace(found, agent=life.agent, episode=number)


def _untrue(
    episode: Episode,
    used: Sequence[list[float]],
    ran: Mapping[tuple[float, ...], int],
    ledger: Sequence[Mapping[str, Any]],
) -> Untruth | None:
    """``used``: the agent's inputs of each entry of the ledger; ``ran``: where which were first used.

    What runs between two episodes, when a request is late, belongs to neither.
    """

    def wrong(
        step: int, what: str, *, ran: tuple[float, ...] = (), brought: tuple[float, ...] = ()
    ) -> Untruth:
        return Untruth("", 0, step, episode.actions[max(step - 1, 0)], what, ran, brought)

    first = ran.get(tuple(episode.actions[0]))
    if first is None:
        return wrong(1, f"its first step, with {episode.actions[0]}, never ran")
    reset = first - 1
    while reset >= 0 and ledger[reset]["kind"] == "step":
        reset -= 1
    if reset < 0 or used[first - 1] != NEUTRAL or not (first - reset == 2 or episode.after_end):
        return wrong(
            0, f"its first step was number {ledger[first]['n']}, which no reset and neutral step went before"
        )
    seed = ledger[reset]["seed"]
    for at, action in enumerate([NEUTRAL, *episode.actions]):
        place = first - 1 + at
        if place >= len(ledger) or ledger[place]["kind"] != "step":
            return wrong(at, f"step {at} was given {action}, and did not run")
        if used[place] != action:
            return wrong(at, f"step {at} was given {action}, ran with {used[place]}", ran=tuple(used[place]))
        true = expected(np.array(action, np.float32), place - reset, OUTPUTS, seed=seed).tolist()
        if episode.observations[at] != true:
            brought = tuple(episode.observations[at])
            return wrong(at, f"step {at} brought {brought}, it was {true}", brought=brought)
    behind = first + len(episode.actions)
    if any(entry["kind"] == "step" for entry in ledger[behind : episode.written]):
        return Untruth(
            "", 0, len(episode.actions), [], "a step too many had run when it was audited", surplus=True
        )
    return None
