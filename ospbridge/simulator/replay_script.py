"""What recorded simulators answered, sorted by what a client can ask for again.

A trace is cut into conversations, one for each handler that answered an INIT. In each, every answer is put to the
request that it belongs to, by code and by id, so that requests may come again in another order:

- a *vote*, for a step or a reset, has its acknowledgement and, where it was the last one missing, the completions;
- a *question* is all else that is answered; the same question may stand in a conversation many times, and what it was
  answered depends on how many votes had been given by then.

No I/O in here, and no clock: the times are those of the trace. A trace may come from anybody; what makes no sense in
it is left out, and what belongs to no request is sent again behind what it came behind.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError, RemoteProtocolError
from ospbridge.observe.trace import Direction
from ospbridge.observe.trace_round_trips import ACKNOWLEDGEMENTS, NOBODYS, REPEATS_ID, REQUEST_OF
from ospbridge.osp.codes import DATAGRAM_END, Code
from ospbridge.osp.messages import InitAck, decode_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.observe.trace import TraceRecord
    from ospbridge.osp.profile import InitForm

__all__ = ["Answer", "Question", "Script", "Vote", "agent_of", "meaning", "read_scripts"]

LONGEST_DELAY: Final = 3600.0
"""Seconds. A trace with times that make no sense must not hold up the replay for ever."""

_GO_ON_WITH_ANSWER: Final = {
    Code.AGENT_OVERVIEW_NEXT: Code.GET_AGENT_OVERVIEW,
    Code.AGENT_INFO_NEXT: Code.GET_AGENT_INFO,
    Code.VALUE_INFO: Code.GET_VALUE_IDS,
}
_STEP: Final = bytes((Code.NEXT_SIMULATION_STEP,))
_STEP_HEAD: Final = struct.Struct("<xii")


@dataclass(frozen=True, slots=True)
class Answer:
    """A datagram of the simulator."""

    data: bytes
    delay: float
    """Seconds between it and the client's datagram that it came behind."""
    after_ack: bool = False
    """Whether the client had acknowledged what came before it: where completions come one by one, it waits for that."""


@dataclass(slots=True)
class Vote:
    """A request for a step or a reset. ``data`` without the byte that may end a datagram."""

    data: bytes
    time: float
    """In seconds since the trace began."""
    number: int
    """Which step it is of, or which reset, from 1."""
    acks: list[Answer] = field(default_factory=list)
    completions: list[Answer] = field(default_factory=list)
    complete: bool = False
    """Whether the step, or reset, ran with it."""

    @property
    def is_step(self) -> bool:
        return self.data[0] == Code.NEXT_SIMULATION_STEP

    @property
    def agent(self) -> bytes:
        """The agent's id as it stands in the request; empty for a reset."""
        return agent_of(self.data)


@dataclass(slots=True)
class Question:
    """A request that is answered at once."""

    data: bytes
    time: float
    after: int
    """How many votes had been given."""
    answers: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class Script:
    """One recorded conversation."""

    number: int
    """Which of the trace, from 1."""
    form: InitForm
    """Of its INIT."""
    greeting: Answer
    opening: list[Answer] = field(default_factory=list)
    """What the simulator sent before the client's first request."""
    votes: list[Vote] = field(default_factory=list)
    questions: defaultdict[bytes, list[Question]] = field(default_factory=lambda: defaultdict(list))
    """By ``data``, in the order of the recording."""

    def next_reset(self, first: int) -> int | None:
        """Where the next reset begins, from the vote ``first`` on."""
        return next((at for at in range(first, len(self.votes)) if not self.votes[at].is_step), None)


def meaning(data: bytes) -> bytes:
    """A client's datagram without the byte that may end it; unchanged where it means nothing."""
    if data[:1] == _STEP and len(data) >= _STEP_HEAD.size:
        # By far the most; there is no need to look at each number of it.
        surplus = len(data) - _STEP_HEAD.size - 4 * _STEP_HEAD.unpack_from(data)[1]
        if surplus == 0:
            return data
        if surplus == 1 and data[-1] == DATAGRAM_END:
            return data[:-1]
    try:
        return decode_request(data).encode()
    except RemoteProtocolError:
        return data


def agent_of(data: bytes) -> bytes:
    """The agent's id as it stands in a request for a step; empty for a reset."""
    return data[1:5] if data[:1] == _STEP else b""


