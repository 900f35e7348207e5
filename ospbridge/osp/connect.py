"""Finding an OSP server, its profile and our handler (OSP 1.1, section 4.1), without I/O.

Each kind of server is silent to the other's form of INIT, so both forms go out from one socket and the answer's
length decides; who answers both is a server of the document, whichever answer comes first. A server of the document may
await the end byte that this lists and does not explain: every other INIT in its form has one, and so has all that is
said to who is heard to end its own with it then. Two answers may come (to two INITs): one is adopted, other handlers
get an END. Connecting the socket would hide a second answer, so when more than one INIT was sent the adoption waits
120 ms for it.

A server that takes one client only is silent for as long as it believes that one there, though it died. So a driver
that can free such a place has its turn when INIT met silence, and again each few times that it does.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Final

from ospbridge.errors import RemoteProtocolError, SimulatorNotFound, SimulatorSilent, VersionRefused
from ospbridge.interface import Endpoint
from ospbridge.osp.client import RESET_COMPLETED, SILENCE
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR
from ospbridge.osp.messages import End, EndAck, Init, InitAck, Truncated, decode_reply
from ospbridge.osp.profile import DOCUMENT, NERD, InitForm, Profile
from ospbridge.osp.queries import UNREADABLE
from ospbridge.osp.timing import Limits, Waits
from ospbridge.osp.wire import END

__all__ = ["ConnectMachine", "SurplusMachine"]

COLLECT: Final = 0.12
"""Seconds to wait for a second answer after the last INIT, when more than one was sent."""
ASKED: Final = 3
"""So often both forms of INIT are sent before a refusal of the one counts for both."""
SLOWEST: Final = 1.0
"""Seconds that a second answer is awaited at most where the first was slow."""
STRANGERS_NAMED: Final = 3
BIG_ENDIAN: Final = (
    "that is 1.1 in big-endian order: the simulator must write integers and floats in little-endian order"
)
"""A hint."""
TRIES: Final = 3
"""Of an END that nobody confirms."""
PAUSE_EVERY: Final = 3
"""So often INIT meets silence from one pause to the next. The first one is at the first silence."""
PAUSE_SHARE: Final = 0.5
"""Of the time that is left, at most: what is done meanwhile may be in vain too, and INIT needs the rest."""


class ConnectMachine:
    """INIT until answered. ``outgoing`` holds (datagram, destination); feed what comes back with its source.

    ``profile`` None probes for both. Finished when ``adopted`` is set; errors are raised from ``handle_timer`` and
    ``receive``. ``pauses``: the driver wants its turns while nobody answers (``paused_until``).
    """

    def __init__(
        self,
        server: Endpoint,
        profile: Profile | None,
        *,
        limits: Limits | None = None,
        now: float,
        pauses: bool = False,
    ) -> None:
        self.server = server
        self.limits = limits or Limits()
        self.outgoing: list[tuple[bytes, Endpoint]] = []
        self.adopted: Endpoint | None = None
        """The handler, once it is time to connect to it."""
        self.profile = profile
        self.greeting = b""
        """The INIT_ACK of our handler, as it came."""
        self.surplus: list[Endpoint] = []
        self.deadline: float
        self.paused_until: float | None = None
        """INIT met silence: the driver may see to what keeps the server from answering, until then at the latest. It
        clears this, and feeds what came meanwhile, before it looks at the time again."""
        self._pause_behind = 0 if pauses else inf
        """So many INITs that nobody answered."""
        self._wanted = (profile,) if profile else (DOCUMENT, NERD)
        self._waits = Waits(SILENCE)
        self._started = now
        self._give_up = now + self.limits.connect
        self._last_sent = now
        self._inits = 0
        self._marked = False
        """One of 4-byte integers had the end byte."""
        self._answer: tuple[Endpoint, Profile] | None = None
        self._refusal: VersionRefused | None = None
        self._refusing: list[Endpoint] = []
        """Handlers that answered with another version."""
        self._collecting = COLLECT
        self._strangers: list[str] = []
        self._unreadable = False
        """An answer was none of OSP 1.1."""
        self._elsewhere = ""
        """The address of another host, from which an answer to an INIT came."""
        self._ask(now)

    def _ask(self, now: float) -> None:
        again = self._inits // len(self._wanted) % 2 == 1
        for profile in self._wanted:
            marked = profile.end_marker or (again and profile.init_form is InitForm.INTS)
            self._marked = self._marked or (marked and profile.init_form is InitForm.INTS)
            self.outgoing.append((Init(form=profile.init_form).encode(end=marked), self.server))
            self._inits += 1
        self._last_sent = now
        self.deadline = min(now + self._waits.next(), self._give_up)

    @property
    def answered(self) -> tuple[Endpoint, Profile] | None:
        """Our handler and what it speaks, as soon as it is known, which may be before it is adopted."""
        return self._answer

    @property
    def finished(self) -> bool:
        """A handler is adopted."""
        return self.adopted is not None

    @property
    def owed(self) -> int:
        """So many INITs of the form that was answered may still be: they were lost, or wait to be read."""
        return max(self._inits // len(self._wanted) - 1 - len(self.surplus), 0) if self._answer else 0

    def turn_back(self) -> None:
        """Nothing will be adopted: each handler that has answered gets its END."""
        self.outgoing.clear()
        if self._answer is not None:
            source, profile = self._answer
            self.outgoing.append((End().encode(end=profile.end_marker), source))
        self.outgoing.extend((End().encode(end=False), source) for source in self._refusing)

    def receive(self, data: bytes, source: Endpoint, now: float) -> None:
        """A datagram came. Raises VersionRefused where only one form of INIT is known; garbage is only remembered."""
        if source.host != self.server.host:
            self._elsewhere = self._elsewhere or (source.host if _is_init_ack(data) else "")
            self._stranger(f"a datagram from {source}, which is not {self.server.host}")
            return
        try:
            reply = decode_reply(data)
        except RemoteProtocolError as error:
            self._unreadable = True
            self._stranger(f"from {source}: {error.message}")
            return
        if not isinstance(reply, InitAck):
            if not isinstance(reply, Truncated) and reply.CODE in RESET_COMPLETED:
                # Every client is told of a reset, and a handler may wait for the answer whatever else it is asked.
                self.outgoing.append((bytes((RESET_COMPLETED[reply.CODE],)), source))
            self._stranger(f"{type(reply).__name__} from {source}")
            return
        if (reply.major, reply.minor) != (PROTOCOL_MAJOR, PROTOCOL_MINOR):
            self._other_version(reply, source)
            return
        if self._answer is not None and (source == self._answer[0] or source in self.surplus):
            return
        spoken = DOCUMENT if reply.form is InitForm.INTS else NERD
        spoken = next((p for p in self._wanted if p.init_form is reply.form), spoken)
        if self._marked and reply.form is InitForm.INTS and data.endswith(END):
            spoken = replace(spoken, end_marker=True)
        if self._answer is not None:
            other = (source, spoken)
            if self.adopted is None and self._asked_before(spoken, self._answer[1]):
                other, self._answer, self.greeting = self._answer, other, data
            self.surplus.append(other[0])
            self.outgoing.append((End().encode(end=other[1].end_marker), other[0]))
            return
        self._answer = (source, spoken)
        self.greeting = data
        if now > self._last_sent > self._started:
            # It was asked again before it answered, and takes as long for the second answer.
            self._collecting += min(now - self._started, SLOWEST)
        self._adopt_when_due(now)

    def _asked_before(self, one: Profile, other: Profile) -> bool:
        """Whether the first form of INIT comes before the second. A server of both is the same kind each time then."""
        forms = [profile.init_form for profile in self._wanted]
        return {one.init_form, other.init_form} <= {*forms} and forms.index(one.init_form) < forms.index(
            other.init_form
        )

    def _other_version(self, reply: InitAck, source: Endpoint) -> None:
        """Who misreads the one form of INIT may know the other: the refusal counts when that has no answer either."""
        swapped = (reply.major, reply.minor) == (PROTOCOL_MAJOR << 24, PROTOCOL_MINOR << 24)
        self._refusal = VersionRefused(
            f"{self.server} answered with OSP {reply.major}.{reply.minor}, expected {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}",
            hint=BIG_ENDIAN if swapped else "",
        )
        if source not in self._refusing:
            self._refusing.append(source)
        if self._inits == 1:
            raise self._refusal

    def _adopt_when_due(self, now: float) -> None:
        assert self._answer is not None
        due = self._last_sent + self._collecting
        if self._inits == 1 or now >= due:
            self.adopted, self.profile = self._answer
            for source in self._refusing:
                if source not in (self.adopted, *self.surplus):
                    self.surplus.append(source)
                    self.outgoing.append((End().encode(end=self.profile.end_marker), source))
        else:
            self.deadline = due

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come. Raises SimulatorSilent after the connect limit, and VersionRefused."""
        if now < self.deadline:
            return
        if self._answer is not None:
            self._adopt_when_due(now)
            return
        if self._refusal is not None and (self._inits >= ASKED * len(self._wanted) or now >= self._give_up):
            raise self._refusal
        if now >= self._give_up:
            raise self._silent(now)
        if self._inits > self._pause_behind and self._refusal is None:
            self._pause_behind = self._inits + (PAUSE_EVERY - 1) * len(self._wanted)
            self.paused_until = now + (self._give_up - now) * PAUSE_SHARE
            return
        self._ask(now)

    def handle_refused(self) -> None:
        """The main port is closed."""
        raise SimulatorNotFound(f"nothing listens at {self.server} (connection refused)")

    def handle_unreachable(self, why: str) -> None:
        """A router or a firewall turns datagrams to the main port away."""
        raise SimulatorNotFound(
            f"{self.server} cannot be reached: {why}",
            hint="check the address; a firewall on the simulator's host must let in UDP, to this port and to those of "
            "handlers",
        )

    def _stranger(self, what: str) -> None:
        if len(self._strangers) < STRANGERS_NAMED:
            self._strangers.append(what)

    def _silent(self, now: float) -> SimulatorSilent:
        forms = " and ".join(f"{p.name} ({p.init_form.value})" for p in self._wanted)
        seen = "; ".join(self._strangers) if self._strangers else "nothing came back"
        hint = "check host and port (45454 unless the simulator was started with another); "
        if self._elsewhere:
            # Asked at one of its host's addresses, a simulator that listens at all of them answers from the one that is
            # nearer to us.
            hint = f"if {self._elsewhere} is an address of the simulator's host, write that one; else " + hint
        if len(self._wanted) == 1:
            hint = "profile auto finds out which form of INIT it understands; " + hint
        if self._unreadable:
            hint += UNREADABLE
        else:
            hint += "it must speak OSP 1.1; a server that takes one client only is silent for as long as it has one"
        if not self._strangers:
            hint += (
                "; a firewall on the way must let UDP pass, to this port and to those of handlers, and back"
            )
        return SimulatorSilent(
            f"no OSP 1.1 server answered at {self.server} within {now - self._started:.1f} s: sent {self._inits} INITs "
            f"of profile {forms}; {seen}",
            hint=hint,
        )


