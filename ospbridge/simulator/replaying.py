"""A recorded simulator: answers clients as a trace says that one did, without I/O.

It takes the place of ``ServerMachine`` under ``UdpServer``. The first client is given the first recorded conversation,
the next one the next, and after the last the first again. An INIT is answered where it has the form that the recorded
one had; one that comes again, before anything else did, by the same handler.

Requests for steps and resets are taken in the recorded order, those of one step in any order among the agents;
questions are answered as at the same place of the recording, or at the nearest one before it. A client that does
something else than the recorded one is told of, and answered as far as the recording goes: a reset goes on with the
next recorded reset, a step beyond the recorded episode is acknowledged and never runs, and what nobody asked for is
answered as by a simulator that has no such thing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.observe.trace import Direction, describe
from ospbridge.observe.trace_round_trips import ACKNOWLEDGEMENTS
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.messages import Init, decode_request
from ospbridge.osp.server import NO_INIT, OTHER_INIT, BaseServer
from ospbridge.osp.wire import END
from ospbridge.simulator.replay_script import LEAVING, VOTES, Request, meaning
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ospbridge.osp.profile import InitForm
    from ospbridge.osp.server import Effect
    from ospbridge.simulator.replay_script import Answer, Script

__all__ = ["ReplayMachine", "Told", "What"]

MOST_QUEUED: Final = 100_000
"""Answers of one client that wait for their time; a client that asks faster than recorded loses what is beyond it."""
_NOTHING: Final[dict[int, tuple[bool, bytes]]] = {
    Code.GET_AGENT_OVERVIEW: (False, bytes(4)),
    Code.GET_AGENT_INFO: (False, bytes(17)),
    Code.REGISTER_FOR_AGENT: (True, b"\0"),
    Code.DEREGISTER_FROM_AGENT: (True, b"\1"),
    Code.REGISTER_FOR_EVENT: (False, bytes(4)),
    Code.DEREGISTER_FROM_EVENT: (True, b""),
    Code.GET_VALUE_IDS: (False, bytes(4)),
    Code.GET_VALUE: (False, b"\xff\xff\xff\xff\0"),
    Code.SET_VALUE: (True, b"\2"),
    Code.REGISTER_FOR_VALUE: (True, b""),
    Code.DEREGISTER_FROM_VALUE: (True, b""),
    Code.NEXT_SIMULATION_STEP: (True, b""),
    Code.RESET_SIMULATION: (False, b""),
    Code.END_COMMUNICATION: (False, b""),
    Code.RESET_COMMUNICATION: (False, b""),
}
"""How a simulator answers that has no such agent, event or value, by the code one above the request's: whether it
repeats the id, or count, that it was asked for, and what follows."""


class What(Enum):
    """What is worth knowing of a replay."""

    JOINED = "joined"
    LEFT = "left"
    DIFFERS = "differs"
    """The client did something else than the recorded one."""
    OVER = "over"
    """The recording has no more steps and resets."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something worth knowing. ``conversation`` from 1, ``time`` where in the trace, in seconds since it began."""

    what: What
    conversation: int
    time: float
    text: str


class ReplayMachine(BaseServer["ReplayHandler"]):
    """One server that has only a past: ``scripts``, at least one.

    ``tell``: called with what is worth knowing. ``speed``: 1 keeps the recorded delays of answers, 2 halves them; None
    is as fast as possible. ``loop``: a reset behind the last recorded one goes on with the first. ``strict``: nothing
    is answered any more once a client did something else than the recorded one.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        *,
        tell: Callable[[Told], None],
        speed: float | None = None,
        loop: bool = False,
        strict: bool = False,
        max_handlers: int = 64,
    ) -> None:
        super().__init__(max_handlers)
        self.speed = speed
        self.loop = loop
        self.steps = 0
        """Steps given, to all clients."""
        self.resets = 0
        self.differences = 0
        self._scripts = tuple(scripts)
        self._next = 0
        self._tell = tell
        self._strict = strict

    def receive_main(self, data: bytes, peer: Hashable, now: float) -> None:
        """A datagram came to the main port. Whatever is not an INIT of a recorded form is ignored."""
        try:
            init = Init.decode(data)
        except RemoteProtocolError:
            self.problems[NO_INIT] += 1
            return
        again = next((each for each in self._handlers.values() if each.peer == peer and not each.heard), None)
        if again is not None and again.script.form is init.form:
            if again.deadline is None:
                again.greet(now)
            return
        known = (init.major, init.minor) == (PROTOCOL_MAJOR, PROTOCOL_MINOR)
        script = self._script(init.form) if known else None
        if script is None:
            self.problems[OTHER_INIT] += 1
        elif (handler_id := self._next_handler_id(now)) is not None:
            handler = ReplayHandler(self, handler_id, peer, script)
            self._add(handler, peer)
            steps, resets = script.ran(len(script.rounds))
            handler.tell(
                What.JOINED,
                f"a client joined; {pluralize(steps, 'step')} and {pluralize(resets, 'reset')} are recorded",
            )
            handler.greet(now)

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in this order."""
        effects = super().take_effects()
        return [] if self._strict and self.differences else effects

    def tell(self, told: Told) -> None:
        """Pass on what is worth knowing."""
        self.differences += told.what is What.DIFFERS
        self._tell(told)

    def _script(self, form: InitForm) -> Script | None:
        """The next conversation that began with such an INIT."""
        for offset in range(len(self._scripts)):
            at = (self._next + offset) % len(self._scripts)
            if self._scripts[at].form is form:
                self._next = at + 1
                return self._scripts[at]
        return None


