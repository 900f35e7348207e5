"""What drives the agents of an environment, and the form in which it takes actions and tells what they brought.

A backend drives the agents of one simulator, over a session of this process (``direct``) or a daemon's hub (``hub``).
``observers.RecordingBackend`` wraps either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np

from ospbridge.interface import Feedback, PlainInfo, step_info

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.annotations import NextNote
    from ospbridge.interface import AgentInterface, BoxSpace, Space, StepOutcome

__all__ = ["ActionRows", "Backend", "DrivenAgent", "FeedbackRows", "Found", "all_in_rows"]

Found: TypeAlias = Mapping[str, Feedback]
"""What a reset or step brought, by agent."""


@dataclass(frozen=True, slots=True, eq=False)
class DrivenAgent:
    """An agent that is taken, and what its task makes of it."""

    interface: AgentInterface
    observation_space: BoxSpace
    action_space: Space
    observation_names: list[str]
    """What the numbers of an observation are."""
    action_names: list[str]
    """What the numbers of an action are; of no meaning where it is discrete."""


class Backend(Protocol):
    """Agents of one simulator, taken, by their names."""

    @property
    def agents(self) -> dict[str, DrivenAgent]:
        """In the order in which they are told."""
        ...

    @property
    def next_notes(self) -> Mapping[str, NextNote]:
        """What is said of the next actions; empty where nobody annotates."""
        ...

    def reset(self, seed: int) -> Found:
        """Reset the world and let it settle; all agents play. ``seed`` in [1, 2**31 - 1]."""
        ...

    def step(self, actions: Mapping[str, Any]) -> Found:
        """One action of every agent that plays; what they return. Whoever is lost truncates them all."""
        ...

    def step_one(self, action: Any) -> Feedback:
        """``step`` of the only agent, without names. A lost daemon raises HubLost."""
        ...

    def cancel_step(self) -> None:
        """Nobody is told what the latest step brought, as after Ctrl-C: the next one must not go on from there."""
        ...

    def close(self) -> None:
        """Give the agents back, within 2 s. Safe to call again, from any thread."""
        ...


# --- rows ------------------------------------------------------------------------------------------------------------


class ActionRows(Mapping[str, Any]):
    """One action of each agent, in their order: ``rows`` is an array or any other sequence."""

    __slots__ = ("_by_name", "names", "rows")

    def __init__(self, names: Sequence[str], rows: Any) -> None:
        self.names = names
        self.rows = rows
        self._by_name: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if not self._by_name:
            self._by_name = dict(zip(self.names, self.rows, strict=True))
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class FeedbackRows(Mapping[str, Feedback]):
    """What a step brought that ended nobody's episode and has nothing to tell but numbers, as one array each.

    ``observations``: float32[agents, n], ``rewards``: float64[agents], ``infos``: float32[agents, k], which have the
    ``info_names``. An agent's ``Feedback`` is made when somebody asks for it.
    """

    __slots__ = ("_by_name", "info_names", "infos", "names", "observations", "rewards", "seed")

    @classmethod
    def of(
        cls, feedbacks: Mapping[str, Feedback], outcomes: Mapping[str, StepOutcome], info_names: Sequence[str]
    ) -> Self | None:
        """The same of feedback without infos that was made for each agent; None where it tells more than numbers.

        All agents have equally many observed numbers, and infos of these names.
        """
        observations = []
        rewards = []
        plain: dict[str, Any] | None = None
        for feedback in feedbacks.values():
            if plain is None:
                plain = feedback.info
                if type(plain) is not PlainInfo:
                    return None
            if feedback.info is not plain or feedback.terminated or feedback.truncated:
                return None
            observations.append(feedback.observation)
            rewards.append(feedback.reward)
        if plain is None:
            return None
        return cls(
            list(feedbacks),
            observations=_rows(observations),
            rewards=np.array(rewards, np.float64),
            infos=_rows([outcomes[name].infos for name in feedbacks]),
            info_names=info_names,
            seed=plain["osp_seed"],
        )

    def __init__(
        self,
        names: Sequence[str],
        *,
        observations: NDArray[np.float32],
        rewards: NDArray[np.float64],
        infos: NDArray[np.float32],
        info_names: Sequence[str],
        seed: int,
    ) -> None:
        self.names = names
        self.observations = observations
        self.rewards = rewards
        self.infos = infos
        self.info_names = info_names
        self.seed = seed
        self._by_name: dict[str, Feedback] = {}

    def __getitem__(self, name: str) -> Feedback:
        if not self._by_name:
            rows = zip(self.names, self.observations, self.rewards.tolist(), self.infos.tolist(), strict=True)
            for each, observation, reward, infos in rows:
                info = step_info(self.seed, dict(zip(self.info_names, infos, strict=True)))
                self._by_name[each] = Feedback(observation, reward, info=info)
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def all_in_rows(results: Sequence[object]) -> list[FeedbackRows]:
    """What a step told several backends, where that is rows with infos of the same names; else empty."""
    rows: list[FeedbackRows] = []
    for found in results:
        if type(found) is not FeedbackRows or (rows and found.info_names != rows[0].info_names):
            return []
        rows.append(found)
    return rows


def _rows(arrays: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """float32[n] each, of the same length, as one: float32[rows, n]."""
    if len(arrays) == 1:
        return arrays[0][np.newaxis]
    return np.concatenate(arrays).reshape(len(arrays), len(arrays[0]))
