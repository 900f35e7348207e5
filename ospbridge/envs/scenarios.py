"""What an environment makes of its scenario: which agent it wants, and the task that it plays."""

from __future__ import annotations

import os
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

from ospbridge.errors import AgentNotFound, UsageError
from ospbridge.interface import BoxSpace
from ospbridge.task.loading import load
from ospbridge.task.making import make_task
from ospbridge.task.plain import PlainTask
from ospbridge.task.scenario import NotFinite
from ospbridge.task.shipped import shipped
from ospbridge.task.vectors import observed_vectors, spelled_out, undecided

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ospbridge.interface import AgentInterface, Match, Space
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.task.base import Task

__all__ = ["EnvScenario"]


class EnvScenario:
    """``scenario``: a TOML file, the name of a shipped one, or None; ``not_finite``: for want of one, None: the usual.

    Raises ScenarioNotFound, ScenarioInvalid, and UsageError for ``not_finite`` beside a scenario, which has its own.
    """

    def __init__(self, scenario: str | None, not_finite: str | None = None) -> None:
        if scenario is not None and not isinstance(scenario, str | PathLike):
            raise UsageError(
                f"scenario is a text, got {scenario!r}",
                hint=f"name a TOML file, or one of {', '.join(shipped())}",
            )
        self._not_finite = _not_finite(not_finite, scenario)
        self._called = scenario
        self._scenario = None if scenario is None else load(scenario)

    def agent(self, asked: str | None) -> str | None:
        """The name or glob of the agent: what was asked for, else what the scenario matches."""
        if asked is not None or self._scenario is None or len(self._scenario.agent) != 1:
            return asked
        match = self._scenario.agent[0].match
        return match.name if match.name != "*" else None

    def tasks(self, session: BlockingSession, agents: Iterable[AgentInterface]) -> list[Task]:
        """The tasks of agents of this session's simulator, which tells which variables are vectors.

        Raises AgentNotFound where the scenario has none for one of them, ScenarioInvalid, and what asking raises.
        """
        bounded = session.profile.outputs_normalised
        scenario = self._scenario
        if scenario is None:
            return [PlainTask(agent, bounded=bounded, not_finite=self._not_finite) for agent in agents]
        agents = tuple(agents)
        names = undecided(filter(None, map(scenario.for_agent, agents)))
        if names:
            # Else nothing is asked: another environment that shares the session may be about to hear that it is lost.
            scenario = spelled_out(scenario, session.components(names))
        return [make_task(scenario, agent, bounded=bounded) for agent in agents]

    def agents(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Names or globs of agents: what was asked for, else what the scenario matches."""
        if asked or self._scenario is None:
            return asked
        return tuple(dict.fromkeys(table.match.name for table in self._scenario.agent))

    @contextmanager
    def blamed(self, asked: str | Sequence[str] | None) -> Iterator[None]:
        """Who named no agent is told that an agent that is not there is the scenario's."""
        try:
            yield
        except AgentNotFound as error:
            if asked or self._scenario is None:
                raise
            told = " or ".join(map(str, self.meant))
            raise AgentNotFound(
                f"{error.message}; scenario {str(self._called)!r} is for {told}", hint=error.hint
            ) from None

    @property
    def meant(self) -> tuple[Match, ...]:
        """The agents that the scenario has tasks for, by name and type; empty without one."""
        return () if self._scenario is None else tuple(table.match for table in self._scenario.agent)

    def compare(
        self,
        agent: AgentInterface,
        observation: BoxSpace,
        action: Space,
        played: str | None,
        names: Sequence[str],
    ) -> None:
        """A daemon runs its own tasks: raises UsageError where its spaces are not those of this scenario's task.

        So it does where ``played``, the name of the daemon's scenario, is another one; None: it is not known. A daemon
        without one plays what a scenario means that only chooses agents. ``names``: of the numbers of an observation,
        which tell the components of vectors.
        """
        scenario = self._scenario
        if scenario is None:
            return
        alike = played in (None, scenario.name) or (played == "" and scenario.only_chooses(agent))
        if not alike:
            raise self._another(agent, f"that of scenario {played!r}" if played else "that of no scenario")
        scenario = spelled_out(scenario, observed_vectors(filter(None, [scenario.for_agent(agent)]), names))
        for bounded in (True, False):
            task = make_task(scenario, agent, bounded=bounded)
            if (task.observation_space, task.action_space) == (observation, action):
                return
        raise self._another(agent, "its spaces differ")

    def _another(self, agent: AgentInterface, why: str) -> UsageError:
        return UsageError(
            f"the daemon plays another task than that of scenario {self._called!r} "
            f"with agent {agent.name!r}: {why}",
            hint=f"start it with `ospbridge connect --scenario {self._called}`",
        )


def _not_finite(given: str | None, scenario: str | os.PathLike[str] | None) -> NotFinite:
    if given is None:
        return NotFinite.END
    try:
        chosen = NotFinite(given)
    except ValueError:
        raise UsageError(
            f"not_finite is one of {', '.join(map(repr, map(str, NotFinite)))}, got {given!r}",
            hint="'end' ends the episode, 'zero' makes it 0, 'pass' passes it on",
        ) from None
    if scenario is not None:
        raise UsageError(
            f"not_finite={given!r} was given beside scenario {os.fspath(scenario)!r}, which says it itself",
            hint=f'leave it out, or write not_finite = "{chosen}" in [agent.observe] of the scenario',
        )
    return chosen
