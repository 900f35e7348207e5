"""Several agents of one daemon driven by one environment: one message speaks for them all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.envs.groups.hub_rows import HubRows
from ospbridge.envs.groups.rows import FeedbackRows
from ospbridge.errors import HubLost
from ospbridge.hub.framing import encode
from ospbridge.hub.replies import Feedbacks
from ospbridge.hub.requests import AnnotatedStep, Reset, Step
from ospbridge.interface import BoxSpace, DrawnSeed, Feedback
from ospbridge.session.hub_client import NextNote, answer_limits, feedback_of, mismatch
from ospbridge.task.base import choice, finite, vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ospbridge.envs.groups.group import Found
    from ospbridge.hub.replies import Attached, HubReply
    from ospbridge.session.hub_client import HubClient

__all__ = ["HubGroup"]


class HubGroup:
    """Agents of a daemon. Its reset policy decides what the end of one episode means for the others."""

    def __init__(self, client: HubClient, attached: Attached, *, annotates: bool = False) -> None:
        agents = {agent.name: agent for agent in attached.agents}
        self.interfaces = {name: agent.interface() for name, agent in agents.items()}
        self.observation_spaces = {name: agent.observation_space() for name, agent in agents.items()}
        self.action_spaces = {name: agent.action_space() for name, agent in agents.items()}
        self.observation_names = {name: agent.names()[0] for name, agent in agents.items()}
        self.action_names = {name: agent.names()[1] for name, agent in agents.items()}
        self.next_notes = {name: NextNote(name) for name in agents} if annotates else {}
        """Each must be set before a step; none where nobody annotates."""
        self._client = client
        self._agents = agents
        self._limits = answer_limits(attached)
        """Seconds for the answers to a step and to a reset."""
        self._last: Found = {}
        self._playing: list[str] = []
        self._named = False
        """A step that named all agents was answered since the latest reset: numbers are enough from then on."""
        self._rows = HubRows(self.interfaces, self.observation_spaces, self.action_spaces)
        self._frame = bytearray()
        """What is to be sent."""
        self._reason = ""
        """Why the step could not even be sent."""

    @property
    def scenarios(self) -> dict[str, str | None]:
        """The names of those that the daemon plays; empty: none, None: it does not say."""
        return {name: agent.scenario for name, agent in self._agents.items()}

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
        for note in self.next_notes.values():
            note.clear()
        drawn = isinstance(seed, DrawnSeed)
        self._frame = bytearray()
        encode(Reset(int(seed), threading.get_native_id(), drawn), self._frame)
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
        found = self._feedbacks(reply, list(self.interfaces))
        self._playing = list(found)
        return found

    def _attach_again(self) -> None:
        agents = list(self._agents.values())
        self._limits = answer_limits(self._client.attach_again(agents, annotates=bool(self.next_notes)))

    @property
    def playing(self) -> bool:
        """Somebody plays: a step can be given."""
        return bool(self._playing)

    def step(self, actions: Mapping[str, Any]) -> Found:
        """One step, in one message. A daemon that went away truncates all."""
        self.prepare_step(actions)
        self.ask_step()
        return self.stepped()

    def prepare_step(self, actions: Mapping[str, Any]) -> None:
        """Raises LocalProtocolError for actions that cannot be sent. ``ask_step`` and ``stepped`` must follow."""
        self._client.check()
        self._reason = ""
        notes = self.next_notes
        again = self._rows.again(self._playing, actions) if self._named else None
        if again is not None:
            self._frame = again
            return
        self._frame = bytearray()
        self._named = False
        moves = [(name, self._told(name, actions[name])) for name in self._playing]
        if not notes:
            encode(Step(moves), self._frame)
            return
        encode(AnnotatedStep([(name, action, notes[name].note) for name, action in moves]), self._frame)

    def ask_step(self) -> None:
        """Send the step that was prepared."""
        for note in self.next_notes.values():
            note.clear()
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
        found = self._feedbacks(reply, self._playing)
        self._named = not self.next_notes and len(self._playing) == len(self.interfaces)
        self._playing = [name for name in self._playing if not found[name].over]
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

    def _feedbacks(self, reply: HubReply, names: Sequence[str]) -> Found:
        """What it says of these agents. Raises HubLost where it says anything else."""
        if not isinstance(reply, Feedbacks):
            raise self._client.failed(reply)
        agents = [self.interfaces[name] for name in names]
        expected = [
            (agent.name, 4 * len(self.observation_spaces[agent.name].low), 4 * len(agent.infos))
            for agent in agents
        ]
        if why := mismatch(reply, expected):
            raise self._client.failed(reply, why)
        found = {
            agent.name: feedback_of(told, agent.info_names)
            for agent, told in zip(agents, reply.agents, strict=True)
        }
        self._last = found
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
                info_names=self.interfaces[name].info_names,
            )
        self._playing = []
        return found

    def cancel_step(self) -> None:
        """Nobody is told what the latest step, which all took, brought: the next one truncates their episodes."""
        self._playing = list(self.interfaces)
        self.hang_up()

    def hang_up(self) -> None:
        """Give the agents back without a word, because an answer is still awaited."""
        self._client.lose()

    def close(self, within: float | None = None) -> None:
        """Give the agents back, which the daemon confirms within so many seconds. From any thread; never raises."""
        self._client.close(within)
