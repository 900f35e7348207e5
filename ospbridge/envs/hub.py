"""Agents driven through a daemon's hub: one message speaks for all agents of a connection.

The daemon's reset policy decides what the end of one agent's episode means for the others. A daemon that went away is
attached to again by the next reset.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

import numpy as np

from ospbridge.envs.annotations import NextNote
from ospbridge.envs.backend import ActionRows, DrivenAgent, FeedbackRows
from ospbridge.errors import AgentNotFound, HubLost, RemoteProtocolError
from ospbridge.finite import all_finite
from ospbridge.hub.framing import decode_reply, encode
from ospbridge.hub.recurring import FLOAT, REWARD, AgainFrame
from ospbridge.hub.replies import Feedbacks, Numbers
from ospbridge.hub.requests import AnnotatedStep, Reset, Step
from ospbridge.interface import BoxSpace, DrawnSeed, Feedback, step_info
from ospbridge.session.names import agent_name, seed_of
from ospbridge.task.base import choice, finite, take_vector, vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.backend import Found
    from ospbridge.hub.replies import Attached, HubReply
    from ospbridge.interface import AgentInterface, Match, Space
    from ospbridge.session.hub_client import HubClient

__all__ = ["AgentHandle", "HubBackend", "HubRows", "attach_one"]

MARGIN: Final = 10.0
"""Seconds that the daemon may take beyond its own limits."""
LONG: Final = 16_384
"""Numbers of a message beside which its objects take no time."""
_REWARD: Final = struct.Struct("<d")


class HubBackend:
    """The agents that a client has attached to. Closing the backend closes the client."""

    def __init__(self, client: HubClient, attached: Attached, *, annotates: bool = False) -> None:
        self._descriptions = attached.agents
        self.agents = {
            agent.name: DrivenAgent(
                agent.interface(), agent.observation_space(), agent.action_space(), *agent.names()
            )
            for agent in attached.agents
        }
        name, first = next(iter(self.agents.items()))
        self._only = name, first.action_space
        """The only agent, and what it takes."""
        self.scenarios = {agent.name: agent.scenario for agent in attached.agents}
        """The names of those that the daemon plays; empty: none, None: it does not say."""
        self.next_notes = {name: NextNote(name) for name in self.agents} if annotates else {}
        """Each must be set before a step; none where nobody annotates."""
        self._client = client
        self._limits = answer_limits(attached)
        """Seconds for the answers to a step and to a reset."""
        self._last: Found = {}
        self._playing: list[str] = []
        self._named = False
        """A step that named all agents was answered since the latest reset: numbers are enough from then on."""
        self._rows = HubRows(self.agents)
        self._frame = bytearray()
        """What is to be sent."""
        self._reason = ""
        """Why the step could not even be sent."""

    # --- resets ------------------------------------------------------------------------------------------------------

    def reset(self, seed: int) -> Found:
        """Wait for the reset and the neutral step after it. Attaches again where the daemon was lost."""
        self.ask_reset(seed)
        return self.begun()

    def ask_reset(self, seed: int) -> None:
        """The first half of ``reset``; ``begun`` must follow."""
        client = self._client
        client.check()
        if client.lost:
            self._attach_again()
        self._playing = []
        self._named = False
        self._clear_notes()
        self._frame = bytearray()
        encode(Reset(int(seed), threading.get_native_id(), isinstance(seed, DrawnSeed)), self._frame)
        try:
            client.send(self._frame, self._limits[1])
        except HubLost as error:
            self._ask_again(error)

    def _ask_again(self, error: HubLost) -> None:
        """The daemon hung up, before it was asked or meanwhile: a reset may be asked for twice. Raises HubLost."""
        client = self._client
        if not client.hung_up:
            raise error
        self._attach_again()
        client.send(self._frame, self._limits[1])

    def begun(self) -> Found:
        """The answer to ``ask_reset``."""
        try:
            reply = self._client.receive(self._limits[1])
        except HubLost as error:
            self._ask_again(error)
            reply = self._client.receive(self._limits[1])
        self._last = found = self._feedbacks(reply, list(self.agents))
        self._playing = list(found)
        return found

    def _attach_again(self) -> None:
        attached = self._client.attach_again(self._descriptions, annotates=bool(self.next_notes))
        self._limits = answer_limits(attached)

    # --- steps -------------------------------------------------------------------------------------------------------

    @property
    def playing(self) -> bool:
        """Somebody plays: a step can be given."""
        return bool(self._playing)

    def step(self, actions: Mapping[str, Any]) -> Found:
        """One step, in one message. A daemon that went away truncates all."""
        self.prepare_step(actions)
        self.ask_step()
        return self.stepped()

    def step_one(self, action: Any) -> Feedback:
        """One step of the only agent. Raises HubLost where the daemon went away."""
        name, space = self._only
        rows = self._rows
        if isinstance(space, BoxSpace):
            take_vector(rows.numbers, action, name)
        else:
            rows.numbers[0] = choice(action, space.n, name)
        if self._named:
            frame = rows.frame
        else:
            frame = self._by_name([(name, rows.numbers.tobytes())])
            self._clear_notes()
        reply = self._client.exchange(frame, self._limits[0])
        if type(reply) is Numbers and rows.fits(reply):
            return rows.only(reply)
        found = self._feedbacks(reply, (name,))
        self._named = not self.next_notes
        return found[name]

    def prepare_step(self, actions: Mapping[str, Any]) -> None:
        """Raises LocalProtocolError for actions that cannot be sent. ``ask_step`` and ``stepped`` must follow."""
        self._client.check()
        self._reason = ""
        again = self._rows.again(self._playing, actions) if self._named else None
        if again is not None:
            self._frame = again
            return
        self._named = False
        self._frame = self._by_name([(name, self._told(name, actions[name])) for name in self._playing])

    def ask_step(self) -> None:
        """Send the step that was prepared."""
        self._clear_notes()
        try:
            self._client.send(self._frame, self._limits[0])
        except HubLost as error:
            self._reason = error.message

    def stepped(self) -> Found:
        """The answer to ``ask_step``."""
        if self._reason:
            return self._cut(self._reason)
        try:
            reply = self._client.receive(self._limits[0], self._rows.read)
        except HubLost as error:
            return self._cut(error.message)
        if isinstance(reply, FeedbackRows):
            self._last = reply
            return reply
        self._last = found = self._feedbacks(reply, self._playing)
        self._named = not self.next_notes and len(self._playing) == len(self.agents)
        self._playing = [name for name in self._playing if not found[name].over]
        return found

    def _by_name(self, moves: list[tuple[str, bytes]]) -> bytearray:
        """The message of a step that says whose action is which."""
        frame = bytearray()
        notes = self.next_notes
        if notes:
            encode(AnnotatedStep([(name, action, notes[name].note) for name, action in moves]), frame)
        else:
            encode(Step(moves), frame)
        return frame

    def _clear_notes(self) -> None:
        for note in self.next_notes.values():
            note.clear()

    def _told(self, name: str, action: Any) -> bytes:
        """An action as the hub takes it: float32 bytes."""
        space = self.agents[name].action_space
        if isinstance(space, BoxSpace):
            numbers = vector(action, len(space.low), name)
            finite(numbers, name)
        else:
            numbers = np.array([choice(action, space.n, name)], np.float32)
        return numbers.astype(FLOAT).tobytes()

    def _feedbacks(self, reply: HubReply, names: Sequence[str]) -> dict[str, Feedback]:
        """What it says of these agents. Raises HubLost where it says anything else."""
        failed = self._client.failed
        if not isinstance(reply, Feedbacks):
            raise failed(reply)
        if len(reply.agents) != len(names):
            raise failed(reply, f"of {len(reply.agents)} agents instead of {len(names)}")
        found = {}
        for told, name in zip(reply.agents, names, strict=True):
            agent = self.agents[name]
            info_names = agent.interface.info_names
            expected = 4 * len(agent.observation_space.low), 4 * len(info_names)
            if told.agent != name:
                raise failed(reply, f"of agent {told.agent!r} instead of {name!r}")
            if (len(told.observation), len(told.infos)) != expected:
                raise failed(
                    reply,
                    f"with {len(told.observation)} bytes of observation and {len(told.infos)} of infos of agent "
                    f"{name!r}, expected {expected[0]} and {expected[1]}",
                )
            info = step_info(
                told.seed,
                _infos(told.infos, info_names),
                events=told.events,
                values=told.values,
                restored=told.restored,
                reason=told.reason,
            )
            found[name] = Feedback(
                np.frombuffer(told.observation, FLOAT),
                told.reward,
                told.terminated,
                told.truncated,
                told.reason,
                info,
            )
        return found

    def _cut(self, reason: str) -> dict[str, Feedback]:
        """The honest end of episodes whose last step cannot be told: the last observation again."""
        found = {}
        for name in self._playing:
            last = self._last[name]
            found[name] = Feedback.cut(
                last.observation.copy(),
                reason,
                seed=last.info["osp_seed"],
                info_names=self.agents[name].interface.info_names,
            )
        self._playing = []
        return found

    def cancel_step(self) -> None:
        """Nobody is told what the latest step, which all took, brought: drop the connection, and with it episodes."""
        self._playing = list(self.agents)
        self.hang_up()

    def hang_up(self) -> None:
        """Give the agents back without a word, because an answer is still awaited."""
        self._client.lose()

    def close(self, within: float | None = None) -> None:
        """Give the agents back, which the daemon confirms within so many seconds. From any thread; never raises."""
        self._client.close(within)


def answer_limits(attached: Attached) -> tuple[float, float]:
    """Seconds for the answers to a step and to a reset: the daemon waits for others, and then for the simulator."""
    step, reset = attached.step_timeout, attached.reset_timeout
    return 2 * step + MARGIN, 2 * reset + step + MARGIN


def _infos(data: bytes, names: Sequence[str]) -> dict[str, float]:
    return dict(zip(names, np.frombuffer(data, FLOAT).tolist(), strict=True)) if names or data else {}


class HubRows:
    """Steps of all agents of one connection, and the answers that tell nothing but numbers: one array, no objects.

    Several agents whose actions, observations or infos differ in size or name have none.
    """

    def __init__(self, agents: Mapping[str, DrivenAgent]) -> None:
        self._names = list(agents)
        first, *others = agents.values()
        self._info_names = first.interface.info_names
        self._action = first.action_space
        observed = len(first.observation_space.low)
        inputs = len(self._action.low) if isinstance(self._action, BoxSpace) else 1
        count, informed = len(self._names), len(self._info_names)
        self._shape = (count, inputs)
        self._shapes = (count, observed), (count, informed)
        self._told = 4 * count * observed, 4 * count * informed, 8 * count
        """Bytes of all observations, infos and rewards."""
        self._alike = max(inputs, observed + informed) * count <= LONG and all(
            other.interface.info_names == self._info_names
            and len(other.observation_space.low) == observed
            and _form(other.action_space) == _form(self._action)
            for other in others
        )
        again = AgainFrame(count * inputs if self._alike or not others else 0)
        self.frame, self.numbers = again.frame, again.numbers
        """The message of one step more, and the place of its actions: float32[n] in all."""

    def again(self, playing: Sequence[str], actions: Mapping[str, object]) -> bytearray | None:
        """The message of one step more, valid until the next call, where all play and ``actions`` are rows of it.

        None where names must be told, or an error.
        """
        names = self._names
        if not self._alike or not isinstance(actions, ActionRows):
            return None
        rows = actions.rows
        if playing != names or actions.names != names or type(rows) is not np.ndarray or not self._fit(rows):
            return None
        self.numbers.reshape(rows.shape)[:] = rows
        return self.frame if all_finite(self.numbers) else None

    def _fit(self, rows: NDArray[Any]) -> bool:
        """Whether they are one action for each, but for numbers that are none."""
        action = self._action
        if isinstance(action, BoxSpace):
            return rows.dtype == FLOAT and rows.shape == self._shape
        return (
            rows.dtype.kind in "iu"
            and rows.shape == self._shape[:1]
            and bool((rows >= 0).all())
            and bool((rows < action.n).all())
        )

    def fits(self, told: Numbers) -> bool:
        """Whether an answer has as many numbers as these agents."""
        return (len(told.observations), len(told.infos), len(told.rewards)) == self._told

    def only(self, told: Numbers) -> Feedback:
        """What a fitting answer tells the only agent."""
        (reward,) = _REWARD.unpack(told.rewards)
        info = step_info(told.seed, _infos(told.infos, self._info_names))
        return Feedback(np.frombuffer(told.observations, FLOAT), reward, False, False, "", info)

    def read(self, message: memoryview) -> HubReply | FeedbackRows:
        """What the daemon says. Raises RemoteProtocolError."""
        reply = decode_reply(message)
        if type(reply) is not Numbers:
            return reply
        if not self.fits(reply):
            sizes = len(reply.observations), len(reply.infos), len(reply.rewards)
            raise RemoteProtocolError(
                f"expected observations, infos and rewards of {self._told} bytes for "
                f"{len(self._names)} agents, got {sizes}",
                data=bytes(message),
                offset=0,
            )
        observations, infos = self._shapes
        return FeedbackRows(
            self._names,
            observations=np.frombuffer(reply.observations, FLOAT).reshape(observations),
            rewards=np.frombuffer(reply.rewards, REWARD).copy(),
            infos=np.frombuffer(reply.infos, FLOAT).reshape(infos),
            info_names=self._info_names,
            seed=reply.seed,
        )


def _form(space: Space) -> int:
    """Equal for actions that have equally many numbers, or choices."""
    return len(space.low) if isinstance(space, BoxSpace) else -space.n


class AgentHandle:
    """One agent of the daemon, for programs that need no environment. Make one with ``AgentHandle.attach``.

    Close it, or use it as a context manager. For one thread at a time, but ``close`` may come from any.
    """

    def __init__(self, backend: HubBackend) -> None:
        self.backend = backend
        ((self._name, agent),) = backend.agents.items()
        self.interface: AgentInterface = agent.interface
        self.observation_space: BoxSpace = agent.observation_space
        self.action_space: Space = agent.action_space

    @classmethod
    def attach(cls, client: HubClient, agent: str | None = None) -> Self:
        """Take an agent, by name or glob; None: the only free one. Closes the client where that fails.

        Raises AgentNotFound, AgentTaken, UsageError, SimulatorNotFound, HubLost.
        """
        return cls(attach_one(client, agent))

    def reset(self, seed: SupportsIndex = 0) -> Feedback:
        """Wait for the reset (int32 seed, 0: the daemon draws one) and the neutral step after it.

        Attaches again where the daemon was lost, also where that shows only now: a reset may be asked for twice. Raises
        LocalProtocolError for what is no seed, AgentsInUse where this thread plays another agent of the simulator,
        BarrierStuck, HubLost, HubNotFound, SessionClosed, and SessionLost where the agent came back with another
        interface.
        """
        return self.backend.reset(seed_of(seed))[self._name]

    def step(self, action: Any) -> Feedback:
        """One step: float32[n] in the bounds of ``action_space``, or the number of a choice.

        Raises LocalProtocolError for an action that cannot be sent, where no episode is under way, and where another
        thread uses the connection; HubLost, SessionClosed.
        """
        return self.backend.step_one(action)

    def close(self) -> None:
        """Give the agent back, within 2 s, and close the client. Never raises. Safe to call again."""
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attach_one(
    client: HubClient, agent: str | None, *, annotates: bool = False, meant: Sequence[Match] = ()
) -> HubBackend:
    """Take one agent, as ``AgentHandle.attach`` does; where several fit, one that is ``meant``."""
    patterns = [] if agent is None else [agent_name(agent)]
    attached = client.attach_all(patterns, annotates=annotates, meant=meant)
    if len(attached.agents) > 1:
        client.close()
        names = [found.name for found in attached.agents]
        raise AgentNotFound(
            f"{agent!r} fits more than one agent of the daemon: {', '.join(names)}",
            hint=f"choose one, for instance agent={names[0]!r}",
        )
    return HubBackend(client, attached, annotates=annotates)
