"""What recorded simulators answered, sorted by what a client can ask for again.

A trace is cut into conversations, one for each handler that answered an INIT. In each, every answer is put to the
request that it belongs to, by code and by id, so that requests may come again in another order. Requests for steps and
resets make *rounds*; a *question* is all else that is answered, and what it was answered depends on how many requests
for steps and resets had come by then.

No I/O in here, and no clock: the times are those of the trace. A trace may come from anybody; what makes no sense in
it is left out, and what belongs to no request is sent again behind what it came behind.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError, RemoteProtocolError
from ospbridge.observe.trace import Direction
from ospbridge.observe.trace_round_trips import ACKNOWLEDGEMENTS, NOBODYS, REPEATS_ID, REQUEST_OF
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import InitAck, decode_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.observe.trace import TraceRecord
    from ospbridge.osp.profile import InitForm

__all__ = ["LEAVING", "VOTES", "Answer", "Request", "Round", "Script", "meaning", "read_scripts"]

LONGEST_DELAY: Final = 3600.0
"""Seconds. A trace with times that make no sense must not hold up the replay for ever."""
VOTES: Final = frozenset({Code.NEXT_SIMULATION_STEP, Code.RESET_SIMULATION})
LEAVING: Final = frozenset({Code.END_COMMUNICATION, Code.RESET_COMMUNICATION})
_ANSWERED: Final[dict[int, Code]] = {
    Code.NEXT_SIMULATION_STEP_ACK: Code.NEXT_SIMULATION_STEP,
    Code.RESET_SIMULATION_ACK: Code.RESET_SIMULATION,
    **{int(answer): request for answer, request in REQUEST_OF.items()},
}
_BY_ID: Final = REPEATS_ID | {Code.NEXT_SIMULATION_STEP_ACK}
_COMPLETED: Final[dict[int, Code]] = {
    Code.NEXT_SIMULATION_STEP_COMPLETED: Code.NEXT_SIMULATION_STEP,
    Code.RESET_SIMULATION_COMPLETED: Code.RESET_SIMULATION,
    Code.RESET_SIMULATION_COMPLETED_ACK: Code.RESET_SIMULATION,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A datagram of the simulator."""

    data: bytes
    delay: float
    """Seconds between it and the client's datagram that it came behind."""
    after_ack: bool = False
    """Whether the client had acknowledged what came before it: where completions come one by one, it waits for that."""


@dataclass(slots=True)
class Request:
    """What the client asked. ``data`` without the byte that may end a datagram."""

    data: bytes
    time: float
    """In seconds since the trace began."""
    place: int
    """How many requests for steps and resets came before it."""
    answers: list[Answer] = field(default_factory=list)

    @property
    def whose(self) -> bytes:
        """The code, and of a step the agent's id, as they stand in the request."""
        return self.data[:5] if self.data[0] == Code.NEXT_SIMULATION_STEP else self.data[:1]


@dataclass(slots=True)
class Round:
    """The requests up to the one with which a step or reset ran; those of the last round may have waited in vain."""

    before: tuple[int, int] = (0, 0)
    """How many steps and how many resets ran before it."""
    requests: list[Request] = field(default_factory=list)
    completions: list[Answer] = field(default_factory=list)
    ran: bool = False

    @property
    def is_step(self) -> bool:
        return self.requests[-1].data[0] == Code.NEXT_SIMULATION_STEP

    @property
    def after(self) -> tuple[int, int]:
        """How many steps and how many resets ran with it."""
        steps, resets = self.before
        return (steps + (self.ran and self.is_step), resets + (self.ran and not self.is_step))


@dataclass(slots=True)
class Script:
    """One recorded conversation."""

    number: int
    """Which of the trace, from 1."""
    form: InitForm
    """Of its INIT."""
    opening: list[Answer]
    """What the simulator sent before the client's first request: the answer to INIT first."""
    rounds: list[Round] = field(default_factory=list)
    votes: int = 0
    """Requests for steps and resets."""
    questions: defaultdict[bytes, list[Request]] = field(default_factory=lambda: defaultdict(list))
    """By ``data``, in the order of the recording."""

    def place(self, at: int) -> int:
        """How many requests for steps and resets came before a round; before the end, where there is none."""
        return self.rounds[at].requests[0].place if at < len(self.rounds) else self.votes

    def ran(self, at: int) -> tuple[int, int]:
        """How many steps and how many resets ran before a round; all of them, where there is none."""
        return (0, 0) if not at else self.rounds[min(at, len(self.rounds)) - 1].after

    @property
    def says_something(self) -> bool:
        """Whether the client did anything but leave."""
        return bool(self.rounds) or any(key and key[0] not in LEAVING for key in self.questions)


