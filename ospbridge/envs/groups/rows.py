"""Actions and feedback of several agents that are alike, as rows of one array each.

To whoever asks for one agent's they are what they stand for; whoever asks for all of them has them without making an
object for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ospbridge.interface import Feedback, PlainInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import StepOutcome

__all__ = ["ActionRows", "FeedbackRows", "all_in_rows"]


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
    """What a step brought that ended nobody's episode and has nothing to tell but numbers.

    ``observations``: float32[agents, n], ``rewards``: float64[agents], ``infos``: float32[agents, k], which have the
    ``info_names``.
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
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _made(self) -> dict[str, Feedback]:
        if not self._by_name:
            rows = zip(self.names, self.observations, self.rewards.tolist(), self.infos.tolist(), strict=True)
            for name, observation, reward, infos in rows:
                info = {
                    "osp_seed": self.seed,
                    "infos": dict(zip(self.info_names, infos, strict=True)),
                    "events": (),
                    "values": {},
                    "restored": False,
                    "reason": "",
                }
                self._by_name[name] = Feedback(observation, reward, info=info)
        return self._by_name


def all_in_rows(results: Sequence[object]) -> list[FeedbackRows]:
    """What a step told several groups, where that is rows with infos of the same names; else empty."""
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