class ReplayHandler:
    """The server's end of one connection."""

    controlled = ()

    def __init__(self, machine: ReplayMachine, handler_id: int, peer: Hashable, script: Script) -> None:
        self.id = handler_id
        self.peer = peer
        self.script = script
        self.last_heard = 0.0
        self.heard = False
        """Whether the client sent anything after its INIT."""
        self._machine = machine
        self._at = 0
        """The round that comes next."""
        self._given: set[int] = set()
        """Those of its requests that came."""
        self._uses: Counter[tuple[bytes, int]] = Counter()
        self._held: deque[Answer] = deque()
        """Completions that wait for an acknowledgement."""
        self._queue: list[tuple[float, int, bytes]] = []
        self._queued = count()
        self._leaving = False

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called."""
        return self._queue[0][0] if self._queue else None

    def handle_timer(self, now: float) -> None:
        """Send what is due."""
        while self._queue and self._queue[0][0] <= now:
            self._machine.send(self.id, heapq.heappop(self._queue)[2])
        if self._leaving and not self._queue:
            self._machine.close(self)

    def _play(self, answers: Iterable[Answer], now: float) -> None:
        speed = self._machine.speed
        for answer in answers:
            if len(self._queue) >= MOST_QUEUED:
                self._machine.problems["answer beyond the limit of those that wait"] += 1
            else:
                due = now if speed is None else now + answer.delay / speed
                heapq.heappush(self._queue, (due, next(self._queued), answer.data))
        self.handle_timer(now)

    # --- datagrams -------------------------------------------------------------------------------------------------

    def greet(self, now: float) -> None:
        """Answer the INIT, as the recorded simulator did."""
        self.last_heard = now
        self._play(self.script.opening, now)

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""
        self.heard = True
        self.last_heard = now
        self._release(now)
        code = data[0] if data else -1
        if code in ACKNOWLEDGEMENTS:
            return
        request = Request(meaning(data), now, self.script.place(self._at) + len(self._given))
        if code in VOTES:
            self._vote(request, now)
        else:
            self._answer(request, code, now)

    def _release(self, now: float) -> None:
        """Send completions until one that waited for an acknowledgement."""
        batch: list[Answer] = []
        while self._held and not (batch and self._held[0].after_ack):
            batch.append(self._held.popleft())
        self._play(batch, now)

    def give_way(self) -> None:
        """Close, for another client's sake."""
        self.tell(What.LEFT, f"its client, silent for longest, gives way to another after {self._progress()}")
        self._machine.close(self)

    # --- questions -------------------------------------------------------------------------------------------------

    def _answer(self, asked: Request, code: int, now: float) -> None:
        found = self._recorded(asked, code)
        if found is not None:
            self._play(found.answers, now)
        elif not self._refuse(asked.data):
            self._machine.problems["unknown command"] += 1
        # A real server may miss that a client leaves, and hear it the next time.
        if code in LEAVING and (found is None or found.answers):
            self._leaving = True
            self.tell(What.LEFT, f"its client left after {self._progress()}")
            self.handle_timer(now)

    def _recorded(self, asked: Request, code: int) -> Request | None:
        """The question as it stands in the recording: at this place, else before it, else behind it."""
        data, questions = asked.data, self.script.questions
        if data not in questions:
            if code not in LEAVING:
                self._differs(f"the recording has no {_words(data)}")
            if code != Code.SET_VALUE:
                return None
            # What else was written there was accepted as well, or refused.
            data = next((key for key in questions if key[:5] == data[:5]), b"")
            if not data:
                return None
        same = questions[data]
        first = bisect_left(same, asked.place, key=_place)
        behind = bisect_right(same, asked.place, key=_place)
        use = first + self._uses[data, asked.place]
        self._uses[data, asked.place] += 1
        if use < behind:
            return same[use]
        before = (each for each in reversed(same[:behind]) if each.answers)
        return next(before, None) or next((each for each in same if each.answers), same[0])

    def _refuse(self, data: bytes) -> bool:
        """Answer as a simulator that has no such agent, event or value; False for what is no request."""
        try:
            decode_request(data)
        except RemoteProtocolError:
            return False
        if data[0] in _NOTHING:
            repeats, rest = _NOTHING[data[0]]
            if data[0] in {Code.REGISTER_FOR_VALUE, Code.DEREGISTER_FROM_VALUE}:
                rest = bytes(len(data) - 5)
            answer = bytes((data[0] + 1,)) + (data[1:5] if repeats else b"") + rest
            self._machine.send(self.id, answer + END * self.script.opening[0].data.endswith(END))
        return True

    # --- steps and resets ------------------------------------------------------------------------------------------

    def _vote(self, vote: Request, now: float) -> None:
        rounds = self.script.rounds
        at = self._expected(vote)
        if at is None and vote.data[0] == Code.RESET_SIMULATION and self._go_to_reset(vote):
            at = self._expected(vote)
        if at is None:
            self._stand_still(vote)
            return
        this = rounds[self._at]
        recorded = this.requests[at]
        if recorded.data != vote.data:
            self._differs(f"expected {_words(recorded.data)}, got {_words(vote.data)}", recorded.time)
        self._given.add(at)
        self._play(recorded.answers, now)
        code = this.requests[-1].data[0]
        if this.ran and all(
            at in self._given for at, each in enumerate(this.requests) if each.data[0] == code
        ):
            self._machine.steps += this.is_step
            self._machine.resets += not this.is_step
            self._at += 1
            self._given.clear()
            self._held = deque(this.completions)
            self._release(now)
            if self._at >= len(rounds):
                more = (
                    "a reset begins it again" if self._machine.loop else "from here on the world stands still"
                )
                self.tell(What.OVER, f"the recording ends after {self._progress()}; {more}")

    def _expected(self, vote: Request) -> int | None:
        """Which request of the round it is."""
        requests = self.script.rounds[self._at].requests if self._at < len(self.script.rounds) else []
        return next(
            (at for at, each in enumerate(requests) if at not in self._given and each.whose == vote.whose),
            None,
        )

    def _go_to_reset(self, vote: Request) -> bool:
        """Go on with the next recorded reset; False where there is none."""
        rounds = self.script.rounds
        resets = [at for at, each in enumerate(rounds) if not each.is_step]
        at = next((at for at in resets if at > self._at), None)
        left = self.script.ran(len(rounds) if at is None else at)[0] - self.script.ran(self._at)[0]
        if at is not None:
            self._differs(f"{_words(vote.data)} comes {pluralize(left, 'step')} before the recorded one")
        elif self._machine.loop and resets:
            at = resets[0]
            self._uses.clear()
            if left:
                self._differs(
                    f"{_words(vote.data)}, where the recorded client made {pluralize(left, 'step')} more"
                )
        else:
            return False
        self._at = at
        self._given.clear()
        return True

    def _stand_still(self, vote: Request) -> None:
        """Acknowledge what will never run: to a client it looks as if another one were missing."""
        rounds = self.script.rounds
        if self._at >= len(rounds):
            why = "the recording is over"
        elif vote.data[0] == Code.NEXT_SIMULATION_STEP and not rounds[self._at].is_step:
            why = "the recorded client reset the world here"
        else:
            why = "no such request is recorded here"
        self._differs(f"{_words(vote.data)} never runs: {why}")
        self._refuse(vote.data)

    # --- telling ---------------------------------------------------------------------------------------------------

    def _progress(self) -> str:
        return "{} of its steps and {} of its resets".format(*self.script.ran(self._at))

    def _differs(self, text: str, time: float | None = None) -> None:
        if self._at < len(self.script.rounds):
            steps, resets = self.script.ran(self._at)
            is_step = self.script.rounds[self._at].is_step
            text = f"step {steps + 1}: {text}" if is_step else f"reset {resets + 1}: {text}"
        self.tell(What.DIFFERS, text, time)

    def tell(self, what: What, text: str, time: float | None = None) -> None:
        """Say what is worth knowing; by default at the beginning of the round that comes next."""
        rounds = self.script.rounds
        if time is None:
            time = rounds[min(self._at, len(rounds) - 1)].requests[0].time if rounds else 0.0
        self._machine.tell(Told(what, self.script.number, time, text))


def _place(question: Request) -> int:
    return question.place


def _words(data: bytes) -> str:
    return describe(data, Direction.CLIENT_TO_SERVER)
