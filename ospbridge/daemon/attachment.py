"""Whoever drives an agent of the daemon, and where that one stands in its episode. Data; the conductor moves it."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import HubError, LocalProtocolError, OspBridgeError
from ospbridge.finite import FEW
from ospbridge.hub.status import RETURNS_KEPT
from ospbridge.interface import BoxSpace
from ospbridge.task.base import ANY_NUMBER, finite
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ospbridge.hub.requests import Note
    from ospbridge.interface import AgentInterface, Feedback
    from ospbridge.task.base import Task

__all__ = ["FREE", "Attachment", "Driver", "HeldAgent", "State"]

FLOAT: Final = np.dtype("<f4")
FREE: Final = "free"
"""How an agent stands that nobody is attached to."""


@dataclass(frozen=True, slots=True, eq=False)
class Driver:
    """One connection's other end. ``pid`` 0: not known, and without ``process`` equal to nobody's."""

    name: str
    pid: int
    host: str = ""
    """Another host's address; empty for this one."""
    on_held: Callable[[float, str], None] = lambda _seconds, _reason: None
    """Called when what it waits for may take so many seconds longer, and why: somebody holds the world."""
    watched: bool = False
    """What it says comes through the watch over the hub's connections."""
    process: str = ""
    """What it says to be told from others, where its ``pid`` does not: of another host, or of another container."""

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"{self.name} (pid {self.pid}{where})" if self.pid else self.name + where

    def same_process(self, other: Driver) -> bool:
        mine, theirs = (self.pid, self.host, self.process), (other.pid, other.host, other.process)
        return self is other or (mine == theirs and bool(self.pid or self.process))


class State(Enum):
    """Where an attachment stands."""

    ATTACHED = "attached"
    """It rests, and has no vote."""
    WAITING = "waiting for reset"
    PLAYING = "playing"
    DONE = "done"
    """Its episode ended; it is expected to ask for a reset."""


class HeldAgent:
    """An agent that the daemon controls: its task, and who is attached to it.

    Several attachments of one process may share an agent; the one reset last drives it.
    """

    __slots__ = (
        "attachments",
        "driver",
        "episodes",
        "interface",
        "lengths",
        "missing",
        "remedy",
        "returns",
        "task",
    )

    def __init__(self, interface: AgentInterface, task: Task) -> None:
        self.interface = interface
        self.task = task
        self.attachments: list[Attachment] = []
        self.driver: Attachment | None = None
        self.episodes = 0
        self.returns: deque[float] = deque(maxlen=RETURNS_KEPT)
        """Of the latest episodes, with their ``lengths`` in steps."""
        self.lengths: deque[int] = deque(maxlen=RETURNS_KEPT)
        self.missing = ""
        """Why the agent cannot be driven at present: the simulator came back without it, or with another one."""
        self.remedy = "make the environment anew"

    def ended(self, reward: float, steps: int) -> None:
        """An episode is over that had so many steps; nothing is kept of one that had none."""
        if steps:
            self.returns.append(reward)
            self.lengths.append(steps)


