"""Messages that are the same each time but for their numbers: written anew in the place of the one before.

An environment's steps differ by its actions alone, and the answers by observations, infos and rewards, as long as
nothing else is to be told: ``Again`` and ``Numbers`` of ``messages``. Both are numbers behind a beginning that does not
change as long as the agents are the same.

What this module must not do: touch a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from ospbridge.hub.framing import encode
from ospbridge.hub.replies import Numbers
from ospbridge.hub.requests import Again
from ospbridge.interface import PlainInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Feedback

__all__ = ["FLOAT", "REWARD", "AgainFrame", "NumbersFrame", "Told"]

FLOAT: Final = np.dtype("<f4")
REWARD: Final = np.dtype("<f8")


class AgainFrame:
    """``Again`` with ``count`` numbers: ``frame`` is ready to be sent once ``numbers``, float32[count], are set."""

    __slots__ = ("frame", "head", "numbers")

    def __init__(self, count: int) -> None:
        self.frame = bytearray()
        size = count * FLOAT.itemsize
        encode(Again(bytes(size)), self.frame)
        self.head = bytes(self.frame[: len(self.frame) - size])
        """What all of them begin with, length and all, up to the actions."""
        self.numbers: NDArray[np.float32] = np.frombuffer(self.frame, FLOAT, count, len(self.head))


class Told(Protocol):
    """Whom an answer tells of."""

    feedback: Feedback | None
    infos: NDArray[np.float32]


class NumbersFrame:
    """``Numbers`` of agents of which each has so many numbers in its (observation, infos), in episodes of that seed."""

    __slots__ = ("_frame", "_infos", "_observations", "_observed", "_plain", "_rewards", "seed")

    def __init__(self, sizes: Sequence[tuple[int, int]], seed: int) -> None:
        self.seed = seed
        self._plain: PlainInfo | None = None
        """Of a step with nothing to tell but numbers."""
        self._observed = [observed for observed, _ in sizes]
        observed, informed = sum(self._observed), sum(infos for _, infos in sizes)
        counts = (FLOAT, observed), (FLOAT, informed), (REWARD, len(sizes))
        parts = [bytes(count * kind.itemsize) for kind, count in counts]
        self._frame = bytearray()
        encode(Numbers(seed, bytearray(parts[0]), *parts[1:]), self._frame)
        places = []
        end = len(self._frame)
        for (kind, count), part in zip(reversed(counts), reversed(parts), strict=True):
            places.append(np.frombuffer(self._frame, kind, count, end - len(part)))
            end -= len(part) + _head_of(len(part))
        self._rewards, self._infos, self._observations = places

    def frame(self, told: Sequence[Told]) -> bytearray | None:
        """What the latest step brought the agents, in their order: ready to be sent, and valid until the next call.

        None where there is more to tell, or less.
        """
        feedbacks = []
        for one in told:
            feedback = one.feedback
            if feedback is None or feedback.terminated or feedback.truncated or feedback.reason:
                return None
            if feedback.info is not self._plain and not self._says_no_more(feedback.info):
                return None
            feedbacks.append(feedback)
        if len(feedbacks) == 1:
            # Where many processes step together there is one of these for each.
            (feedback,) = feedbacks
            if len(feedback.observation) != self._observed[0]:
                return None
            self._observations[:] = feedback.observation
            if len(self._infos):
                self._infos[:] = told[0].infos
            self._rewards[0] = feedback.reward
            return self._frame
        observations = [feedback.observation for feedback in feedbacks]
        if list(map(len, observations)) != self._observed:
            return None
        np.concatenate(observations, out=self._observations)
        if len(self._infos):
            np.concatenate([one.infos for one in told], out=self._infos)
        self._rewards[:] = [feedback.reward for feedback in feedbacks]
        return self._frame

    def _says_no_more(self, info: dict[str, Any]) -> bool:
        """Than what is the same in each step of these episodes."""
        if info["osp_seed"] != self.seed:
            return False
        if type(info) is PlainInfo:
            # All agents share it, and nobody changes it.
            self._plain = info
            return True
        return not (info["restored"] or info["events"] or info["values"])


def _head_of(size: int) -> int:
    """Bytes of msgpack in front of so many: a kind, and their number in one, two or four bytes."""
    return 2 if size < 2**8 else 3 if size < 2**16 else 5
