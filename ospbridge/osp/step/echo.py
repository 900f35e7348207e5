"""What inputs look like when they are read back, and which of them tell a step from those before.

A request that comes late, between two steps, stands for the next one: it is acknowledged, the step runs and is
completed, and the request that was meant is taken for an acknowledgement and lost. All counts are right. What gives it
away are the inputs, which stand in the repository as all interface values do. Servers may write them there in a scale
of their own (NERD: as the motor has it), so what a number given looks like there is learned before it is believed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.osp.number_text import Printing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.osp.step.votes import Vote

__all__ = ["AgentEcho", "Echo", "InputSeen"]

_FLOAT: Final = struct.Struct("<f")
KEPT: Final = 1024
"""So many different inputs of an agent are told apart from the latest."""
READ_AT_MOST: Final = 8
"""Inputs of one agent that are read after one step."""
DOUBTS_AT_MOST: Final = 8
"""An input that so often shows something else than its scale says is moved by others too: it tells nothing."""
ODD_AT_MOST: Final = 64
"""Points of one episode that are kept to be looked at later."""
CLOSE: Final = 1e-5
"""Of the span of a scale, besides what the server's printing loses."""
FAR: Final = 1000.0
"""Multiples of the distance between two points, beyond which they say nothing of a third."""
WIDE: Final = 100.0
"""Inputs seldom fill a range beyond this, and of points at its ends all that is given would be too close to tell."""


@dataclass(slots=True)
class InputSeen:
    """What one input looks like in the repository. ``low`` and ``high``: what servers clamp it to."""

    low: float
    high: float
    printing: Printing = field(default_factory=Printing)
    points: list[tuple[float, float]] = field(default_factory=list)
    """A number that was given and what was read then, of up to two steps."""
    sure: bool = False
    """A third step showed what the points say."""
    doubts: int = 0
    odd: list[tuple[float, float]] = field(default_factory=list)
    """Points of this episode that did not fit others, before it was known which of them were true."""
    carried: int = 0
    """So many of the points are no step's of this episode: an earlier one's, or what is only expected."""

    @property
    def usable(self) -> bool:
        return self.doubts < DOUBTS_AT_MOST

    @property
    def blur(self) -> float:
        """What is read of two numbers that are given closer to each other than this may be taken for either."""
        (given_1, read_1), (given_2, read_2) = (
            (self.points[0], self.points[-1]) if self.points else ((0.0, 0.0),) * 2
        )
        if read_1 == read_2:
            return 0.0
        return self._tolerance(self._span) * abs((given_2 - given_1) / (read_2 - read_1))

    def clamped(self, given: float) -> float:
        return min(max(given, self.low), self.high) if self.low < self.high else given

    def doubts_it(self, given: float, read: float) -> bool:
        """Whether that would be a contradiction; nothing is learned from it."""
        return self.sure and not self._fits(self.clamped(given), read)

    def contradiction(self, given: float, read: float) -> tuple[float, float] | None:
        """What was given in a step, and what was read that cannot come of it: in this step, or earlier in its episode.

        Learns from it; what is not known yet contradicts nothing until it is.
        """
        given = self.clamped(given)
        expected = self._expected(given)
        if expected is None:
            self.points.append((given, read))
            return None
        far = self._far(given)
        if far > FAR:
            # Two points so close to each other say nothing of this one.
            self.points[-1] = (given, read)
            self.carried = min(self.carried, len(self.points) - 1)
            self.sure = False
            return None
        if self._fits(given, read):
            sure = self.sure or len(self.points) > 1
            if far > 1.0:
                # The farther apart they are the better they tell.
                self.points[-1] = (given, read)
            return None if sure is self.sure else self._made_sure()
        if self.sure:
            self.doubts += 1
            return given, read
        self.odd = [*self.odd, *self.points[self.carried :]][-ODD_AT_MOST:]
        self.points = [(given, read)]
        self.carried = 0
        return None

    def begin(self) -> None:
        """An episode begins: what an earlier one was given matters no more."""
        self.odd = []
        self.carried = len(self.points)

    def _made_sure(self) -> tuple[float, float] | None:
        """It is known now what numbers look like: what did not, earlier in this episode."""
        self.sure = True
        found = next((point for point in self.odd if not self._fits(*point)), None)
        self.odd = []
        self.doubts += found is not None
        return found

    def _fits(self, given: float, read: float) -> bool:
        """As far as can be known: what is read was rounded, which tells the less the farther away it was given."""
        expected = self._expected(given)
        assert expected is not None
        return abs(read - expected) <= self._tolerance(max(abs(read), self._span)) * max(
            1.0, self._far(given)
        )

    def _tolerance(self, largest: float) -> float:
        # The points may be rounded as well as what is read of another one.
        lost = 2.0 * (self.printing.absolute + self.printing.relative * largest)
        return CLOSE * self._span + lost

    def _far(self, given: float) -> float:
        """How far from the first point, as a multiple of how far the other one is."""
        given_1, given_2 = self.points[0][0], self.points[-1][0]
        return 0.0 if given_1 == given_2 else abs((given - given_1) / (given_2 - given_1))

    @property
    def _span(self) -> float:
        return max(*(abs(read) for _, read in self.points), abs(self.points[0][1] - self.points[-1][1]))

    def _expected(self, given: float) -> float | None:
        if not self.points:
            return None
        (given_1, read_1), (given_2, read_2) = self.points[0], self.points[-1]
        if given == given_1:
            return read_1
        if given_1 == given_2:
            return None
        return read_1 + (given - given_1) * (read_2 - read_1) / (given_2 - given_1)


