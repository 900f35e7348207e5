"""Several agents of one simulator driven by one environment: over a session of this process, or through a hub.

Agents of a session step and reset together. An agent whose episode is over rests at its neutral inputs until the
episodes of all are over.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from ospbridge.errors import (
    BarrierStuck,
    HubLost,
    OspBridgeError,
    OutputsIncomplete,
    QueryTimeout,
    SessionClosed,
    SessionLost,
    StepUncertain,
    UsageError,
)
from ospbridge.hub.framing import encode
from ospbridge.hub.messages import Feedbacks, Reset, Step
from ospbridge.interface import BoxSpace, Feedback, StepOutcome
from ospbridge.osp.client import WorldReset
from ospbridge.session.hub_client import feedback_of
from ospbridge.task.base import choice, finite, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ospbridge.envs.sharing import SharedSession
    from ospbridge.hub.messages import Attached
    from ospbridge.interface import AgentInterface, Space
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.session.hub_client import HubClient
    from ospbridge.task.base import Task

__all__ = ["DirectGroup", "Group", "HubGroup"]

TRIES: Final = 2
"""A reset that finds the session lost rebuilds it and tries once more."""
MARGIN: Final = 10.0
"""Seconds that the daemon may take beyond its own limits."""


class Group(Protocol):
    """Agents of one simulator, taken, and their tasks at work; everything by agent name."""

    interfaces: dict[str, AgentInterface]
    observation_spaces: dict[str, BoxSpace]
    action_spaces: dict[str, Space]

    def reset(self, seed: int) -> dict[str, Feedback]:
        """Reset the world and let it settle; all agents play. ``seed`` in [1, 2**31 - 1]."""
        ...

    def step(self, actions: Mapping[str, Any]) -> dict[str, Feedback]:
        """One action of every agent that plays; what they return. A lost session truncates them all."""
        ...

    def close(self) -> None:
        """Give the agents back, within 2 s. Safe to call again."""
        ...


class DirectGroup:
    """Agents of a session of this process."""

    def __init__(self, shared: SharedSession, make_task: Callable[..., Task]) -> None:
        self._shared = shared
        bounded = shared.session.profile.outputs_normalised
        self._tasks = {agent.name: make_task(agent, bounded=bounded) for agent in shared.agents}
        self.interfaces = {agent.name: agent for agent in shared.agents}
        self.observation_spaces = {name: task.observation_space for name, task in self._tasks.items()}
        self.action_spaces = {name: task.action_space for name, task in self._tasks.items()}
        self._inputs: dict[str, NDArray[np.float32]] = {}
        self._last: dict[str, NDArray[np.float32]] = {}
        self._playing: list[str] = []
        self._seed = 0
        self._closed = False
        self._equip()

    def _equip(self) -> None:
        """Ask the simulator for the events and variables that the tasks want."""
        session = self._shared.session
        tasks = self._tasks.values()
        for event in dict.fromkeys(event for task in tasks for event in task.events):
            if not session.register_event(event):
                raise UsageError(
                    f"{session.server} has no event {event!r}, which a task wants",
                    hint="events must be named exactly; see the simulator's own documents",
                )
        wanted = list(dict.fromkeys(name for task in tasks for name in task.values))
        if wanted:
            session.watch(*wanted)

    def reset(self, seed: int) -> dict[str, Feedback]:
        """Rebuild the session where it was lost, reset the world, take the neutral steps."""
        shared = self._open()
        self._seed = seed
        self._playing = []
        for tried in range(TRIES):
            if shared.broken:
                self._rebuild()
            try:
                # What others did before this reset concerns no episode of ours.
                shared.session.take_notices()
                outcomes = self._settled(shared.session, seed)
            except BarrierStuck as error:
                shared.broken = error.message
                raise
            except (SessionLost, StepUncertain, OutputsIncomplete, QueryTimeout) as error:
                shared.broken = error.message
                if tried + 1 == TRIES:
                    raise
                continue
            self._playing = list(self._tasks)
            found = {name: task.begin(outcomes[name], seed=seed) for name, task in self._tasks.items()}
            self._remember(found)
            return found
        raise AssertionError("the loop returns or raises")

    def _settled(self, session: BlockingSession, seed: int) -> dict[str, StepOutcome]:
        tasks = self._tasks
        values: dict[str, str] = {}
        for task in tasks.values():
            values.update(task.start_values(np.random.default_rng(seed)))
        for name, text in values.items():
            session.set(name, text)
        session.reset(seed)
        self._inputs = {name: task.neutral for name, task in tasks.items()}
        outcomes = {
            name: StepOutcome(
                np.zeros(len(task.agent.outputs), np.float32), np.zeros(len(task.agent.infos), np.float32)
            )
            for name, task in tasks.items()
        }
        for _ in range(max(task.settle_steps for task in tasks.values())):
            outcomes = session.step(self._inputs)
        return outcomes

    def _rebuild(self) -> None:
        shared = self._shared
        before = [_ranges(agent) for agent in self.interfaces.values()]
        shared.rebuild()
        if [_ranges(agent) for agent in shared.agents] != before:
            raise SessionLost(
                f"the agents of {shared.terms.simulator} came back with another interface after it restarted",
                hint="make the environment anew",
            )
        self._equip()

    def step(self, actions: Mapping[str, Any]) -> dict[str, Feedback]:
        """One step. Episodes that cannot be told exactly end truncated, with the reason."""
        shared = self._open()
        tasks = {name: self._tasks[name] for name in self._playing}
        inputs = {name: task.inputs(actions[name]) for name, task in tasks.items()}
        self._inputs.update(inputs)
        try:
            found = self._evaluated(shared.session, tasks)
        except BarrierStuck as error:
            self._playing = []
            shared.broken = error.message
            raise
        except (SessionLost, StepUncertain, OutputsIncomplete, QueryTimeout) as error:
            self._playing = []
            shared.broken = error.message
            return {
                name: task.cut(self._last[name].copy(), error.message, seed=self._seed)
                for name, task in tasks.items()
            }
        self._remember(found)
        reason = self._foreign_reset(shared.session) if shared.session.machine.notices else ""
        if reason or any(_over(feedback) for feedback in found.values()):
            self._end(found, reason or self._audit())
        return found

    def _evaluated(self, session: BlockingSession, tasks: Mapping[str, Task]) -> dict[str, Feedback]:
        """The step, repeated as the tasks want it: equally often for all, because all step together."""
        found: dict[str, Feedback] = {}
        for _ in range(max(task.action_repeat for task in tasks.values())):
            outcomes = session.step(self._inputs)
            before = found
            found = {name: task.evaluate(outcomes[name], seed=self._seed) for name, task in tasks.items()}
            for name, feedback in before.items():
                found[name].reward += feedback.reward
            if any(_over(feedback) for feedback in found.values()):
                break
        return found

    def _remember(self, found: Mapping[str, Feedback]) -> None:
        for name, feedback in found.items():
            self._last[name] = feedback.observation

    def _foreign_reset(self, session: BlockingSession) -> str:
        return next((n.text for n in session.take_notices() if isinstance(n, WorldReset)), "")

    def _audit(self) -> str:
        """Why the steps cannot be trusted; empty where the simulator's clock agrees with them."""
        try:
            reason = self._shared.session.audit()
        except OspBridgeError as error:
            reason = error.message
        if reason:
            self._shared.broken = reason
        return reason

    def _end(self, found: dict[str, Feedback], reason: str) -> None:
        """Those whose episode is over rest; with ``reason`` all are truncated."""
        for name, feedback in found.items():
            if reason:
                feedback.terminated = False
                feedback.truncated = True
                feedback.reason = feedback.info["reason"] = reason
            if _over(feedback):
                self._playing.remove(name)
                self._inputs[name] = self._tasks[name].neutral

    def _open(self) -> SharedSession:
        if self._closed:
            raise SessionClosed("this environment was closed")
        if self._shared.pid != os.getpid():
            raise SessionClosed(
                "this environment belongs to the parent process",
                hint="make environments in the process that steps them",
            )
        return self._shared

    def close(self) -> None:
        """Leave the session."""
        if not self._closed:
            self._closed = True
            self._shared.release()


