"""Finding an OSP server, its profile and our handler (OSP 1.1, section 4.1), without I/O.

Each kind of server is silent to the other's form of INIT, so both forms go out from one socket and the answer's
length decides; who answers both is a server of the document. Such a server may await the end byte, which every other
INIT of its form has therefore. Of two answers one is adopted, other handlers get an END. Connecting the socket would
hide a second answer, so when more than one INIT was sent the adoption waits 120 ms for it.

A server that takes one client only is silent while it believes in one that died: a driver that can free its place has
its turn when INIT met silence (``paused_until``).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import inf
from typing import Final

from ospbridge.errors import RemoteProtocolError, SimulatorNotFound, SimulatorSilent, VersionRefused
from ospbridge.interface import Endpoint
from ospbridge.osp.client import RESET_COMPLETED
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.messages import End, EndAck, Init, InitAck, decode_reply
from ospbridge.osp.profile import DOCUMENT, NERD, InitForm, Profile
from ospbridge.osp.queries import UNREADABLE
from ospbridge.osp.timing import SILENCE, Limits, waits
from ospbridge.osp.wire import END

__all__ = ["ConnectMachine", "SurplusMachine"]

COLLECT: Final = 0.12
"""Seconds to wait for a second answer after the last INIT, when more than one was sent."""
ASKED: Final = 3
"""So often both forms of INIT are sent before a refusal of the one counts for both."""
STRANGERS_NAMED: Final = 3
BIG_ENDIAN: Final = (
    "that is 1.1 in big-endian order: the simulator must write integers and floats in little-endian order"
)
"""A hint."""
PAUSE_EVERY: Final = 3
"""So often INIT meets silence from one pause to the next. The first one is at the first silence."""
PAUSE_SHARE: Final = 0.5
"""Of the time that is left, at most: what is done meanwhile may be in vain too, and INIT needs the rest."""


class _Strangers:
    """What came since ``began`` and is no answer to INIT, for the error that tells that none came."""

    def __init__(self, began: float) -> None:
        self.began = began
        self._met: list[str] = []
        self._unreadable = False

    def met(self, what: str, *, unreadable: bool = False) -> None:
        """A datagram came."""
        self._unreadable = self._unreadable or unreadable
        if len(self._met) < STRANGERS_NAMED:
            self._met.append(what)

    def silent(self, told: str, *, probed: bool) -> SimulatorSilent:
        """The error, which begins with what is ``told``."""
        hint = "check host and port (45454 unless the simulator was started with another); "
        if not probed:
            hint = f"profile auto finds out which form of INIT it understands; {hint}"
        if self._unreadable:
            hint += UNREADABLE
        else:
            hint += "it must speak OSP 1.1; a server that takes one client only is silent for as long as it has one"
        if not self._met:
            hint += (
                "; a firewall on the way must let UDP pass, to this port and to those of handlers, and back"
            )
        return SimulatorSilent(f"{told}; {'; '.join(self._met) or 'nothing came back'}", hint=hint)


class ConnectMachine:
    """INIT until answered. ``outgoing`` holds (datagram, destination); feed what comes back with its source.

    ``profile`` None probes for both. Errors are raised from ``handle_timer`` and ``receive``. ``pauses``: the driver
    wants its turns while nobody answers.
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
        self.outgoing: list[tuple[bytes, Endpoint]] = []
        self.answered: tuple[Endpoint, Profile] | None = None
        """Our handler and what it speaks; connect to it when this is ``finished``."""
        self.finished = False
        self.greeting = b""
        """The INIT_ACK of our handler, as it came."""
        self.surplus: list[Endpoint] = []
        self.deadline = now
        self.paused_until: float | None = None
        """The driver may see to what keeps the server from answering, until then at the latest, and clears this."""
        self._pause_behind = 0 if pauses else inf
        """So many rounds that nobody answered."""
        self._wanted = (profile,) if profile else (DOCUMENT, NERD)
        self._rounds = 0
        """How often each form was sent."""
        self._last_sent = now
        self._give_up = now + (limits or Limits()).connect
        self._refused: dict[Endpoint, VersionRefused] = {}
        """Handlers that answered with another version."""
        self._strangers = _Strangers(now)
        self._ask(now)

    def _ask(self, now: float) -> None:
        for profile in self._wanted:
            marked = profile.end_marker or (self._rounds % 2 == 1 and profile.init_form is InitForm.INTS)
            self.outgoing.append((Init(form=profile.init_form).encode(end=marked), self.server))
        self._last_sent = now
        self.deadline = min(now + next(islice(waits(), self._rounds, None)), self._give_up)
        self._rounds += 1

    @property
    def owed(self) -> int:
        """So many INITs of the form that was answered may still be: they were lost, or wait to be read."""
        return max(self._rounds - 1 - len(self.surplus), 0) if self.answered else 0

    def turn_back(self) -> None:
        """Nothing will be adopted: each handler that has answered gets its END."""
        self.outgoing.clear()
        if self.answered is not None:
            self._end(*self.answered)
        for source in self._refused:
            self._end(source, DOCUMENT)

    def _end(self, source: Endpoint, profile: Profile) -> None:
        self.outgoing.append((End().encode(end=profile.end_marker), source))

    def receive(self, data: bytes, source: Endpoint, now: float) -> None:
        """A datagram came. Raises VersionRefused where only one form of INIT is known."""
        if source.host != self.server.host:
            # One that listens at all addresses of its host may answer from another one than was asked.
            self._strangers.met(f"a datagram from {source}: if that is the simulator, write its address")
            return
        try:
            reply = decode_reply(data)
        except RemoteProtocolError as error:
            self._strangers.met(f"from {source}: {error.message}", unreadable=True)
            return
        if not isinstance(reply, InitAck):
            if data[0] in RESET_COMPLETED:
                # Every client is told of a reset, and a handler may wait for the answer whatever else it is asked.
                self.outgoing.append((_reset_acknowledged(data), source))
            self._strangers.met(f"{type(reply).__name__} from {source}")
        elif (reply.major, reply.minor) != (PROTOCOL_MAJOR, PROTOCOL_MINOR):
            self._other_version(reply, source)
        elif source not in self.surplus and (self.answered is None or source != self.answered[0]):
            self._answer(data, source, reply.form, now)

    def _answer(self, data: bytes, source: Endpoint, form: InitForm, now: float) -> None:
        known = (*self._wanted, DOCUMENT, NERD)
        spoken = next(profile for profile in known if profile.init_form is form)
        if self._rounds > 1 and form is InitForm.INTS and data.endswith(END):
            spoken = replace(spoken, end_marker=True)
        answer = source, spoken
        if self.answered is None:
            self.answered, self.greeting = answer, data
            self.deadline = self._last_sent + COLLECT
            self._adopt_when_due(now)
            return
        both_known = len(self._wanted) > 1
        if both_known and not self.finished and form is InitForm.INTS is not self.answered[1].init_form:
            # A server that answers both forms is the same kind each time then.
            answer, self.answered, self.greeting = self.answered, answer, data
        self.surplus.append(answer[0])
        self._end(*answer)

    def _other_version(self, reply: InitAck, source: Endpoint) -> None:
        """Who misreads the one form of INIT may know the other: the refusal counts when that has no answer either."""
        swapped = (reply.major, reply.minor) == (PROTOCOL_MAJOR << 24, PROTOCOL_MINOR << 24)
        self._refused[source] = VersionRefused(
            f"{self.server} answered with OSP {reply.major}.{reply.minor}, expected {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}",
            hint=BIG_ENDIAN if swapped else "",
        )
        if len(self._wanted) == 1:
            raise self._refused[source]

    def _adopt_when_due(self, now: float) -> None:
        assert self.answered is not None
        if now >= self.deadline or self._rounds == len(self._wanted) == 1:
            self.finished = True
            for source in self._refused:
                if source not in (self.answered[0], *self.surplus):
                    self.surplus.append(source)
                    self._end(source, self.answered[1])

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come. Raises SimulatorSilent after the connect limit, and VersionRefused."""
        if now < self.deadline:
            return
        if self.answered is not None:
            self._adopt_when_due(now)
        elif self._refused and (self._rounds >= ASKED or now >= self._give_up):
            raise next(iter(self._refused.values()))
        elif now >= self._give_up:
            forms = " and ".join(f"{p.name} ({p.init_form.value})" for p in self._wanted)
            raise self._strangers.silent(
                f"no OSP 1.1 server answered at {self.server} within {now - self._strangers.began:.1f} s: sent "
                f"{self._rounds * len(self._wanted)} INITs of profile {forms}",
                probed=len(self._wanted) > 1,
            )
        elif self._rounds > self._pause_behind and not self._refused:
            self._pause_behind = self._rounds + PAUSE_EVERY - 1
            self.paused_until = now + (self._give_up - now) * PAUSE_SHARE
        else:
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


def _reset_acknowledged(told: bytes) -> bytes:
    return bytes((RESET_COMPLETED[Code(told[0])],))


class SurplusMachine:
    """END for each handler that answers, until as many have left as INITs were ``owed`` an answer, or all is silent.

    Begins with ``begin``, when the server may have read on, and ends by itself, at ``give_up`` at the latest.
    """

    def __init__(self, server: Endpoint, profile: Profile, owed: int) -> None:
        self.outgoing: list[tuple[bytes, Endpoint]] = []
        self.deadline = self._give_up = 0.0
        self.finished = owed <= 0
        self._server = server
        self._end = End().encode(end=profile.end_marker)
        self._quiet = SILENCE + profile.init_takes
        """Seconds of silence after which nobody is there, or an END is said again."""
        self._owed = owed
        self._there: list[Endpoint] = []
        """Handlers that have answered."""
        self._left: set[Endpoint] = set()
        """Those that have left, as each is told to."""

    def begin(self, now: float, give_up: float) -> None:
        """From now on each silence counts."""
        self._give_up = give_up
        self._wait(now)

    def receive(self, data: bytes, source: Endpoint, now: float) -> None:
        """A datagram came, to the port that the INITs were sent from."""
        if source.host != self._server.host or source in self._left:
            return
        try:
            reply = decode_reply(data)
        except RemoteProtocolError:
            return
        known = source in self._there
        if isinstance(reply, InitAck) and not known:
            self._there.append(source)
            self.outgoing.append((self._end, source))
        elif isinstance(reply, EndAck) and known:
            self._there.remove(source)
            self._left.add(source)
            self.finished = len(self._left) >= self._owed and not self._there
        elif data[0] in RESET_COMPLETED and known:
            # It waits for this answer, and may take END for it.
            self.outgoing += [(_reset_acknowledged(data), source), (self._end, source)]
        else:
            return
        self._wait(now)

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come."""
        if self.finished or now < self.deadline:
            return
        self.outgoing += [(self._end, source) for source in self._there]
        self.finished = not self._there or now >= self._give_up
        self._wait(now)

    def _wait(self, now: float) -> None:
        self.deadline = min(now + self._quiet, self._give_up)
