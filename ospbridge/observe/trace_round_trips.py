"""How long the requests of a trace took to be answered.

What answers what is told by codes, and by ids where the answer repeats them. A step takes from its first vote to its
last completion, however many agents vote in it; a reset from its first request to the one word that it is complete. A
listing takes until its answer begins. What was never answered took no time: None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ospbridge.observe.trace import Direction
from ospbridge.osp.codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ospbridge.observe.trace import TraceRecord

__all__ = ["ACKNOWLEDGEMENTS", "NOBODYS", "REPEATS_ID", "REQUEST_OF", "RoundTrip", "round_trips"]

ACKNOWLEDGEMENTS: Final = frozenset(
    {
        Code.NEXT_SIMULATION_STEP_COMPLETED_ACK,
        Code.RESET_SIMULATION_COMPLETED,
        Code.RESET_SIMULATION_COMPLETED_ACK,
        Code.AGENT_OVERVIEW_ACK,
        Code.AGENT_INFO_ACK,
        Code.VALUE_INFO_ACK,
    }
)
"""What a client sends to be polite, and is not answered. Of a reset both codes, whichever way the server has them."""
REQUEST_OF: Final = {
    Code.AGENT_OVERVIEW: Code.GET_AGENT_OVERVIEW,
    Code.AGENT_INFO: Code.GET_AGENT_INFO,
    Code.REGISTER_FOR_AGENT_ACK: Code.REGISTER_FOR_AGENT,
    Code.DEREGISTER_FROM_AGENT_ACK: Code.DEREGISTER_FROM_AGENT,
    Code.REGISTER_FOR_EVENT_ACK: Code.REGISTER_FOR_EVENT,
    Code.DEREGISTER_FROM_EVENT_ACK: Code.DEREGISTER_FROM_EVENT,
    Code.VALUE_IDS: Code.GET_VALUE_IDS,
    Code.VALUE: Code.GET_VALUE,
    Code.SET_VALUE_ACK: Code.SET_VALUE,
    Code.REGISTER_FOR_VALUE_ACK: Code.REGISTER_FOR_VALUE,
    Code.DEREGISTER_FROM_VALUE_ACK: Code.DEREGISTER_FROM_VALUE,
    Code.END_COMMUNICATION_ACK: Code.END_COMMUNICATION,
    Code.RESET_COMMUNICATION_ACK: Code.RESET_COMMUNICATION,
}
"""What the first datagram of an answer answers."""
REPEATS_ID: Final = frozenset(
    {
        Code.AGENT_INFO,
        Code.REGISTER_FOR_AGENT_ACK,
        Code.DEREGISTER_FROM_AGENT_ACK,
        Code.DEREGISTER_FROM_EVENT_ACK,
        Code.VALUE,
        Code.SET_VALUE_ACK,
    }
)
"""Answers that repeat the id of what was asked for; an id that nobody has is answered with one of ``NOBODYS``."""
NOBODYS: Final = (b"\0\0\0\0", b"\xff\xff\xff\xff")
"""0 and -1, as ids."""

_STEP, _STEP_COMPLETED = Code.NEXT_SIMULATION_STEP, Code.NEXT_SIMULATION_STEP_COMPLETED
_RESET = Code.RESET_SIMULATION
_RESET_COMPLETED: Final = frozenset({Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK})
_CODES: Final = frozenset(Code)


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A request of a trace. ``time`` in seconds since the trace began, ``seconds`` until it was answered."""

    code: Code
    time: float
    seconds: float | None


@dataclass(slots=True)
class _Line:
    """One client and the server's port that it speaks to."""

    asked: dict[tuple[Code, bytes], float] = field(default_factory=dict)
    """When, by code and by id where an answer repeats it."""
    voted: dict[bytes, float] = field(default_factory=dict)
    """When, by agent."""
    completed: float | None = None
    """When the latest completion came."""


def round_trips(records: Iterable[TraceRecord]) -> Iterator[RoundTrip]:
    """Each request of a trace with its time, in the order in which that was known."""
    lines: dict[tuple[str, int], _Line] = {}
    knocked: dict[str, float] = {}
    for record in records:
        if record.direction is Direction.NOTE or record.data[:1] == b"" or record.data[0] not in _CODES:
            continue
        code = Code(record.data[0])
        if code is Code.INIT_COMMUNICATION:
            knocked.setdefault(record.client, record.time)
        elif code is Code.INIT_COMMUNICATION_ACK:
            begun = knocked.pop(record.client, None)
            if begun is not None:
                yield RoundTrip(Code.INIT_COMMUNICATION, begun, record.time - begun)
        else:
            line = lines.setdefault((record.client, record.port), _Line())
            sent = record.direction is Direction.CLIENT_TO_SERVER
            yield from _sent(line, code, record) if sent else _received(line, code, record)
    for begun in knocked.values():
        yield RoundTrip(Code.INIT_COMMUNICATION, begun, None)
    for line in lines.values():
        yield from _end_of_step(line)
        yield from (RoundTrip(code, begun, None) for (code, _), begun in line.asked.items())


def _sent(line: _Line, code: Code, record: TraceRecord) -> Iterator[RoundTrip]:
    if code in ACKNOWLEDGEMENTS:
        return
    if code is _STEP:
        agent = record.data[1:5]
        if line.completed is not None or agent in line.voted:
            yield from _end_of_step(line)
        line.voted[agent] = record.time
        return
    if code is _RESET:
        # A reset takes a request for each agent.
        line.asked.setdefault((_RESET, b""), record.time)
        return
    key = (code, _id(record) if code in _ASKED_BY_ID else b"")
    begun = line.asked.pop(key, None)
    if begun is not None:
        yield RoundTrip(code, begun, None)
    line.asked[key] = record.time


def _received(line: _Line, code: Code, record: TraceRecord) -> Iterator[RoundTrip]:
    if code is _STEP_COMPLETED:
        if line.voted:
            line.completed = record.time
        return
    if code in _RESET_COMPLETED:
        key = (_RESET, b"")
    elif code in REQUEST_OF:
        key = (REQUEST_OF[code], _id(record) if code in REPEATS_ID else b"")
    else:
        return
    if key not in line.asked and key[1] in NOBODYS:
        # What was asked for last is what nobody has.
        key = next((asked for asked in reversed(line.asked) if asked[0] is key[0]), key)
    begun = line.asked.pop(key, None)
    if begun is not None:
        yield RoundTrip(key[0], begun, record.time - begun)


def _end_of_step(line: _Line) -> Iterator[RoundTrip]:
    if line.voted:
        begun = min(line.voted.values())
        yield RoundTrip(_STEP, begun, None if line.completed is None else line.completed - begun)
    line.voted.clear()
    line.completed = None


_ASKED_BY_ID: Final = frozenset(REQUEST_OF[code] for code in REPEATS_ID)


def _id(record: TraceRecord) -> bytes:
    return record.data[1:5]
