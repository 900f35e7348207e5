"""A scenario at work for one agent: the task that the tables of a file describe, and the base of tasks in Python.

A class named by ``task = "package.module:Class"`` derives from ``ScenarioTask`` and overrides what it wants to decide,
mostly ``judge``; everything else goes on as the file says.
"""

from __future__ import annotations

import shlex
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ScenarioInvalid, TaskError
from ospbridge.finite import all_finite
from ospbridge.interface import BoxSpace, Feedback
from ospbridge.task.acting import Actor
from ospbridge.task.base import Task
from ospbridge.task.choosing import need_one, spread
from ospbridge.task.expressions import Judge
from ospbridge.task.observing import Observer
from ospbridge.task.outside import SELDOM
from ospbridge.task.plain import REWARD, TERMINATED, TRUNCATED
from ospbridge.task.scenario import ResetObservation, Source, SourceKind
from ospbridge.task.variables import number_of
from ospbridge.toml.tables import Mistakes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, StepOutcome
    from ospbridge.task.scenario import AgentScenario, Scenario

__all__ = ["ScenarioTask"]

FEW: Final = 64
"""Outputs that are judged as plain numbers, which is sooner done than with an array."""
#: What decides where the scenario has no expression: the simulator's own info, if there is one, under a name that no
#: scenario can give.
_OFFERED: Final = {
    "reward": (REWARD, "offered__reward", "0.0"),
    "terminated": (TERMINATED, "offered__terminated > 0.5", "False"),
    "truncated": (TRUNCATED, "offered__truncated > 0.5", "False"),
}


