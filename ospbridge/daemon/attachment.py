"""The agents of a simulator, whoever drives them, and who may take which. Data: ``lockstep`` moves it."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    HubError,
    LocalProtocolError,
    OspBridgeError,
    UsageError,
)
from ospbridge.finite import FEW
from ospbridge.hub.status import RETURNS_KEPT
from ospbridge.interface import BoxSpace, chosen
from ospbridge.task.base import ANY_NUMBER, finite
from ospbridge.text import listed, pluralize
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.hub.requests import Note
    from ospbridge.interface import AgentInterface, Feedback, Match
    from ospbridge.task.base import Task

__all__ = [
    "FREE",
    "OUT_OF_REACH",
    "Attachment",
    "Driver",
    "Episode",
    "HeldAgent",
    "State",
    "choose",
    "unknown_agent",
]

FLOAT: Final = np.dtype("<f4")
FREE: Final = "free"
"""How an agent stands that nobody is attached to."""
OUT_OF_REACH: Final = (
    "stop that client, and start the daemon again; or, if it died, free all agents with `ospbridge "
    "restart-communication`, and the daemon takes them (it disconnects every client)"
)
"""What to do about an agent that another client of the simulator controls."""


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
        "_box",
        "_floats",
        "_size",
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
        space = task.action_space
        self._box = isinstance(space, BoxSpace)
        count = len(space.low) if isinstance(space, BoxSpace) else 1
        self._size = 4 * count
        """Bytes of an action."""
        self._floats = struct.Struct(f"<{count}f").unpack if count <= FEW else None
        """Reads few numbers quicker than numpy; a sum of them in doubles is finite exactly when every one is."""

    def ended(self, episode: Episode) -> None:
        """An episode is over; nothing is kept of one that had no steps."""
        if episode.steps:
            self.returns.append(episode.reward)
            self.lengths.append(episode.steps)

    def takes(self, size: int) -> bool:
        """Whether its actions are numbers, of so many bytes."""
        return self._box and size == self._size

    def read_inputs(self, data: bytes) -> NDArray[np.float32] | bytes:
        """Inputs for the action as it came. Raises LocalProtocolError for a wrong number, NaN or infinity.

        They are the very bytes where the task takes the action as it is.
        """
        name = self.interface.name
        if len(data) != self._size:
            raise LocalProtocolError(
                f"an action of agent {name!r} has "
                f"{pluralize(self._size // 4, 'number')}, got {pluralize(len(data), 'byte')} of float32"
            )
        if self._floats is None or not isfinite(sum(self._floats(data))):
            finite(np.frombuffer(data, FLOAT), name)
        task = self.task
        if self._box and task.as_given is ANY_NUMBER:
            return data
        action: NDArray[np.float32] = np.frombuffer(data, FLOAT)
        return task.inputs(action) if self._box else task.inputs(int(action[0]))


class Policy:
    """What is known of the policy that acts for an attachment: which it is, and what it drew the latest action from."""

    __slots__ = ("annotates", "dist_inputs", "dist_inputs_size", "drawn", "logp", "weights_seq_no")

    def __init__(self) -> None:
        self.annotates: bool | None = None
        """Whether its environment says what each action was drawn from; None: it is no environment of the hub."""
        self.weights_seq_no: int | None = None
        """Which weights of an upstream act, where that is known."""
        self.dist_inputs_size = 0
        """How many numbers ``dist_inputs`` has; 0: the first step decides."""
        self.dist_inputs: bytes | None = None
        """What the latest action was drawn from, as float32."""
        self.logp = 0.0
        """The logarithm of its probability."""
        self.drawn: bytes | None = None
        """The latest action as it was drawn, as float32, where the one that came was made of it."""


@dataclass(slots=True)
class Episode:
    """One of an attachment; ``seed`` is what the simulator was given at the reset that began it, at ``started``."""

    seed: int = 0
    started: float = 0.0
    steps: int = 0
    reward: float = 0.0
    unmoved: bool = False
    """No step brought its end: the bridge ended it, and tells the last observation again."""
    abandoned: bool = False
    """A reset that it asked for ended it."""


class Attachment:
    """One agent of one connection.

    ``feedback`` and ``infos`` (float32[n_infos]) are what the last reset or step brought, ``error`` why there is none.
    """

    __slots__ = (
        "acted",
        "action",
        "cut",
        "driver",
        "episode",
        "error",
        "feedback",
        "held",
        "infos",
        "name",
        "observation",
        "policy",
        "state",
        "thread",
    )

    def __init__(self, held: HeldAgent, driver: Driver) -> None:
        self.held = held
        self.name = held.interface.name
        self.driver = driver
        self.policy = Policy()
        self.thread = 0
        """Which of its process asked for its latest reset; 0: not known."""
        self.state = State.ATTACHED
        self.episode = Episode()
        """The latest."""
        self.acted = False
        """It has given its inputs for the step to come."""
        self.action = b""
        """The latest action, as it came."""
        self.feedback: Feedback | None = None
        self.infos: NDArray[np.float32] = np.full(len(held.interface.infos), np.nan, np.float32)
        self.observation: NDArray[np.float32] = np.zeros(held.task.observation_space.low.shape, np.float32)
        self.error: OspBridgeError | None = None
        self.cut = ""
        """Why its episode ended although it was not told yet: its next step brings that."""

    @property
    def gone(self) -> bool:
        """It gave its agent back."""
        return self not in self.held.attachments

    def read_note(self, note: Note) -> None:
        """What its environment says of the action to come. Raises LocalProtocolError for a wrong size."""
        policy, held = self.policy, self.held
        if note.drawn and not held.takes(len(note.drawn)):
            space = held.task.action_space
            wanted_of_it = (
                f"{pluralize(len(space.low), 'number')}, as its actions do"
                if isinstance(space, BoxSpace)
                else "none: it chooses"
            )
            raise LocalProtocolError(
                f"the action in an annotation of agent {self.name!r} must have {wanted_of_it}; got "
                f"{len(note.drawn) // 4}",
                hint="annotate(action=...) is for actions that were stretched or limited after they had been drawn",
            )
        count = len(note.dist_inputs) // 4
        wanted = policy.dist_inputs_size or count
        if not count or len(note.dist_inputs) != 4 * wanted:
            must = pluralize(wanted, "number") if wanted else "some numbers"
            raise LocalProtocolError(
                f"an annotation of agent {self.name!r} must have {must} in action_dist_inputs, got {count}",
                hint="give what your policy's distribution is made of: the logits of a discrete action, or the means "
                "and then the logarithms of the standard deviations; equally many for each step",
            )
        policy.dist_inputs_size = wanted
        policy.dist_inputs = bytes(note.dist_inputs)
        policy.logp = note.logp
        policy.drawn = bytes(note.drawn) or None
        policy.weights_seq_no = note.weights_seq_no

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
        episode = self.episode
        episode.unmoved = True
        self.feedback = self.held.task.cut(self.observation.copy(), reason, seed=episode.seed)
        self.infos = np.full(len(self.held.interface.infos), np.nan, np.float32)


# --- who may take which agent ----------------------------------------------------------------------------------------


def choose(
    agents: Mapping[str, HeldAgent],
    patterns: Sequence[str],
    driver: Driver,
    meant: Sequence[Match] = (),
    foreign: Collection[str] = (),
) -> list[HeldAgent]:
    """The agents that fit, all or none; without patterns the only free one. Where several fit, what is ``meant``.

    Raises AgentNotFound, AgentTaken where another process has one of them, or one is ``foreign`` (another client of the
    simulator has it), UsageError where several are free.
    """
    wanted: list[HeldAgent] = []
    for pattern in patterns:
        hits = _among(_fitting(agents, pattern, foreign), meant)
        wanted += [held for held in hits.values() if held not in wanted]
    if not patterns:
        wanted = [_only_free(_among(agents, meant), driver)]
    for held in wanted:
        holder = _holder(held, driver)
        if holder is not None:
            raise _taken(held, holder)
    return wanted


def unknown_agent(agents: Iterable[str], name: str) -> AgentNotFound:
    """The error for a name or glob that fits none of the daemon's agents."""
    names = list(agents)
    return AgentNotFound(
        f"the daemon has no agent {name!r}; it has {listed(names) or 'none at all'}",
        hint=nearest(name, names)
        or "`ospbridge status` lists the daemon's agents, `ospbridge connect --agent GLOB` chooses them",
    )


