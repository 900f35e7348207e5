"""Steps that are the same each time but for their numbers: known again, and written anew, without their messages.

An environment's steps differ by its action alone, and the answers by observation, infos and reward, as long as nothing
else is to be told. So a request is known again by the bytes around its action, and an answer is written into that of
the step before. Whatever is different goes by way of ``messages``.

What this module must not do: touch a socket.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.messages import AgentFeedback, Feedbacks, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["RecurringFeedback", "RecurringStep"]

_REWARD: Final = struct.Struct(">d")
_ZERO: Final = 0.0
(_OTHER,) = _REWARD.unpack(b"\xff" * _REWARD.size)
"""Differs from zero in each byte."""


class RecurringStep:
    """The request for a step of ``agent`` alone, whose action has so many bytes, as our own environments write it."""

    __slots__ = ("_before", "_head", "_size", "agent")

    def __init__(self, agent: str, size: int) -> None:
        frame = bytearray()
        encode(Step([(agent, bytes(size))]), frame)
        self.agent = agent
        self._size = len(frame) - HEAD.size
        self._before = self._size - size
        self._head = bytes(frame[HEAD.size : HEAD.size + self._before])

    def action(self, message: memoryview) -> bytes | None:
        """That of a message that is such a request; None for any other."""
        if len(message) != self._size:
            return None
        data = message.tobytes()
        return data[self._before :] if data.startswith(self._head) else None


class RecurringFeedback:
    """What steps of one agent bring that end nothing: observations of ``size`` numbers, and ``infos`` numbers."""

    __slots__ = ("_frame", "_infos", "_observation", "_reward_at", "_size", "seed")

    def __init__(self, agent: str, size: int, infos: int, seed: int) -> None:
        zeros, others = bytearray(), bytearray()
        for frame, byte, reward in ((zeros, b"\x00", _ZERO), (others, b"\xff", _OTHER)):
            told = AgentFeedback(
                agent,
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
            encode(Feedbacks([told]), frame)
        # Where the two differ is where the numbers stand.
        at = np.flatnonzero(np.frombuffer(zeros, np.uint8) != np.frombuffer(others, np.uint8)).tolist()
        self.seed = seed
        self._size = size
        self._frame = zeros
        self._reward_at = at[4 * (size + infos)]
        self._observation: NDArray[np.float32] = np.frombuffer(zeros, "<f4", size, at[0])
        self._infos: NDArray[np.float32] = np.frombuffer(zeros, "<f4", infos, at[4 * size])

    def frame(self, feedback: Feedback, infos: NDArray[np.float32]) -> bytearray | None:
        """Ready to be sent, and valid until the next call; None where there is more to tell."""
        info = feedback.info
        observation = feedback.observation
        if (
            feedback.terminated
            or feedback.truncated
            or feedback.reason
            or info["restored"]
            or info["events"]
            or info["values"]
            or info["osp_seed"] != self.seed
            or len(observation) != self._size
        ):
            return None
        self._observation[:] = observation
        if len(infos):
            self._infos[:] = infos
        _REWARD.pack_into(self._frame, self._reward_at, feedback.reward)
        return self._frame