def read_scripts(records: Iterable[TraceRecord]) -> list[Script]:
    """The conversations of a trace, in the order in which they began. Raises ConfigurationError if there is none."""
    readings: list[_Reading] = []
    current: dict[tuple[str, int], _Reading] = {}
    asked: dict[str, float] = {}
    for record in records:
        if record.direction is Direction.NOTE:
            continue
        whose = (record.client, record.port)
        from_server = record.direction is Direction.SERVER_TO_CLIENT
        if from_server and record.data[:1] == bytes((Code.INIT_COMMUNICATION_ACK,)):
            try:
                form = InitAck.decode(record.data).form
            except RemoteProtocolError:
                continue
            delay = _delay(record.time - asked.get(record.client, record.time))
            script = Script(len(readings) + 1, form, Answer(record.data, delay))
            current[whose] = _Reading(script, record.time)
            readings.append(current[whose])
        elif (reading := current.get(whose)) is not None:
            reading.received(record) if from_server else reading.sent(record)
        elif not from_server and record.data[:1] == bytes((Code.INIT_COMMUNICATION,)):
            asked[record.client] = record.time
    if not readings:
        raise ConfigurationError(
            "nothing to replay: no INIT_COMMUNICATION_ACK is among its datagrams",
            hint="a trace to replay holds the beginning of its conversation; take the whole one, not a part of it",
        )
    # A client that knocked twice has two handlers, and leaves one of them at once.
    spoken = [reading.script for reading in readings if reading.says_something]
    return spoken or [reading.script for reading in readings]


def _delay(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST_DELAY)


class _Reading:
    """Reads one conversation, datagram by datagram."""

    def __init__(self, script: Script, now: float) -> None:
        self.script = script
        self._last_sent = now
        self._acked = False
        self._unacknowledged: list[Vote] = []
        self._unanswered: defaultdict[int, list[Question]] = defaultdict(list)
        self._answered: dict[int, Question] = {}
        self._latest: Vote | Question | None = None
        self._steps = 0
        self._resets = 0

    @property
    def says_something(self) -> bool:
        """Whether the client did anything but leave."""
        leaving = {Code.END_COMMUNICATION, Code.RESET_COMMUNICATION}
        return bool(self.script.votes) or any(
            key[:1] and key[0] not in leaving for key in self.script.questions
        )

    def sent(self, record: TraceRecord) -> None:
        """The client sent this."""
        self._last_sent = record.time
        code = record.data[0] if record.data else -1
        if code in ACKNOWLEDGEMENTS:
            self._acked = True
            return
        data = meaning(record.data)
        if code in {Code.NEXT_SIMULATION_STEP, Code.RESET_SIMULATION}:
            number = 1 + (self._steps if code == Code.NEXT_SIMULATION_STEP else self._resets)
            vote = Vote(data, record.time, number)
            self.script.votes.append(vote)
            self._unacknowledged.append(vote)
            self._latest = vote
            self._acked = False
            return
        question = Question(data, record.time, len(self.script.votes))
        self.script.questions[data].append(question)
        # The same asked before has no answer, and will get none: this is it, asked again.
        waiting = self._unanswered[code]
        waiting[:] = [other for other in waiting if other.data != data]
        waiting.append(question)
        self._latest = question

    def received(self, record: TraceRecord) -> None:
        """The simulator sent this."""
        data = record.data
        code = data[0] if data else -1
        votes = self.script.votes
        if code in {Code.NEXT_SIMULATION_STEP_ACK, Code.RESET_SIMULATION_ACK}:
            agent = data[1:5] if code == Code.NEXT_SIMULATION_STEP_ACK else b""
            # The latest: where it was sent twice, the first may have been lost.
            voted = next((vote for vote in reversed(self._unacknowledged) if vote.agent == agent), None)
            if voted is not None:
                self._unacknowledged.remove(voted)
                voted.acks.append(Answer(data, _delay(record.time - voted.time)))
                return
        elif code == Code.NEXT_SIMULATION_STEP_COMPLETED:
            if votes and votes[-1].is_step:
                self._complete(votes[-1], record)
                return
        elif code in {Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK}:
            # Whoever resets, all clients are told; a reset that is complete is not completed again.
            if votes and not votes[-1].is_step and not votes[-1].complete:
                self._complete(votes[-1], record)
                return
        elif (question := self._asked(code, data)) is not None:
            question.answers.append(Answer(data, _delay(record.time - question.time)))
            return
        self._unasked(record)

    def _complete(self, vote: Vote, record: TraceRecord) -> None:
        if not vote.complete:
            vote.complete = True
            if vote.is_step:
                self._steps += 1
            else:
                self._resets += 1
        self._unacknowledged.clear()
        vote.completions.append(self._answer(record))

    def _answer(self, record: TraceRecord) -> Answer:
        answer = Answer(record.data, _delay(record.time - self._last_sent), self._acked)
        self._acked = False
        return answer

    def _asked(self, code: int, data: bytes) -> Question | None:
        """The question that this answers."""
        if code in _GO_ON_WITH_ANSWER:
            return self._answered.get(_GO_ON_WITH_ANSWER[Code(code)])
        if code not in REQUEST_OF:
            return None
        request = REQUEST_OF[Code(code)]
        waiting = self._unanswered[request]
        for at in reversed(range(len(waiting))):
            if code not in REPEATS_ID or data[1:5] == waiting[at].data[1:5] or data[1:5] in NOBODYS:
                question = self._answered[request] = waiting.pop(at)
                return question
        return None

    def _unasked(self, record: TraceRecord) -> None:
        """Another client's reset, a value that is observed, a datagram that came twice."""
        answer = self._answer(record)
        if self._latest is None:
            self.script.opening.append(answer)
        elif isinstance(self._latest, Vote):
            self._latest.completions.append(answer)
        else:
            self._latest.answers.append(answer)