def meaning(data: bytes) -> bytes:
    """A client's datagram without the byte that may end it; unchanged where it means nothing."""
    try:
        return decode_request(data).encode()
    except RemoteProtocolError:
        return data


def read_scripts(records: Iterable[TraceRecord]) -> list[Script]:
    """The conversations of a trace, in the order in which they began. Raises ConfigurationError if there is none."""
    scripts: list[Script] = []
    current: dict[tuple[str, int], _Reading] = {}
    asked: dict[str, float] = {}
    for record in records:
        whose = (record.client, record.port)
        code = record.data[0] if record.data else -1
        from_server = record.direction is Direction.SERVER_TO_CLIENT
        if record.direction is Direction.NOTE:
            continue
        if from_server and code == Code.INIT_COMMUNICATION_ACK:
            try:
                form = InitAck.decode(record.data).form
            except RemoteProtocolError:
                continue
            answer = Answer(record.data, _delay(record.time - asked.get(record.client, record.time)))
            scripts.append(Script(len(scripts) + 1, form, [answer]))
            current[whose] = _Reading(scripts[-1], record.time)
        elif (reading := current.get(whose)) is not None:
            reading.received(record, code) if from_server else reading.sent(record, code)
        elif not from_server and code == Code.INIT_COMMUNICATION:
            asked[record.client] = record.time
    if not scripts:
        raise ConfigurationError(
            "nothing to replay: no INIT_COMMUNICATION_ACK is among its datagrams",
            hint="a trace to replay holds the beginning of its conversation; take the whole one, not a part of it",
        )
    # A client that knocked twice has two handlers, and leaves one of them at once.
    return [script for script in scripts if script.says_something] or scripts


def _delay(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST_DELAY)


class _Reading:
    """Reads one conversation, datagram by datagram."""

    def __init__(self, script: Script, now: float) -> None:
        self._script = script
        self._last_sent = now
        self._acked = False
        self._unanswered: defaultdict[int, list[Request]] = defaultdict(list)
        self._latest = script.opening
        """Where a datagram goes that answers no request: an entry of a list, another's reset, what came twice."""

    def sent(self, record: TraceRecord, code: int) -> None:
        """The client sent this."""
        self._last_sent = record.time
        if code in ACKNOWLEDGEMENTS:
            self._acked = True
            return
        request = Request(meaning(record.data), record.time, self._script.votes)
        self._latest = request.answers
        waiting = self._unanswered[code]
        if code in VOTES:
            rounds = self._script.rounds
            if not rounds or rounds[-1].ran:
                rounds.append(Round(self._script.ran(len(rounds))))
            rounds[-1].requests.append(request)
            self._script.votes += 1
            self._acked = False
        else:
            self._script.questions[request.data].append(request)
            # The same asked before has no answer, and will get none: this is it, asked again.
            waiting[:] = [other for other in waiting if other.data != request.data]
        waiting.append(request)

    def received(self, record: TraceRecord, code: int) -> None:
        """The simulator sent this."""
        request = self._asked(code, record.data)
        if request is not None:
            request.answers.append(Answer(record.data, _delay(record.time - request.time)))
            return
        last = self._script.rounds[-1] if self._script.rounds else None
        # Whoever resets, all clients are told; a reset that is complete is not completed again.
        if (
            last is not None
            and last.requests[-1].data[0] == _COMPLETED.get(code)
            and (last.is_step or not last.ran)
        ):
            last.ran = True
            for votes in VOTES:
                self._unanswered[votes].clear()
            self._latest = last.completions
        self._latest.append(Answer(record.data, _delay(record.time - self._last_sent), self._acked))
        self._acked = False

    def _asked(self, code: int, data: bytes) -> Request | None:
        """The request that this answers."""
        waiting = self._unanswered[_ANSWERED[code]] if code in _ANSWERED else []
        # The latest: where it was sent twice, the first may have been lost.
        for at in reversed(range(len(waiting))):
            if code not in _BY_ID or data[1:5] == waiting[at].data[1:5] or data[1:5] in NOBODYS:
                return waiting.pop(at)
        return None