def _is_init_ack(data: bytes) -> bool:
    try:
        return isinstance(decode_reply(data), InitAck)
    except RemoteProtocolError:
        return False


class SurplusMachine:
    """END for each handler that answers, until as many have left as INITs were ``owed`` an answer, or all is silent.

    ``outgoing`` holds (datagram, destination); feed what comes back with its source. Begins with ``begin``, when the
    server may have read on, and ends by itself, at ``give_up`` at the latest.
    """

    def __init__(self, server: Endpoint, profile: Profile, owed: int) -> None:
        self.outgoing: list[tuple[bytes, Endpoint]] = []
        self.deadline = 0.0
        self.finished = owed <= 0
        self._server = server
        self._marked = profile.end_marker
        self._quiet = SILENCE + profile.init_takes
        """Seconds of silence after which nobody is there, or an END is said again."""
        self._owed = owed
        self._tries: dict[Endpoint, int] = {}
        """By handler that has not confirmed yet."""
        self._gone: set[Endpoint] = set()
        self._give_up = 0.0

    def begin(self, now: float, give_up: float) -> None:
        """From now on each silence counts."""
        self._give_up = give_up
        self._wait(now)

    def receive(self, data: bytes, source: Endpoint, now: float) -> None:
        """A datagram came, to the port that the INITs were sent from."""
        if source.host != self._server.host or source in self._gone:
            return
        try:
            reply = decode_reply(data)
        except RemoteProtocolError:
            return
        message = reply.message if isinstance(reply, Truncated) else reply
        if isinstance(message, InitAck) and source not in self._tries:
            self._tries[source] = 0
            self._say_end(source)
        elif isinstance(message, EndAck) and source in self._tries:
            self._let_go(source)
        elif message.CODE in RESET_COMPLETED and source in self._tries:
            # It waits for this answer, and may take END for it.
            self.outgoing.append((bytes((RESET_COMPLETED[message.CODE],)), source))
            self._say_end(source)
        else:
            return
        self._wait(now)

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come."""
        if self.finished or now < self.deadline:
            return
        for source, tries in list(self._tries.items()):
            if tries < TRIES:
                self._say_end(source)
            else:
                self._let_go(source)
        if now >= self._give_up or not self._tries:
            self.finished = True
        self._wait(now)

    def _say_end(self, source: Endpoint) -> None:
        self._tries[source] += 1
        self.outgoing.append((End().encode(end=self._marked), source))

    def _let_go(self, source: Endpoint) -> None:
        del self._tries[source]
        self._gone.add(source)
        self._owed -= 1
        if self._owed <= 0 and not self._tries:
            self.finished = True

    def _wait(self, now: float) -> None:
        self.deadline = min(now + self._quiet, self._give_up)
