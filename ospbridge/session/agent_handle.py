"""One agent of a running daemon, taken: its resets and steps, and what is said of its actions to learners upstream."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

import numpy as np

from ospbridge.errors import HubLost, LocalProtocolError
from ospbridge.finite import all_finite
from ospbridge.hub.framing import encode
from ospbridge.hub.recurring import FLOAT, AgainFrame
from ospbridge.hub.replies import Feedbacks, Numbers
from ospbridge.hub.requests import AnnotatedStep, Note, Reset, Step
from ospbridge.interface import BoxSpace, DiscreteSpace, DrawnSeed, Feedback, Space
from ospbridge.session.names import seed_of
from ospbridge.task.base import choice, take_vector
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.hub.replies import AgentFeedback, Attached
    from ospbridge.interface import AgentInterface
    from ospbridge.session.hub_client import HubClient

__all__ = ["AgentHandle", "NextNote", "answer_limits", "feedback_of", "mismatch"]

MARGIN: Final = 10.0
"""Seconds that the daemon may take beyond its own limits."""
_REWARD: Final = struct.Struct("<d")


class AgentHandle:
    """One agent of the daemon, taken: what an environment needs of it. Make one with ``HubClient.attach``.

    Close it, or use it as a context manager. For one thread at a time, but ``close`` may come from any.
    """

    def __init__(self, client: HubClient, attached: Attached, *, annotates: bool = False) -> None:
        (agent,) = attached.agents
        self.interface: AgentInterface = agent.interface()
        self.next_note = NextNote(agent.name) if annotates else None
        """Must be set before each step; None where nobody annotates."""
        self.observation_space: BoxSpace = agent.observation_space()
        self.action_space: Space = agent.action_space()
        self.observation_names, self.action_names = agent.names()
        self.scenario = agent.scenario
        """The name of that which the daemon plays; empty: none, None: it does not say."""
        self._client = client
        self._description = agent
        self._info_names = self.interface.info_names
        self._limits = answer_limits(attached)
        self._expected = agent.name, 4 * len(self.observation_space.low), 4 * len(self._info_names)
        self._again = AgainFrame(len(self.action_space.low) if isinstance(self.action_space, BoxSpace) else 1)
        """The message of a step, with the action's place in it."""
        self._named = False
        """The daemon was told whose action it is, since the latest reset: the numbers are enough from then on."""

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
        request = Reset(number, threading.get_native_id(), isinstance(seed, DrawnSeed))
        try:
            return self._only(client.ask(request, Feedbacks, self._limits[1]))
        except HubLost:
            if not client.hung_up:
                raise
        self._attach_again()
        return self._only(client.ask(request, Feedbacks, self._limits[1]))

    def _attach_again(self) -> None:
        attached = self._client.attach_again([self._description], annotates=self.next_note is not None)
        self._limits = answer_limits(attached)

    def step(self, action: Any) -> Feedback:
        """One step: float32[n] in the bounds of ``action_space``, or the number of a choice.

        Raises LocalProtocolError for an action that cannot be sent, where no episode is under way, and where another
        thread uses the connection; HubLost, SessionClosed.
        """
        name, space = self.interface.name, self.action_space
        if isinstance(space, DiscreteSpace):
            self._again.numbers[0] = choice(action, space.n, name)
        else:
            take_vector(self._again.numbers, action, name)
        reply = self._client.exchange(self._again.frame if self._named else self._by_name(), self._limits[0])
        if type(reply) is Numbers and self._fits(reply):
            return self._feedback(reply)
        if type(reply) is not Feedbacks:
            raise self._client.failed(reply)
        found = self._only(reply)
        self._named = self.next_note is None
        return found

    def _by_name(self) -> bytearray:
        """The message of a step that says whose it is."""
        frame = bytearray()
        name, action = self.interface.name, self._again.numbers.tobytes()
        if self.next_note is None:
            encode(Step([(name, action)]), frame)
        else:
            encode(AnnotatedStep([(name, action, self.next_note.note)]), frame)
            self.next_note.clear()
        return frame

    def _only(self, reply: Feedbacks) -> Feedback:
        """What it says of the agent. Raises HubLost where it says anything else."""
        if why := mismatch(reply, (self._expected,)):
            raise self._client.failed(reply, why)
        return feedback_of(reply.agents[0], self._info_names)

    def _fits(self, told: Numbers) -> bool:
        _, observed, informed = self._expected
        return (len(told.observations), len(told.infos), len(told.rewards)) == (
            observed,
            informed,
            _REWARD.size,
        )

    def _feedback(self, told: Numbers) -> Feedback:
        """What a step brought that ended nothing."""
        info = {
            "osp_seed": told.seed,
            "infos": _infos(told.infos, self._info_names),
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
        """Give the agent back, within 2 s, and close the client. Never raises. Safe to call again."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NextNote:
    """What is said of one agent's next action: set before each step, and cleared by it."""

    __slots__ = ("_name", "_note", "_size")

    def __init__(self, name: str) -> None:
        self._name = name
        self._note: Note | None = None
        self._size = 0
        """How many inputs the first distribution had, which is how many all have."""

    def set(
        self, action_logp: Any, action_dist_inputs: Any, weights_seq_no: Any = None, action: Any = None
    ) -> None:
        """Raises LocalProtocolError for what is not one finite number, a vector of them, and a count or None.

        ``action``: a vector as well, or None.
        """
        logp = self._numbers("action_logp", action_logp)
        if logp.size != 1:
            raise self._wrong("action_logp", f"one number, got an array of shape {logp.shape}")
        inputs = self._numbers("action_dist_inputs", action_dist_inputs)
        if inputs.ndim != 1 or not inputs.size or self._size not in {0, inputs.size}:
            wanted = pluralize(self._size, "number") if self._size else "some numbers"
            raise self._wrong("action_dist_inputs", f"a vector of {wanted}, got the shape {inputs.shape}")
        if weights_seq_no is not None:
            if not isinstance(weights_seq_no, (int, np.integer)) or weights_seq_no < 0:
                raise self._wrong("weights_seq_no", f"a count or None, got {weights_seq_no!r:.40}")
            weights_seq_no = int(weights_seq_no)
        drawn = b""
        if action is not None:
            numbers = self._numbers("action", action)
            if numbers.ndim != 1:
                raise self._wrong("action", f"a vector as it was drawn, got the shape {numbers.shape}")
            drawn = numbers.tobytes()
        self._size = inputs.size
        self._note = Note(inputs.tobytes(), float(logp.item()), weights_seq_no, drawn)

    def _numbers(self, what: str, given: Any) -> NDArray[np.float32]:
        try:
            with np.errstate(over="ignore"):
                numbers = np.asarray(given, FLOAT)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(what, f"numbers: {error}") from None
        if not all_finite(numbers.reshape(-1)):
            raise self._wrong(what, f"finite numbers of float32, got {given!r:.80}")
        return numbers

    def _wrong(self, what: str, why: str) -> LocalProtocolError:
        return LocalProtocolError(
            f"{what} of agent {self._name!r} must be {why}",
            hint="give what the policy put out for this one action: logits, or means and then logarithms of standard "
            "deviations; and the logarithm of the action's probability",
        )

    @property
    def note(self) -> Note:
        """What was said of the next action. Raises LocalProtocolError where nothing was."""
        if self._note is None:
            raise LocalProtocolError(
                f"agent {self._name!r} was attached with annotates=True, and nothing was said of this action",
                hint="call env.unwrapped.annotate(action_logp=..., action_dist_inputs=...) before each step",
            )
        return self._note

    def clear(self) -> None:
        """The action was sent, or a reset comes first."""
        self._note = None


def answer_limits(attached: Attached) -> tuple[float, float]:
    """Seconds for the answers to a step and to a reset: the daemon waits for others, and then for the simulator."""
    step, reset = attached.step_timeout, attached.reset_timeout
    return 2 * step + MARGIN, 2 * reset + step + MARGIN


def mismatch(reply: Feedbacks, expected: Sequence[tuple[str, int, int]]) -> str:
    """What keeps it from being the answer about these agents, in their order; empty: nothing.

    ``expected``: their names, and the bytes of their observations and infos.
    """
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
    """What the daemon tells of one agent, as ``mismatch`` has let it pass; its infos by name."""
    info = {
        "osp_seed": told.seed,
        "infos": _infos(told.infos, info_names),
        "events": told.events,
        "values": told.values,
        "restored": told.restored,
        "reason": told.reason,
    }
    observation = np.frombuffer(told.observation, FLOAT)
    return Feedback(observation, told.reward, told.terminated, told.truncated, told.reason, info)


def _infos(data: bytes, names: Sequence[str]) -> dict[str, float]:
    """By name."""
    return dict(zip(names, np.frombuffer(data, FLOAT).tolist(), strict=True)) if names or data else {}
