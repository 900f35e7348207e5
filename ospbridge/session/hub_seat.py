"""One agent of a running daemon, taken: its resets and steps, for blocking callers."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, TypeAlias

import numpy as np

from ospbridge.errors import HubLost
from ospbridge.hub.framing import encode
from ospbridge.hub.recurring import FLOAT, AgainFrame
from ospbridge.hub.replies import Attached, Feedbacks, Numbers
from ospbridge.hub.requests import AnnotatedStep, Reset, Step
from ospbridge.interface import BoxSpace, DiscreteSpace, DrawnSeed, Feedback, Space
from ospbridge.session.annotating import NextNote
from ospbridge.session.arguments import seed_of
from ospbridge.task.base import choice, take_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.hub.replies import AgentFeedback
    from ospbridge.interface import AgentInterface
    from ospbridge.session.hub_client import HubClient

__all__ = ["Expected", "HubSeat", "answer_limits", "feedback_of", "misfit"]

MARGIN: Final = 10.0
"""Seconds that the daemon may take beyond its own limits."""
_REWARD: Final = struct.Struct("<d")
Expected: TypeAlias = tuple[str, int, int]
"""An agent, and the bytes of its observation and of its infos."""


class HubSeat:
    """One agent of the daemon, taken: what an environment needs of it. Make one with ``HubClient.attach``.

    Close it, or use it as a context manager. Not for several threads.
    """

    def __init__(self, client: HubClient, attached: Attached, *, annotates: bool = False) -> None:
        (agent,) = attached.agents
        self._client = client
        self.interface: AgentInterface = agent.interface()
        self.next_note = NextNote(self.interface.name) if annotates else None
        """Must be set before each step; None where nobody annotates."""
        self.outputs_normalised = attached.outputs_normalised
        self.observation_space: BoxSpace = agent.observation_space()
        self.action_space: Space = agent.action_space()
        self.observation_names, self.action_names = agent.names()
        self.scenario = agent.scenario
        """The name of that which the daemon plays; empty: none, None: it does not say."""
        self._description = agent
        self._info_names = self.interface.info_names
        self._step_limit, self._reset_limit = answer_limits(attached)
        self._choices = self.action_space.n if isinstance(self.action_space, DiscreteSpace) else 0
        count = len(self.action_space.low) if isinstance(self.action_space, BoxSpace) else 1
        self._told = 4 * len(self.observation_space.low), 4 * len(self._info_names), _REWARD.size
        """Bytes of an observation, of the infos and of a reward."""
        self._expected = ((self.interface.name, *self._told[:2]),)
        self._again = AgainFrame(count)
        self._action = self._again.numbers
        """float32[count] of the step to come."""
        self._named = False
        """The daemon was told whose action it is, since the latest reset: the number is enough from then on."""

    def reset(self, seed: SupportsIndex = 0) -> Feedback:
        """Wait for the reset (int32 seed, 0: the daemon draws one) and the neutral step after it.

        Attaches again where the daemon was lost, also where that shows only now: a reset may be asked for twice. Raises
        LocalProtocolError for what is no seed, AgentsInUse where this thread plays another agent of the simulator,
        BarrierStuck, HubLost, HubNotFound, SessionClosed, and SessionLost where the agent came back with another
        interface.
        """
        number = seed_of(seed)
        client = self._client
        client.check()
        self._named = False
        if self.next_note is not None:
            self.next_note.clear()
        if client.lost:
            self._attach_again()
        request = Reset([self.interface.name], number, threading.get_native_id(), isinstance(seed, DrawnSeed))
        try:
            reply = client.ask(request, Feedbacks, self._reset_limit)
        except HubLost:
            if not client.hung_up:
                raise
            self._attach_again()
            reply = client.ask(request, Feedbacks, self._reset_limit)
        return self._only(reply)

    def _attach_again(self) -> None:
        attached = self._client.reopen([self._description], annotates=self.next_note is not None)
        self._step_limit, self._reset_limit = answer_limits(attached)

    def step(self, action: Any) -> Feedback:
        """One step: float32[n] in the bounds of ``action_space``, or the number of a choice.

        Raises LocalProtocolError for an action that cannot be sent, and where no episode is under way; HubLost,
        SessionClosed.
        """
        if self._choices:
            self._action[0] = choice(action, self._choices, self.interface.name)
        else:
            take_vector(self._action, action, self.interface.name)
        client = self._client
        reply = client.exchange_step(self._again.frame if self._named else self._by_name(), self._step_limit)
        if type(reply) is Numbers and self._fits(reply):
            return self._feedback(reply)
        if type(reply) is not Feedbacks:
            raise client.failed(reply)
        found = self._only(reply)
        self._named = self.next_note is None
        return found

    def _only(self, reply: Feedbacks) -> Feedback:
        """What it says of the agent. Raises HubLost where it says anything else."""
        if why := misfit(reply, self._expected):
            raise self._client.failed(reply, why)
        return feedback_of(reply.agents[0], self._info_names)

    def _by_name(self) -> bytearray:
        """The message of a step."""
        frame = bytearray()
        name, action = self.interface.name, self._action.tobytes()
        if self.next_note is None:
            encode(Step([(name, action)]), frame)
        else:
            encode(AnnotatedStep([(name, action, self.next_note.note)]), frame)
            self.next_note.clear()
        return frame

    def _fits(self, told: Numbers) -> bool:
        return (len(told.observations), len(told.infos), len(told.rewards)) == self._told

    def _feedback(self, told: Numbers) -> Feedback:
        """What a step brought that ended nothing."""
        names = self._info_names
        info = {
            "osp_seed": told.seed,
            "infos": dict(zip(names, np.frombuffer(told.infos, FLOAT).tolist(), strict=True))
            if names
            else {},
            "events": (),
            "values": {},
            "restored": False,
            "reason": "",
        }
        (reward,) = _REWARD.unpack(told.rewards)
        return Feedback(np.frombuffer(told.observations, FLOAT), reward, False, False, "", info)

    def forgo(self) -> None:
        """Nobody is told what the latest step brought: drop the connection, so that the next one tells so."""
        self._client.lose()

    def close(self) -> None:
        """Give the agent back, within 2 s, and close the client. Safe to call again."""
        self._client.close(detach=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answer_limits(attached: Attached) -> tuple[float, float]:
    """Seconds for the answers to a step and to a reset: the daemon waits for others, and then for the simulator."""
    step, reset = attached.step_timeout, attached.reset_timeout
    return 2 * step + MARGIN, 2 * reset + step + MARGIN


def misfit(reply: Feedbacks, expected: Sequence[Expected]) -> str:
    """What keeps it from being the answer about these agents, in their order; empty: nothing."""
    if len(reply.agents) != len(expected):
        return f"of {len(reply.agents)} agents instead of {len(expected)}"
    for told, (name, observed, informed) in zip(reply.agents, expected, strict=True):
        if told.agent != name:
            return f"of agent {told.agent!r} instead of {name!r}"
        if len(told.observation) != observed or len(told.infos) != informed:
            return (
                f"with {len(told.observation)} bytes of observation and {len(told.infos)} of infos of agent "
                f"{name!r}, expected {observed} and {informed}"
            )
    return ""


def feedback_of(told: AgentFeedback, info_names: Sequence[str]) -> Feedback:
    """What the daemon tells of one agent, as ``misfit`` has let it pass; its infos by name."""
    reason = told.reason
    return Feedback(
        np.frombuffer(told.observation, FLOAT),
        told.reward,
        told.terminated,
        told.truncated,
        reason,
        {
            "osp_seed": told.seed,
            "infos": dict(zip(info_names, np.frombuffer(told.infos, FLOAT).tolist(), strict=True))
            if info_names or told.infos
            else {},
            "events": told.events,
            "values": told.values,
            "restored": told.restored,
            "reason": reason,
        },
    )
