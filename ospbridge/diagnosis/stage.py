"""What probes share: the server, a line to it, its agents and variables, and the way from one state to the next.

Whatever a probe took is given back when its block ends; ``close`` gives back what is left.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.diagnosis.greeting import join
from ospbridge.diagnosis.line import SILENCE
from ospbridge.errors import AgentTaken, IncompleteListing, QueryTimeout
from ospbridge.interface import ValueEntry
from ospbridge.osp import agents
from ospbridge.osp.lists import list_once, list_values
from ospbridge.osp.messages import (
    GetValue,
    NextSimulationStep,
    NextSimulationStepAck,
    ResetSimulation,
    ResetSimulationAck,
    ResetSimulationCompleted,
    ResetSimulationCompletedAck,
    StepCompleted,
    StepCompletedAck,
    ValueContent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ospbridge.diagnosis.greeting import Server
    from ospbridge.diagnosis.line import Line, Reply
    from ospbridge.interface import AgentEntry, AgentInterface
    from ospbridge.osp.messages import Message
    from ospbridge.osp.profile import Profile

__all__ = ["Stage", "neutral"]

BARRIER: Final = 10.0
"""Seconds for a step or reset that all have voted for, as long as none was seen."""
SOON: Final = 1.0
"""Seconds, at least, for one when others were seen."""
UNFIRED: Final = 0.6
"""Seconds, at least, after which a step or reset that does not come was not run."""


class Stage:
    """A server under examination. ``timeout``: seconds for it to answer an INIT."""

    def __init__(self, place: Server, *, timeout: float) -> None:
        self.place = place
        self.server = place.address
        self.timeout = timeout
        self.line: Line = join(place, None, timeout=timeout)
        self.profile: Profile = self.line.profile
        self._others: list[Line] = []
        self._values: tuple[Line, tuple[ValueEntry, ...]] | None = None
        self._slowest = 0.0
        self._early: dict[int, Reply] = {}
        """Completions that came before the vote of their agent, or of another one, was acknowledged."""

    # --- connections -----------------------------------------------------------------------------------------------

    def rejoin(self) -> None:
        """Another line in place of one that was lost or is in an unknown state."""
        self.line.leave()
        self._early.clear()
        self.line = join(self.place, self.profile, timeout=self.timeout)

    @contextmanager
    def second_client(self) -> Iterator[Line]:
        """Another connection, for the length of the block."""
        line = join(self.place, self.profile, timeout=self.timeout)
        self._others.append(line)
        try:
            yield line
        finally:
            line.leave()
            self._others.remove(line)

    def close(self) -> None:
        """Leave on every line."""
        for line in (*self._others, self.line):
            line.leave()

    # --- what there is ---------------------------------------------------------------------------------------------

    def agents(self) -> list[AgentEntry]:
        """All agents, as they are now."""
        return list(self.line.listed(agents.overview(self.line.lists)))

    def taken_by_others(self) -> list[str]:
        """Agents that other clients control."""
        return [a.name for a in self.agents() if not a.available and a.id not in self.line.controlled]

    def interface(self, agent: AgentEntry) -> AgentInterface:
        """What an agent has."""
        found = self.line.listed(agents.agent_info(self.line.lists, agent.id))
        return replace(found, name=agent.name, type=agent.type)

    def values(self) -> tuple[ValueEntry, ...]:
        """All variables, with their ids on the line of now."""
        if self._values is None or self._values[0] is not self.line:
            self._values = self.line, self.line.listed(list_values(self.line.lists, ".*"))
        return self._values[1]

    def find(self, expression: str) -> list[ValueEntry]:
        """The variables that the server finds for an expression. Raises QueryTimeout where some stay missing."""
        found = self.line.listed(list_once(self.line.lists, expression))
        entries = [ValueEntry(piece.value_id, piece.name, piece.type) for piece in found.pieces]
        if not found.complete:
            raise IncompleteListing(
                f"{self.server}: only {len(entries)} of {found.total} values that fit {expression!r} arrived"
            )
        return entries

    def value_named(self, name: str) -> ValueEntry | None:
        """The variable of exactly that name."""
        return next((entry for entry in self.values() if entry.name == name), None)

    def content(self, value: ValueEntry) -> str:
        """What a variable holds."""
        reply = self.line.ask(
            GetValue(value.id),
            ValueContent,
            fits=lambda reply: isinstance(reply, ValueContent) and reply.value_id == value.id,
        ).message
        assert isinstance(reply, ValueContent)
        return reply.content

    # --- the barrier -----------------------------------------------------------------------------------------------

    @contextmanager
    def controlling(self, count: int) -> Iterator[list[AgentInterface]]:
        """So many free agents, for the length of the block."""
        free = [agent for agent in self.agents() if agent.available][:count]
        if len(free) < count:
            raise AgentTaken(f"{self.server} has {len(free)} free agents by now, expected {count}")
        interfaces = [self.interface(agent) for agent in free]
        line = self.line
        try:
            for agent in free:
                line.take(agent)
            yield interfaces
        finally:
            line.give_back()

    @property
    def unfired(self) -> float:
        """Seconds after which a step or reset that does not come was not run, by what the others took."""
        return max(UNFIRED, 3.0 * self._slowest)

    @property
    def barrier(self) -> float:
        """Seconds for a step or reset that all have voted for: then its completion, or a vote, was lost."""
        return max(SOON, 5.0 * self._slowest) if self._slowest else BARRIER

    def reset(self, votes: int, seed: int = 0) -> Message:
        """Reset the world with so many votes: what the server said when it was done. Raises QueryTimeout."""
        for _ in range(votes):
            self.line.send(ResetSimulation(seed))
            self.line.heard(ResetSimulationAck)
        began = monotonic()
        told = self.reset_told(self.line, self.barrier)
        if told is None:
            raise QueryTimeout(f"{self.server} did not complete a reset within {self.barrier:.1f} s")
        self._slowest = max(self._slowest, monotonic() - began)
        return told

    def reset_told(self, line: Line, wait: float) -> Message | None:
        """The notification of a reset on this line, and its acknowledgement; None if there is none."""
        reply = line.heard(ResetSimulationCompleted, ResetSimulationCompletedAck, wait=wait)
        if reply is None:
            return None
        self.acknowledge_reset(line, reply.message)
        return reply.message

    def acknowledge_reset(self, line: Line, told: Message) -> None:
        """Answer with the other of the two codes."""
        was_75 = isinstance(told, ResetSimulationCompleted)
        line.send(ResetSimulationCompletedAck() if was_75 else ResetSimulationCompleted())

    def vote(self, agent: AgentInterface, inputs: NDArray[np.float32] | None = None) -> bool:
        """Ask for a step; whether that was acknowledged."""
        self._early.pop(agent.id, None)
        self.line.send(NextSimulationStep(agent.id, neutral(agent) if inputs is None else inputs))
        until = monotonic() + SILENCE
        while (
            reply := self.line.heard(NextSimulationStepAck, StepCompleted, wait=until - monotonic())
        ) is not None:
            if not isinstance(reply.message, StepCompleted):
                return True
            # A server may acknowledge the vote that ran a step behind that step.
            self._early[reply.message.agent_id] = reply
        return False

    def completion(self, wait: float | None = None) -> Reply | None:
        """One agent's share of a step, with what is pushed behind it, acknowledged; None if there is none."""
        if self._early:
            reply: Reply | None = self._early.pop(next(iter(self._early)))
        else:
            reply = self.line.heard(StepCompleted, wait=self.barrier if wait is None else wait)
        if reply is None:
            return None
        assert isinstance(reply.message, StepCompleted)
        for _ in range(min(reply.message.observed, 10_000)):
            if self.line.heard(ValueContent) is None:
                break
        self.line.send(StepCompletedAck(reply.message.agent_id))
        return reply

    def step(
        self, agents: Sequence[AgentInterface], inputs: NDArray[np.float32] | None = None
    ) -> list[Reply]:
        """A step of all agents that are ours: the completions, in the order in which they came."""
        for agent in agents:
            self.vote(agent, inputs)
        began = monotonic()
        replies = []
        for _ in agents:
            reply = self.completion()
            if reply is None:
                # Frees a handler that waits for the answer to a completion that was lost; else it does nothing.
                self.line.send(StepCompletedAck(agents[0].id))
                raise QueryTimeout(f"{self.server} did not complete a step within {self.barrier:.1f} s")
            replies.append(reply)
        self._slowest = max(self._slowest, monotonic() - began)
        return replies


def neutral(agent: AgentInterface) -> NDArray[np.float32]:
    """float32[n_inputs]: 0, clipped into each input's range."""
    low = np.array([value.min for value in agent.inputs], np.float32)
    high = np.array([value.max for value in agent.inputs], np.float32)
    return np.nan_to_num(np.clip(np.zeros(len(low), np.float32), low, high))