class AgentEcho:
    """What is known of one agent's inputs."""

    def __init__(self, vote: Vote, *, as_given: bool, printing: Printing | None = None) -> None:
        printing = printing or Printing()
        self.recent: dict[bytes, None] = {}
        self._favourite = -1
        """The input that told the latest apart from all before, by itself; -1 where it took several."""
        self._seen: dict[float, int] = {}
        """How often it had which value among the recent ones."""
        self.ids: list[int | None] = [None] * len(vote.agent.inputs)
        """Where they stand in the repository, as far as they do."""
        self.looked = False
        """Whether that is known."""
        self.inputs = [InputSeen(value.min, value.max, printing) for value in vote.agent.inputs]
        for seen in self.inputs if as_given else ():
            if seen.low < seen.high:
                seen.points = [(at, at) for at in _apart(seen.low, seen.high)]
                # No step showed them: a server that has a scale all the same must not be held to them.
                seen.carried = len(seen.points)

    def found(self, ids: Sequence[int | None]) -> None:
        """Where the inputs stand is known now, of those that stand anywhere."""
        self.ids = list(ids)
        self.looked = True

    @property
    def blind(self) -> bool:
        """Nothing shows which inputs a step ran with: the repository does not have them, or they do not follow."""
        return self.looked and bool(self.inputs) and not any(map(self._usable, range(len(self.inputs))))

    @property
    def tells(self) -> bool:
        """It is known what one of them looks like at least."""
        return any(self._usable(at) and self.inputs[at].sure for at in range(len(self.inputs)))

    def other(self, given: NDArray[np.float32]) -> bool:
        """Whether anything else was given lately."""
        return any(body != given.tobytes() for body in self.recent)

    def telling(self, given: NDArray[np.float32]) -> list[int]:
        """Which inputs tell ``given`` from the others that were given lately; the fewest that will do."""
        at = self._favourite
        if at >= 0 and self._usable(at) and self._stands_out(at, given[at].item()):
            return [at]
        chosen = self._chosen(given)
        self._favourite = chosen[0] if len(chosen) == 1 else -1
        self._seen = {}
        if self._favourite >= 0:
            for body in self.recent:
                self._count(body, 1)
        return chosen

    def _stands_out(self, at: int, value: float) -> bool:
        """The favourite had no value lately that could be taken for this one."""
        blur = self.inputs[at].blur
        return value not in self._seen and not any(abs(value - seen) <= blur for seen in self._seen)

    def _usable(self, at: int) -> bool:
        return self.ids[at] is not None and self.inputs[at].usable

    def _count(self, body: bytes, more: int) -> None:
        (value,) = _FLOAT.unpack_from(body, 4 * self._favourite)
        left = self._seen.get(value, 0) + more
        if left:
            self._seen[value] = left
        else:
            del self._seen[value]

    def _chosen(self, given: NDArray[np.float32]) -> list[int]:
        usable = np.array([self._usable(at) for at in range(len(self.inputs))])
        others = np.frombuffer(b"".join(self.recent), np.float32).reshape(len(self.recent), len(given))
        unlike = (others != given) & usable
        # Numbers so close that what is read of one is taken for the other tell nothing, unless there is nothing else.
        blur = np.array([seen.blur for seen in self.inputs])
        with np.errstate(all="ignore"):
            differs = unlike & ~(np.abs(others - given) <= blur)
        differs |= unlike & ~differs.any(axis=1, keepdims=True)
        chosen: list[int] = []
        while len(chosen) < READ_AT_MOST and len(differs):
            at = int(differs.sum(axis=0).argmax())
            if not differs[:, at].any():
                break
            chosen.append(at)
            differs = differs[~differs[:, at]]
        return chosen

    def remember(self, given: NDArray[np.float32]) -> None:
        body = given.tobytes()
        going = body if body in self.recent else next(iter(self.recent)) if len(self.recent) == KEPT else None
        if going is not None:
            del self.recent[going]
        self.recent[body] = None
        if self._favourite >= 0:
            if going is not None:
                self._count(going, -1)
            self._count(body, 1)


class Echo:
    """What is known of the inputs of a session's agents, by local agent id."""

    def __init__(self, printing: Printing) -> None:
        self._printing = printing
        self.agents: dict[int, AgentEcho] = {}
        self.listings = 0

    def of(self, vote: Vote, *, as_given: bool) -> AgentEcho:
        """``as_given``: the server is expected to write inputs as they were given."""
        if vote.agent_id not in self.agents:
            known = AgentEcho(vote, as_given=as_given, printing=self._printing)
            # An agent at rest is what a request that nobody gave leaves behind.
            known.remember(np.clip(np.zeros_like(vote.inputs), *_bounds(known)))
            self.agents[vote.agent_id] = known
        return self.agents[vote.agent_id]

    def begin(self) -> None:
        """An episode begins."""
        for agent in self.agents.values():
            for seen in agent.inputs:
                seen.begin()

    def forget(self, agent_id: int) -> None:
        """The agent was registered anew: its interface may have changed."""
        self.agents.pop(agent_id, None)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Two numbers of a range: its ends, or near 0 where it is wide or has no ends."""
    if high - low <= WIDE:
        return low, high
    near = min(max(low, 0.0), high - 1.0)
    return near, near + 1.0


def _bounds(agent: AgentEcho) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    low = np.array([seen.low if seen.low < seen.high else -np.inf for seen in agent.inputs], np.float32)
    high = np.array([seen.high if seen.low < seen.high else np.inf for seen in agent.inputs], np.float32)
    return low, high