class HubGroup:
    """Agents of a daemon. Its reset policy decides what the end of one episode means for the others."""

    def __init__(self, client: HubClient, attached: Attached) -> None:
        self._client = client
        self._descriptions = attached.agents
        self.interfaces = {agent.name: agent.interface() for agent in attached.agents}
        self.observation_spaces = {agent.name: agent.observation_space() for agent in attached.agents}
        self.action_spaces = {agent.name: agent.action_space() for agent in attached.agents}
        self._info_names = {
            name: [value.name for value in agent.infos] for name, agent in self.interfaces.items()
        }
        self._last: dict[str, Feedback] = {}
        self._playing: list[str] = []
        self._frame = bytearray()
        self._learn_limits(attached)

    def _learn_limits(self, attached: Attached) -> None:
        """The daemon waits for others, and then for the simulator."""
        self._step_limit = 2 * attached.step_timeout + MARGIN
        self._reset_limit = 2 * attached.reset_timeout + attached.step_timeout + MARGIN

    def reset(self, seed: int) -> dict[str, Feedback]:
        """Wait for the reset and the neutral step after it. Attaches again where the daemon was lost."""
        client = self._client
        client.check()
        if client.lost:
            self._attach_again()
        self._playing = []
        request = Reset(list(self.interfaces), seed, threading.get_native_id())
        found = self._feedbacks(client.ask(request, Feedbacks, self._reset_limit))
        self._playing = list(found)
        return found

    def _attach_again(self) -> None:
        attached = self._client.reopen(*self.interfaces)
        if attached.agents != self._descriptions:
            self._client.lose()
            raise SessionLost(
                "the agents came back with another interface after the daemon restarted",
                hint="make the environment anew",
            )
        self._learn_limits(attached)

    def step(self, actions: Mapping[str, Any]) -> dict[str, Feedback]:
        """One step, in one message. A daemon that went away truncates all."""
        client = self._client
        client.check()
        moves = [(name, self._told(name, actions[name])) for name in self._playing]
        encode(Step(moves), self._frame)
        try:
            reply = client.exchange(self._frame, self._step_limit)
        except HubLost as error:
            return self._cut(error.message)
        if not isinstance(reply, Feedbacks):
            raise client.failed(reply)
        found = self._feedbacks(reply)
        self._playing = [name for name in self._playing if not _over(found[name])]
        return found

    def _told(self, name: str, action: Any) -> bytes:
        """An action as the hub takes it: float32 bytes."""
        space = self.action_spaces[name]
        if isinstance(space, BoxSpace):
            numbers = vector(action, len(space.low), name)
            finite(numbers, name)
        else:
            numbers = np.array([choice(action, space.n, name)], np.float32)
        return numbers.astype("<f4").tobytes()

    def _feedbacks(self, reply: Feedbacks) -> dict[str, Feedback]:
        found = {told.agent: feedback_of(told, self._info_names[told.agent]) for told in reply.agents}
        self._last.update(found)
        return found

    def _cut(self, reason: str) -> dict[str, Feedback]:
        """The honest end of episodes whose last step cannot be told: the last observation again."""
        found = {}
        for name in self._playing:
            last = self._last[name]
            info = {
                "osp_seed": last.info["osp_seed"],
                "infos": dict.fromkeys(self._info_names[name], float("nan")),
                "events": (),
                "values": {},
                "restored": False,
                "reason": reason,
            }
            found[name] = Feedback(last.observation.copy(), truncated=True, reason=reason, info=info)
        self._playing = []
        return found

    def close(self) -> None:
        """Give the agents back."""
        self._client.close(detach=True)


def _over(feedback: Feedback) -> bool:
    return feedback.terminated or feedback.truncated


def _ranges(agent: AgentInterface) -> list[tuple[str, float, float]]:
    return [(value.name, value.min, value.max) for value in (*agent.inputs, *agent.outputs)]
