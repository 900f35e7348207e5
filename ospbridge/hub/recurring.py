"""Steps that are the same each time but for their numbers: known again, and written anew, without their messages.

An environment's steps differ by its actions alone, and the answers by observations, infos and rewards, as long as
nothing else is to be told. So a message is known again by the bytes around its numbers, and the next one is written
into that of the step before. Whatever is different goes by way of ``messages``.

What this module must not do: touch a socket.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.messages import AgentFeedback, Feedbacks, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.hub.messages import HubReply, HubRequest
    from ospbridge.interface import Feedback

__all__ = ["RecurringFeedbacks", "RecurringStep"]

FLOAT: Final = np.dtype("<f4")
REWARD: Final = np.dtype(">f8")
NO_NUMBERS: Final = np.zeros(0, np.float32)
_REWARD: Final = struct.Struct(">d")
_ZERO: Final = 0.0
(_OTHER,) = _REWARD.unpack(b"\xff" * _REWARD.size)
"""Differs from zero in each byte."""


class _Form:
    """What two messages that differ in each byte of their numbers have in common."""

    __slots__ = ("_around", "_same", "frame", "numbers", "size")

    def __init__(self, zeros: HubRequest | HubReply, others: HubRequest | HubReply) -> None:
        self.frame = bytearray()
        """The message with its length; its numbers are what was written last."""
        frame = bytearray()
        encode(zeros, self.frame)
        encode(others, frame)
        differs = np.frombuffer(self.frame, np.uint8) != np.frombuffer(frame, np.uint8)
        self.numbers: NDArray[np.intp] = np.flatnonzero(differs)
        """Where in the frame they stand, byte by byte."""
        self.size = len(frame) - HEAD.size
        """Of the message alone."""
        self._around: NDArray[np.intp] = np.flatnonzero(~differs[HEAD.size :])
        self._same = self.bytes[HEAD.size :].take(self._around).tobytes()

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """uint8[n]: those of the frame, to be written into."""
        return np.frombuffer(self.frame, np.uint8)

    def read(self, message: memoryview) -> NDArray[np.uint8] | None:
        """The bytes of a message that is one of these; None for any other."""
        if len(message) != self.size:
            return None
        data = np.frombuffer(message, np.uint8)
        return data if data.take(self._around).tobytes() == self._same else None


class RecurringStep:
    """The request for a step of agents, (name, bytes of an action) each, as our own environments write it."""

    __slots__ = ("_at", "_bytes", "_form", "_head", "_in_message", "bounds", "head", "size")

    def __init__(self, agents: Sequence[tuple[str, int]]) -> None:
        zeros, others = (Step([(name, byte * size) for name, size in agents]) for byte in (b"\x00", b"\xff"))
        self._form = form = _Form(zeros, others)
        self._bytes = form.bytes
        self._at = form.numbers
        self._in_message = form.numbers - HEAD.size
        ends = np.cumsum([size for _, size in agents], dtype=int).tolist()
        self.bounds = [slice(*bounds) for bounds in zip([0, *ends], ends, strict=False)]
        """Where in what ``actions`` returns each agent's is."""
        # An action is the last of its message, so that a single one is known by what it begins with.
        alone = form.size - agents[0][1] if len(agents) == 1 else -1
        self.size = len(form.frame)
        """Bytes of the request with its length."""
        self.head = bytes(form.frame[: HEAD.size + alone]) if alone >= 0 else b""
        """What all of it begins with, length and all, up to the action of its only agent; empty for several."""
        self._head = self.head[HEAD.size :]

    def actions(self, message: memoryview) -> bytes | None:
        """Those of a message that is such a request, behind one another; None for any other."""
        if self._head:
            if len(message) != self._form.size:
                return None
            data = message.tobytes()
            return data[len(self._head) :] if data.startswith(self._head) else None
        found = self._form.read(message)
        return None if found is None else found.take(self._in_message).tobytes()

    def frame(self, actions: NDArray[Any]) -> bytearray:
        """With these, float32 in the order of the agents: ready to be sent, and valid until the next call."""
        self._bytes[self._at] = np.frombuffer(actions.astype(FLOAT, copy=False).tobytes(), np.uint8)
        return self._form.frame


class Told(Protocol):
    """Whom an answer tells of."""

    feedback: Feedback | None
    infos: NDArray[np.float32]


class _Place(NamedTuple):
    """Where one agent's numbers stand in an answer."""

    observation: NDArray[np.float32]
    infos: NDArray[np.float32]
    reward_at: int


class RecurringFeedbacks:
    """What steps of agents bring that end nothing: (name, numbers of its observation, of its infos) each.

    A daemon writes them with ``frame``, an environment reads them with ``numbers``.
    """

    __slots__ = ("_form", "_infos_at", "_observations_at", "_places", "_rewards_at", "seed")

    def __init__(self, agents: Sequence[tuple[str, int, int]], seed: int) -> None:
        zeros, others = (
            _answer(agents, seed, byte, reward) for byte, reward in ((b"\x00", _ZERO), (b"\xff", _OTHER))
        )
        self._form = form = _Form(zeros, others)
        self.seed = seed
        self._places: list[_Place] = []
        at = form.numbers
        parts: tuple[list[NDArray[np.intp]], ...] = ([], [], [])
        begin = 0
        for _, size, infos in agents:
            ends = np.cumsum([4 * size, 4 * infos, _REWARD.size]) + begin
            mine = np.split(at[begin : ends[-1]], ends[:2] - begin)
            for part, which in zip(parts, mine, strict=True):
                part.append(which - HEAD.size)
            first = [int(which[0]) if len(which) else 0 for which in mine]
            self._places.append(
                _Place(
                    np.frombuffer(form.frame, FLOAT, size, first[0]),
                    np.frombuffer(form.frame, FLOAT, infos, first[1]),
                    first[2],
                )
            )
            begin = int(ends[-1])
        self._observations_at, self._infos_at, self._rewards_at = map(np.concatenate, parts)

    def frame(self, told: Sequence[Told]) -> bytearray | None:
        """What the latest step brought the agents, in their order: ready to be sent, and valid until the next call.

        None where there is more to tell, or less.
        """
        seed, frame = self.seed, self._form.frame
        for (observation, infos, reward_at), one in zip(self._places, told, strict=True):
            feedback = one.feedback
            if feedback is None or feedback.terminated or feedback.truncated or feedback.reason:
                return None
            info = feedback.info
            if info["restored"] or info["events"] or info["values"] or info["osp_seed"] != seed:
                return None
            if len(feedback.observation) != len(observation):
                return None
            observation[:] = feedback.observation
            if len(infos):
                infos[:] = one.infos
            _REWARD.pack_into(frame, reward_at, feedback.reward)
        return frame

    def numbers(
        self, message: memoryview
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]] | None:
        """Observations, infos and rewards of a message that tells nothing else, all agents' behind one another.

        None for any other message.
        """
        data = self._form.read(message)
        if data is None:
            return None
        infos_at = self._infos_at
        return (
            data.take(self._observations_at).view(FLOAT),
            data.take(infos_at).view(FLOAT) if len(infos_at) else NO_NUMBERS,
            data.take(self._rewards_at).view(REWARD).astype(np.float64),
        )


def _answer(agents: Sequence[tuple[str, int, int]], seed: int, byte: bytes, reward: float) -> Feedbacks:
    return Feedbacks(
        [
            AgentFeedback(
                name,
                bytearray(byte * (4 * size)),
                byte * (4 * infos),
                reward,
                False,
                False,
                "",
                seed,
                (),
                {},
                False,
            )
            for name, size, infos in agents
        ]
    )
