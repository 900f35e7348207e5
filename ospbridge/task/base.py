"""What every task is: the class that users derive from, and what the bridge asks of it.

A task belongs to one agent and runs where the session runs: in the environment's process when direct, in the daemon
for environments at its hub, so that what goes upstream is what the environment saw.
"""

from __future__ import annotations

from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.finite import all_finite
from ospbridge.interface import BoxSpace, Feedback, PlainInfo, Space
from ospbridge.task.outside import SELDOM, Outside, unheard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from ospbridge.interface import AgentInterface, InterfaceValue, StepOutcome
    from ospbridge.task.outside import Remark

__all__ = [
    "ANY_NUMBER",
    "FLOAT",
    "HINT",
    "Task",
    "bounds",
    "choice",
    "finite",
    "take_vector",
    "unlike",
    "vector",
]

FLOAT: Final = np.dtype(np.float32)
_LARGEST: Final = float(np.finfo(np.float32).max)
ANY_NUMBER: Final = (-_LARGEST, _LARGEST)
"""Between these is every float32 that is a number."""
LEFT: Final = (
    "observations leave their space; observe.ranges or observe.range of a scenario mends the space, "
    "observe.out_of_range what leaves it"
)


class Task:
    """Actions to inputs, outcomes to observation, reward and flags, for one agent.

    A subclass may set the attributes in its ``__init__`` after calling this one, and override ``inputs``,
    ``observe``, ``judge`` and ``start_values``. ``bounded`` says whether outputs stay in their announced ranges.
    """

    events: Sequence[str] = ()
    """Events of the simulator that the task wants to be told of, by exact name."""
    values: Sequence[str] = ()
    """Variables of the simulator that each outcome is to carry, by exact name."""
    action_repeat: int = 1
    """Steps of the simulator for one action; the last one is observed, rewards add up."""
    settle_steps: int = 1
    """Neutral steps after a reset, before the first observation."""
    scenario_name: str = ""
    """Of the scenario that it is of; empty without one."""

    def __init__(self, agent: AgentInterface, *, bounded: bool) -> None:
        self.agent: AgentInterface = agent
        """Whose task it is."""
        self.bounded = bounded
        self.action_space: Space = BoxSpace(*bounds(agent.inputs, bounded=True))
        """What ``inputs`` takes."""
        self.observation_space: BoxSpace = BoxSpace(*bounds(agent.outputs, bounded=bounded))
        """What ``observe`` returns."""
        low, high = bounds(agent.inputs, bounded=True)
        self.neutral: NDArray[np.float32] = np.clip(np.zeros(len(low), np.float32), low, high)
        """float32[n_inputs]: what the agent rests at. 0, clipped into each input's range."""
        self.observation_names = [value.name for value in agent.outputs]
        """What the numbers of an observation are, for people."""
        self.action_names = [value.name for value in agent.inputs]
        """What the numbers of an action are, for people; a discrete action has none."""
        self.info_names = agent.info_names
        self.as_given: tuple[float, float] | None = None
        """An action of numbers between these is the inputs as it is; None: only ``inputs`` knows."""
        self.remark: Remark = unheard
        """Takes what users should know; the session sets it when it asks what the task wants."""
        self._outside: Outside | None = None
        self._unlooked = 0
        """Steps since an observation was looked at."""
        self._plain_info: PlainInfo | None = None
        """Of the episode's seed; None where each step's info names the infos."""

    # --- what a task may decide ------------------------------------------------------------------------------------

    def start_values(self, random: np.random.Generator) -> Mapping[str, str]:
        """Variables to set before a reset, in the simulator's text form; ``random`` is seeded by the episode."""
        return {}

    def inputs(self, action: Any) -> NDArray[np.float32]:
        """float32[n_inputs] for an action of ``action_space``. Raises LocalProtocolError for anything else."""
        return vector(action, len(self.agent.inputs), self.agent.name)

    def cut_action(self, missing: int) -> bool:
        """The action under way ends here, ``missing`` steps early, because another agent's episode ended.

        Returns whether the episode has had all its actions, and is to be truncated.
        """
        return False

    def observe(self, outcome: StepOutcome) -> NDArray[np.float32]:
        """float32[n]: the observation of an outcome; an array of the caller's own."""
        return outcome.outputs

    def judge(self, outcome: StepOutcome) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated."""
        return 0.0, False, False

    def restart(self, outcome: StepOutcome) -> None:
        """An episode begins with ``outcome``: forget the one before."""

    # --- what the bridge asks --------------------------------------------------------------------------------------

    def begin(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What the settling steps after a reset brought; their flags end nothing."""
        self.restart(outcome)
        observation = self.observe(outcome)
        self._look(observation)
        return Feedback(observation, info=self._info(outcome, seed=seed))

    def evaluate(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What a step brought."""
        reward, terminated, truncated = self.judge(outcome)
        observation = self.observe(outcome)
        self._unlooked += 1
        if self._unlooked >= SELDOM or terminated or truncated:
            self._look(observation)
        return Feedback(observation, reward, terminated, truncated, "", self._info_of(outcome, seed=seed))

    def cut(self, observation: NDArray[np.float32], reason: str, *, seed: int) -> Feedback:
        """The honest end of an episode whose last step cannot be told: the last observation again."""
        return Feedback.cut(observation, reason, seed=seed, info_names=self.info_names)

    def _look(self, observation: NDArray[np.float32]) -> None:
        """Tell of an observation that is not in its space, once."""
        self._unlooked = 0
        if self._outside is None:
            space = self.observation_space
            self._outside = Outside(self.agent.name, self.observation_names, space.low, space.high, LEFT)
        if self._outside.possible:
            self._outside.look(observation, self.remark)

    def share_plain_info(self) -> bool:
        """For whoever tells the infos as numbers: steps with nothing else to tell share a ``PlainInfo`` from now on.

        False: this class has its own way with a step's feedback, and goes on as before.
        """
        if not type(self).evaluate.__module__.startswith(f"{__package__}."):
            return False
        self._plain_info = _plain_info(0)
        return True

    def _info_of(self, outcome: StepOutcome, *, seed: int) -> dict[str, Any]:
        """A step's."""
        plain = self._plain_info
        if plain is None or outcome.events or outcome.values or outcome.restored:
            return self._info(outcome, seed=seed)
        if plain["osp_seed"] != seed:
            plain = self._plain_info = _plain_info(seed)
        return plain

    def _info(self, outcome: StepOutcome, *, seed: int) -> dict[str, Any]:
        return {
            "osp_seed": seed,
            # The session has checked that there is one for each name.
            "infos": dict(zip(self.info_names, outcome.infos.tolist())) if self.info_names else {},  # noqa: B905
            "events": outcome.events,
            "values": outcome.values,
            "restored": outcome.restored,
            "reason": "",
        }


@lru_cache(maxsize=16)
def _plain_info(seed: int) -> PlainInfo:
    """The same for all agents of a world."""
    return PlainInfo(osp_seed=seed, infos={}, events=(), values={}, restored=False, reason="")


def bounds(
    values: Sequence[InterfaceValue], *, bounded: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """float32[n] each. A range that is no range (NaN, empty, or the wrong way round) counts as unbounded."""
    low = np.full(len(values), -np.inf, np.float32)
    high = np.full(len(values), np.inf, np.float32)
    for at, value in enumerate(values):
        if bounded and value.min < value.max:
            low[at], high[at] = value.min, value.max
    return low, high


def vector(action: ArrayLike, length: int, agent: str) -> NDArray[np.float32]:
    """``action`` as float32[length]. Raises LocalProtocolError for another shape, or what cannot be read as numbers."""
    if type(action) is np.ndarray and action.dtype == FLOAT and action.shape == (length,):
        return action
    try:
        shape = np.shape(action)
        if shape == (length,):
            return np.asarray(action, np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        # RuntimeError: a tensor of torch that needs a gradient.
        why = f"an action of agent {agent!r} cannot be read as numbers: {error}"
    else:
        why = f"an action of agent {agent!r} has shape ({length},), got {shape}"
    raise LocalProtocolError(
        why, hint="env.action_space.sample() shows the form; `ospbridge describe` the meaning"
    )


def take_vector(mine: NDArray[np.float32], action: ArrayLike, agent: str) -> None:
    """Copy an action into ``mine``, float32[n]. Raises LocalProtocolError for another shape, NaN or infinity."""
    mine[:] = vector(action, len(mine), agent)
    finite(mine, agent)


def finite(action: NDArray[np.float32], agent: str) -> None:
    """Raises LocalProtocolError where float32[n] ``action`` holds NaN or infinity."""
    if not all_finite(action):
        at = int(np.flatnonzero(~np.isfinite(action))[0])
        raise LocalProtocolError(
            f"number {at} of an action of agent {agent!r} is {action[at]}; a simulator keeps NaN until its next reset",
            hint="check what the policy returned",
        )


def choice(action: Any, choices: int, agent: str) -> int:
    """``action`` as one of ``choices``. Raises LocalProtocolError for anything else."""
    try:
        chosen = index(action)
    except TypeError:
        chosen = -1
    if not 0 <= chosen < choices:
        raise LocalProtocolError(
            f"an action of agent {agent!r} is one of 0 to {choices - 1}, got {action!r}",
            hint="env.action_space.sample() shows the form",
        )
    return chosen


HINT: Final = (
    "all agents of a simulator step together: give their tasks the same action_repeat, by a scenario that matches all "
    "of them, or do not play them together"
)


def unlike(tasks: Iterable[Task]) -> dict[str, int]:
    """The ``action_repeat`` of each agent, of which the largest is taken for all; empty where they are equal."""
    repeats = {task.agent.name: task.action_repeat for task in tasks}
    return repeats if len(set(repeats.values())) > 1 else {}
