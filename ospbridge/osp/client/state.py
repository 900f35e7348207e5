"""What one session knows of its server and of what is under way: the data that all exchanges share.

With a place for each in the object itself, since every step looks at a dozen of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from ospbridge.osp.client.attention import Attention
from ospbridge.osp.client.clock import StepClock
from ospbridge.osp.client.notices import Notices
from ospbridge.osp.client.round_trips import RoundTrips
from ospbridge.osp.client.stalls import Stalls
from ospbridge.osp.number_text import Printing
from ospbridge.osp.step.echo import Echo
from ospbridge.osp.step.lateness import Lateness

if TYPE_CHECKING:
    from ospbridge.errors import OspBridgeError
    from ospbridge.interface import AgentInterface, ValueEntry
    from ospbridge.osp.messages import Message
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.timing import Limits

__all__ = ["SessionState"]


@dataclass(slots=True, eq=False, repr=False)
class SessionState:
    """Of a session with a server of that profile; ``peer`` names the simulator in messages."""

    profile: Profile
    limits: Limits
    peer: str
    now: float = 0.0
    round_trips: RoundTrips = field(init=False)
    patience: float = field(init=False)
    """Seconds of silence that may be acted upon: as many as the profile says, or more where answers take longer."""
    outgoing: list[bytes | bytearray] = field(default_factory=list)
    """Datagrams to send, oldest first. The driver sends and clears them after each call."""
    deadline: float | None = None
    notices: Notices = field(default_factory=Notices)
    stalls: Stalls = field(init=False)
    clock: StepClock = field(default_factory=StepClock)
    controlled: dict[int, AgentInterface] = field(default_factory=dict)
    """Agents this session registered for, by local id."""
    agent_names: dict[int, str] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    """Agents that other clients held at the last overview."""
    events: dict[int, str] = field(default_factory=dict)
    ever_registered_events: bool = False
    values: dict[str, ValueEntry] = field(default_factory=dict)
    listed: bool = False
    """``values`` has held the whole repository."""
    written: set[int] = field(default_factory=set)
    """Variables that were set in this session, by local id."""
    described: set[int] = field(default_factory=set)
    """Agents whose interface was asked for, by local id."""
    observed: dict[int, str] = field(default_factory=dict)
    guarded: bool = False
    """Set by the first anomaly: from then on each step is verified by the clock."""
    disturbed: bool = False
    """An anomaly was seen: datagrams get lost, or come late or twice."""
    disturbed_at: float = 0.0
    """When the latest was seen."""
    printing: Printing = field(default_factory=Printing)
    echo: Echo = field(init=False)
    punctual: bool = True
    """Cleared when a datagram came later than the patience."""
    spare_ack: Message | None = None
    """What a server may await behind the latest list of values, though no known one does."""
    awaits_spare_ack: bool = False
    """This one was seen to."""
    acknowledges_pieces: bool = False
    """The server awaits an acknowledgement of each piece of a list."""
    counts_from_one: bool = False
    """The pieces of one of its lists do, so those of others may."""
    list_left: Message | None = None
    """What the handler may await, since a list was asked for and left: the next exchange begins with it."""
    mute_questions: int = 0
    """So many questions for lists of variables met silence, and none was answered since."""
    seedless: bool = False
    """The simulator has no variable to take a seed by."""
    own_seeds_looked_for: bool = False
    """Whether the simulator draws seeds of its own was asked."""
    vote_outstanding: bool = False
    resets_outstanding: int = 0
    """Reset votes that were sent and not seen to be used up."""
    left_reset_done: bool = False
    """All of them belong to a reset that somebody did not wait for, and that completed since."""
    reset_seed: int = 0
    """That of the latest of them."""
    resets_owed: int = 0
    """Completions of our own reset that may still come, until a step is completed behind it."""
    reset_within: bool = False
    """One of them came while the latest step was under way: the world was reset before that step, or behind it."""
    doubles: bool = False
    """A vote was acknowledged more often than it was sent, in this session."""
    doubled: bool = False
    """The same of the latest step's votes, during that step or behind it."""
    overcounted: bool = False
    """Such a vote may count for the next step, which would run before all of its votes are in (``holding``)."""
    may_lag: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Agents with such a vote in this episode, whose inputs may come one step late from then on (``lagging``): how
    many more steps that may stay unknown, and the inputs that were given in the latest."""
    latest_in_doubt: bool = False
    """Such a vote may have counted in the latest step, which ran too early then: the next step tells."""
    reset_told: bool = False
    """A reset was completed that this session did not ask for, if the clock agrees: that may be a late copy."""
    lateness: Lateness = field(default_factory=Lateness)
    no_later: float = inf
    """When every question must be over, whatever its own limit is."""
    attention: Attention = field(default_factory=Attention)
    awaited: int = 0
    """Agent of whose completion a server may await an acknowledgement, if it is silent to a question; 0: any."""
    owed_acks: set[int] = field(default_factory=set)
    """Agents whose last vote ran although its acknowledgement never came."""
    suspect: str = ""
    """Why the current episode cannot be trusted; empty while it can."""
    lost: OspBridgeError | None = None
    retries: int = 0
    leaving: bool = False
    """No step is voted for any more, and nothing asked but to be let go."""
    ended: bool = False

    def __post_init__(self) -> None:
        self.round_trips = RoundTrips(self.profile.patience)
        self.patience = self.profile.patience
        self.echo = Echo(self.printing)
        self.stalls = Stalls(self.notices, self.peer)