class ScenarioTask(Task):
    """A scenario at work for one agent. A class of your own derives from it, and overrides methods.

    ``rules`` are the table of the scenario that matches the agent. Raises ScenarioInvalid, with all mistakes at once,
    where the scenario does not fit the agent.
    """

    def __init__(
        self, agent: AgentInterface, *, bounded: bool, scenario: Scenario, rules: AgentScenario
    ) -> None:
        super().__init__(agent, bounded=bounded)
        self.scenario = scenario
        self.scenario_name = scenario.name
        self.rules = rules
        mistakes = Mistakes()
        episode = rules.episode
        if episode.neutral is not None:
            names = [value.name for value in agent.inputs]
            given = spread(episode.neutral, names, self.neutral.tolist(), "episode.neutral", mistakes)
            self.neutral = np.array(given, np.float32)
        self.action_repeat = scenario.action_repeat
        self.events = episode.terminated_on
        self._zeros = episode.reset_observation is ResetObservation.ZEROS
        self.settle_steps = 0 if self._zeros else episode.settle_steps or 1
        self._horizon = self._last_step = (episode.max_steps or 0) * scenario.action_repeat
        self._phase = 1
        """Which step was the first one of an action."""
        self._ends = frozenset(episode.terminated_on)
        self._actor = Actor(agent, rules.action, self.neutral, mistakes)
        self._observer = Observer(agent, rules.observe, mistakes, bounded=bounded, remark=self._remark)
        self.action_space = self._actor.space
        self.observation_space: BoxSpace = self._observer.space
        self.action_names = self._actor.names
        self.observation_names = self._observer.all_names
        self.steps = 0
        """Steps of the simulator since the observation that began the episode."""
        self._equip(mistakes)
        if mistakes.found:
            found = [f"agent {agent.name!r}: {mistake}" for mistake in mistakes.found]
            raise ScenarioInvalid(
                f"{scenario.origin or scenario.name} does not fit",
                hint=f"`ospbridge describe {shlex.quote(agent.name)}` shows the names",
                mistakes=found,
                rows=found,
            )

    def _equip(self, mistakes: Mistakes) -> None:
        """Compile the expressions, and find where their numbers come from."""
        names = dict(self.rules.names)
        known = self.info_names
        sources = {}
        for decides, (info, offered, otherwise) in _OFFERED.items():
            given: str | None = getattr(self.rules.episode, decides)
            if given is None and info in known:
                names[f"offered__{decides}"] = Source(SourceKind.INFO, info)
                given = offered
            sources[decides] = otherwise if given is None else given
        for short, source in self.rules.names.items():
            if source.kind is not SourceKind.VALUE:
                need_one(source.name, self._names(source.kind), f"names.{short}", mistakes, str(source.kind))
        self._judge = Judge(sources, names)
        self._function = self._judge.function
        self._looks_back = self._judge.looks_back
        self._used = [names[name] for name in self._judge.names]
        self._step_seconds = self.scenario.time_step or 0.0
        wanted = [
            source.name for source in (*self._used, *self._observer.values) if source.kind is SourceKind.VALUE
        ]
        self.values = tuple(dict.fromkeys(wanted))
        self._readers = [] if mistakes.found else [self._reader(source) for source in self._used]
        kinds = {source.kind for source in self._used}
        self._actor.remembers = SourceKind.INPUT in kinds
        outputs_only = kinds <= {SourceKind.OUTPUT} and not mistakes.found
        indices = (
            [self._names(source.kind).index(source.name) for source in self._used] if outputs_only else []
        )
        self._outputs: Callable[[Sequence[float]], Any] | None = (
            itemgetter(*indices) if len(indices) > 1 else None
        )
        self._before: tuple[float, ...] = (0.0,) * len(self._used)
        self._inputs = self._actor.way
        self._minds_actions = self._actor.minds
        kind = type(self)
        if kind is ScenarioTask:
            self.as_given = self._actor.as_given
        if kind.inputs is ScenarioTask.inputs:
            self.inputs = self._inputs  # type: ignore[assignment, method-assign]  # a call less
        self._observes = kind.observe is not ScenarioTask.observe
        """Whether the class of a user does."""
        plain = (
            not self._observes
            and kind.judge is ScenarioTask.judge
            and not self._looks_back
            and self._observer.plain
            and len(self.agent.outputs) <= FEW
        )
        self._straight = self._judge.straight(indices) if plain and outputs_only else None
        """What the expressions say of the outputs, where these decide alone and are the observation as they come."""

    def _names(self, kind: SourceKind) -> list[str]:
        values = {
            SourceKind.OUTPUT: self.agent.outputs,
            SourceKind.INFO: self.agent.infos,
            SourceKind.INPUT: self.agent.inputs,
        }[kind]
        return [value.name for value in values]

    def _reader(self, source: Source) -> Callable[[StepOutcome], float]:
        """How to find a number in what a step brought."""
        if source.kind is SourceKind.VALUE:
            return lambda outcome: number_of(source, outcome, self.agent.name)
        at = self._names(source.kind).index(source.name)
        if source.kind is SourceKind.OUTPUT:
            return lambda outcome: outcome.outputs.item(at)
        if source.kind is SourceKind.INFO:
            return lambda outcome: outcome.infos.item(at)
        return lambda _: self._actor.given.item(at)

    # --- what a class may override ---------------------------------------------------------------------------------

    def start_values(self, random: np.random.Generator) -> Mapping[str, str]:
        """Variables to set before a reset, as text by name: the scenario's, and those drawn for this episode.

        ``random`` is seeded by the episode.
        """
        values = dict(self.scenario.values)
        for name, limits in self.scenario.randomise.items():
            values[name] = f"{random.uniform(limits.low, limits.high):.15g}"
        return values

    def inputs(self, action: Any) -> NDArray[np.float32]:
        """float32[n_inputs] for an action of ``action_space``, within bounds and rate.

        Raises LocalProtocolError for anything else.
        """
        return self._inputs(action)

    def observe(self, outcome: StepOutcome) -> NDArray[np.float32]:
        """float32[n], the observation of an outcome: the selected numbers, in range and scale."""
        outputs = outcome.outputs
        if self._observer.plain and all_finite(outputs):
            self._observer.reason = ""
            return outputs
        repeated = (self.steps - self._phase) % self.action_repeat != 0
        return self._observer.observe(outcome, repeated=repeated)

    def cut_action(self, missing: int) -> bool:
        """The next step is the first one of an action, and what is missing is not made up for."""
        self._phase = self.steps + 1
        if not self._horizon:
            return False
        self._last_step -= missing
        return self.steps >= self._last_step

    def judge(self, outcome: StepOutcome) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated, as the expressions say. Raises TaskError where one fails."""
        now = numbers = self._numbers(outcome)
        if self._looks_back:
            numbers = now + self._before
            self._before = now
        steps = self.steps
        time, step = steps * self._step_seconds, float(steps)
        try:
            reward, terminated, truncated = self._function(*numbers, time, step)
            reward = float(reward)
        except (ArithmeticError, ValueError, TypeError):
            raise self._failed(self._judge.explain((*numbers, time, step))) from None
        if not isfinite(reward):
            raise self._failed(f"reward = {self._judge.sources['reward']!r} is {reward}")
        return reward, bool(terminated), bool(truncated)

    def restart(self, outcome: StepOutcome) -> None:
        """An episode begins: nothing was given, and what is seen now is what was seen before."""
        self.steps = 0
        self._last_step = self._horizon
        self._phase = 1
        self._actor.restart()
        self._before = (0.0,) * len(self._used) if self._zeros else self._numbers(outcome)

    # --- what the bridge asks --------------------------------------------------------------------------------------

    def begin(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What the settling steps after a reset brought; their flags end nothing."""
        self.restart(outcome)
        observation = self._observer.zeros() if self._zeros else self._observer.first(outcome)
        if self._observes:
            space = self.observation_space
            nothing = np.clip(np.zeros_like(space.low), space.low, space.high)
            observation = nothing if self._zeros else self.observe(outcome)
        self._look(observation)
        return Feedback(observation, info=self._info(outcome, seed=seed))

    def evaluate(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What a step brought: the expressions, the events, the horizon and the policies of the sensors."""
        self.steps = steps = self.steps + 1
        if self._minds_actions:
            self._actor.taken()
        outputs = outcome.outputs
        judged = None
        # A sum of float32 in doubles is finite exactly when every one is.
        if self._straight is not None and isfinite(sum(numbers := outputs.tolist())):
            try:
                judged = self._straight(numbers, steps * self._step_seconds, float(steps))
                if not isfinite(judged[0]):
                    judged = None
            except (ArithmeticError, ValueError, TypeError):
                judged = None
        # The longer way says what is wrong.
        try:
            reward, terminated, truncated = self.judge(outcome) if judged is None else judged
        except TaskError:
            # Where it is about a number that is none, and that ends the episode, there is nothing to judge.
            observation = self.observe(outcome)
            if not self._observer.reason:
                raise
            return self.cut(observation, self._observer.reason, seed=seed)
        if outcome.events and not self._ends.isdisjoint(outcome.events):
            terminated = True
        if steps == self._last_step:
            truncated = True
        info = self._info_of(outcome, seed=seed)
        self._unlooked += 1
        look = self._unlooked >= SELDOM or terminated or truncated
        if judged is not None:
            if look:
                self._look(outputs)
            if type(reward) is not float:
                reward = float(reward)
            return Feedback(outputs, reward, bool(terminated), bool(truncated), "", info)
        observation = self.observe(outcome)
        reason = self._observer.reason
        if look:
            self._look(observation)
        if reason and not terminated:
            info = {**info, "reason": reason}
            return Feedback(observation, reward, terminated, True, reason, info)
        return Feedback(observation, reward, terminated, truncated, "", info)

    def _numbers(self, outcome: StepOutcome) -> tuple[float, ...]:
        """The numbers behind the short names that are used."""
        if self._outputs is not None:
            numbers: tuple[float, ...] = self._outputs(outcome.outputs.tolist())
            return numbers
        return tuple([read(outcome) for read in self._readers])

    def _remark(self, text: str, *, about: str = "") -> None:
        """To whoever listens by then."""
        self.remark(text, about=about)

    def _failed(self, what: str) -> TaskError:
        return TaskError(f"{self.scenario.origin or self.scenario.name}, agent {self.agent.name!r}: {what}")