def _among(agents: Mapping[str, HeldAgent], meant: Sequence[Match]) -> Mapping[str, HeldAgent]:
    """Those that are meant, where any is."""
    interfaces = [held.interface for held in agents.values()]
    names = {interface.name for kind in meant for interface in kind.among(interfaces)}
    return {name: held for name, held in agents.items() if name in names} or agents


def _fitting(
    agents: Mapping[str, HeldAgent], pattern: str, foreign: Collection[str]
) -> Mapping[str, HeldAgent]:
    hits = {name: agents[name] for name in chosen(agents, (pattern,))}
    if not hits and (theirs := chosen(sorted(foreign), (pattern,))):
        raise AgentTaken(
            f"the daemon does not have agent {theirs[0]!r}: another client of the simulator controls it",
            hint=OUT_OF_REACH,
            agents=theirs,
        )
    if not hits:
        raise unknown_agent(agents, pattern)
    return hits


def _holder(held: HeldAgent, asking: Driver) -> Attachment | None:
    """Who keeps the agent from another process; environments of one process share it."""
    return next((a for a in held.attachments if not a.driver.same_process(asking)), None)


def _only_free(agents: Mapping[str, HeldAgent], driver: Driver) -> HeldAgent:
    free = [held for held in agents.values() if not held.attachments]
    own = [held for held in agents.values() if held.attachments and not _holder(held, driver)]
    if len(free) == 1 or (not free and len(own) == 1):
        return (free or own)[0]
    if free:
        names = listed(held.interface.name for held in free)
        raise UsageError(f"the daemon has several free agents: {names}", hint="name one, agent=NAME")
    taken = [_taken(held, holder) for held in agents.values() if (holder := _holder(held, driver))]
    raise (
        taken[0]
        if len(taken) == 1
        else AgentTaken(
            f"every agent of the daemon is taken: {listed(agents)}",
            hint="`ospbridge status` shows by whom",
        )
    )


def _taken(held: HeldAgent, holder: Attachment) -> AgentTaken:
    return AgentTaken(
        f"agent {held.interface.name!r} is driven by {holder.driver}",
        hint="choose another agent, `ospbridge status` lists them; or close that environment, or, where an upstream "
        "drives it, choose that one's agents with --rllink-agents (or `agents` of its [[rllink]])",
    )