class Attachment:
    """One agent of one connection.

    ``feedback`` and ``infos`` (float32[n_infos]) are what the last reset or step brought, ``error`` why there is none.
    """

    __slots__ = (
        "_box",
        "_floats",
        "_size",
        "abandons",
        "acted",
        "action",
        "annotates",
        "cut",
        "dist_inputs",
        "dist_inputs_size",
        "drawn",
        "driver",
        "error",
        "feedback",
        "gone",
        "held",
        "infos",
        "logp",
        "name",
        "observation",
        "reward",
        "seed",
        "started",
        "state",
        "steps",
        "thread",
        "told",
        "unmoved",
        "weights_seq_no",
    )

    def __init__(self, held: HeldAgent, driver: Driver) -> None:
        agent = held.interface
        space = held.task.action_space
        self._box = isinstance(space, BoxSpace)
        self._size = 4 * (len(space.low) if isinstance(space, BoxSpace) else 1)
        """Bytes of an action."""
        count = self._size // 4
        self._floats = struct.Struct(f"<{count}f").unpack if count <= FEW else None
        """Reads few numbers quicker than numpy; a sum of them in doubles is finite exactly when every one is."""
        self.held = held
        self.name = agent.name
        self.driver = driver
        self.state = State.ATTACHED
        self.acted = False
        """It has given its inputs for the step to come."""
        self.action = b""
        """The latest action, as it came."""
        self.feedback: Feedback | None = None
        self.infos: NDArray[np.float32] = np.full(len(agent.infos), np.nan, np.float32)
        self.observation: NDArray[np.float32] = np.zeros(held.task.observation_space.low.shape, np.float32)
        self.told: NDArray[np.float32] | None = None
        """Its observation before the action under way, where that has several steps."""
        self.error: OspBridgeError | None = None
        self.cut = ""
        """Why its episode ended although it was not told yet: its next step brings that."""
        self.abandons = False
        """The reset that it waits for ends an episode of its."""
        self.gone = False
        self.thread = 0
        self.seed = 0
        """What the simulator was given at the reset that began its latest episode."""
        self.started = 0.0
        self.steps = 0
        self.reward = 0.0
        self.unmoved = False
        """No step brought ``feedback``: the bridge ended the episode, and tells the last observation again."""
        self.weights_seq_no: int | None = None
        """Which weights of an upstream act for it, where that is known."""
        self.annotates: bool | None = None
        """Whether its environment says what each action was drawn from; None: it is no environment of the hub."""
        self.dist_inputs_size = 0
        """How many numbers those are; 0: the first step decides."""
        self.dist_inputs: bytes | None = None
        """What the latest action was drawn from, as float32."""
        self.logp = 0.0
        """The logarithm of its probability."""
        self.drawn: bytes | None = None
        """The latest action as it was drawn, as float32, where ``action`` was made of it."""

    def takes(self, size: int) -> bool:
        """Whether its actions are numbers, of so many bytes."""
        return self._box and size == self._size

    def read_inputs(self, data: bytes) -> NDArray[np.float32] | bytes:
        """Inputs for the action as it came. Raises LocalProtocolError for a wrong number, NaN or infinity.

        They are the very bytes where the task takes the action as it is.
        """
        if len(data) != self._size:
            raise LocalProtocolError(
                f"an action of agent {self.name!r} has "
                f"{pluralize(self._size // 4, 'number')}, got {pluralize(len(data), 'byte')} of float32"
            )
        if self._floats is None or not isfinite(sum(self._floats(data))):
            finite(np.frombuffer(data, FLOAT), self.name)
        task = self.held.task
        if self._box and task.as_given is ANY_NUMBER:
            return data
        action: NDArray[np.float32] = np.frombuffer(data, FLOAT)
        return task.inputs(action) if self._box else task.inputs(int(action[0]))

    def read_note(self, note: Note) -> None:
        """What its environment says of the action to come. Raises LocalProtocolError for a wrong size."""
        if note.drawn and not self.takes(len(note.drawn)):
            wanted_of_it = (
                f"{pluralize(self._size // 4, 'number')}, as its actions do"
                if self._box
                else "none: it chooses"
            )
            raise LocalProtocolError(
                f"the action in an annotation of agent {self.name!r} must have {wanted_of_it}; got "
                f"{len(note.drawn) // 4}",
                hint="annotate(action=...) is for actions that were stretched or limited after they had been drawn",
            )
        count = len(note.dist_inputs) // 4
        wanted = self.dist_inputs_size or count
        if not count or len(note.dist_inputs) != 4 * wanted:
            must = pluralize(wanted, "number") if wanted else "some numbers"
            raise LocalProtocolError(
                f"an annotation of agent {self.name!r} must have {must} in action_dist_inputs, got {count}",
                hint="give what your policy's distribution is made of: the logits of a discrete action, or the means "
                "and then the logarithms of the standard deviations; equally many for each step",
            )
        self.dist_inputs_size = wanted
        self.dist_inputs = bytes(note.dist_inputs)
        self.logp = note.logp
        self.drawn = bytes(note.drawn) or None
        self.weights_seq_no = note.weights_seq_no

    def not_playing(self) -> OspBridgeError:
        """The error for a step without an episode."""
        if self.error is not None:
            # It may be raised for each of many steps, and would grow by the frames of each.
            return self.error.with_traceback(None)
        if self.gone:
            return HubError(f"agent {self.name!r} was given back")
        if self.held.driver is not None and self.held.driver is not self:
            return LocalProtocolError(
                f"another environment of this process was reset later and owns agent {self.name!r} now",
                hint="reset this one to take it back; environments that step in turn need an agent each",
            )
        return LocalProtocolError("the episode is over, or none was begun", hint="call reset first")

    def cut_short(self, reason: str) -> None:
        """Its episode ends here: the last observation again, truncated."""
        self.unmoved = True
        self.feedback = self.held.task.cut(self.observation.copy(), reason, seed=self.seed)
        self.infos = np.full(len(self.held.interface.infos), np.nan, np.float32)
