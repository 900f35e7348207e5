"""One client's side of the server role: its registrations, its local ids, and what its handler waits for.

A handler is idle, stalled, or waits for an acknowledgement; where the profile says so it then takes whatever comes for
that acknowledgement (the datagram is lost, except RESET_COMMUNICATION). Facts: OSP 1.1, sections 4.1 to 4.7, and a
NERD server as observed, each named at its place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.profile import InitForm
from ospbridge.osp.wire import INT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.server import ServerMachine
    from ospbridge.osp.world import Variable, WorldAgent

__all__ = ["STALL", "AgentControl", "Handler", "Vote"]

STALL: Final = 0.05
"""How long a stalled completion is delayed: one wait of the real server's handler, begun anew by any datagram."""

_STEP: Final = struct.Struct("<xii")
_COMPLETED: Final = struct.Struct("<Biiiii")
_TWO_INTS: Final = struct.Struct("<Bii")
_STATUS: Final = struct.Struct("<BiB")
_ONE_INT: Final = struct.Struct("<Bi")
_RANGE: Final = struct.Struct("<Biff")
_COUNTS: Final = struct.Struct("<Biiii")

_HASH_STIR: Final = 61
"""Stirs the order in which REGISTER_FOR_VALUE compares ids; a hash order, of which one entry was seen (61 first)."""


class AgentControl:
    """An agent of the world with who controls it, and its constant pieces of datagrams."""

    __slots__ = ("ack", "agent", "handler", "head", "id", "inputs", "plain_size", "request_size")

    def __init__(self, agent: WorldAgent, agent_id: int, profile: Profile) -> None:
        self.agent = agent
        self.id = agent_id
        self.handler: Handler | None = None
        self.inputs = len(agent.inputs)
        self.request_size = _STEP.size + 4 * self.inputs
        self.ack = _ONE_INT.pack(Code.NEXT_SIMULATION_STEP_ACK, agent_id) + (
            b"\x78" if profile.end_marker else b""
        )
        self.head = self.header(0, 0)
        self.plain_size = len(self.head) + 4 * (len(agent.outputs) + len(agent.infos))

    def header(self, events: int, observed: int) -> bytes:
        """The first 21 bytes of a completion."""
        agent = self.agent
        return _COMPLETED.pack(
            Code.NEXT_SIMULATION_STEP_COMPLETED,
            self.id,
            len(agent.outputs),
            len(agent.infos),
            events,
            observed,
        )

    def take_inputs(self, data: bytes, count: int) -> bool:
        """Write a request's inputs, clamped to their range; NaN passes. False if their number is wrong.

        Fewer inputs than the agent has: the others keep their value. Announced but missing floats are read as 0,
        surplus ones are ignored (observed on a NERD server).
        """
        agent = self.agent
        wanted = self.inputs
        if count == wanted and len(data) >= self.request_size:
            if wanted:
                inputs = agent.inputs
                np.maximum(np.frombuffer(data, "<f4", wanted, _STEP.size), agent.low, out=inputs)
                np.minimum(inputs, agent.high, out=inputs)
            return True
        there = max(0, (len(data) - _STEP.size) // 4)
        used = min(max(count, 0), wanted)
        given = np.zeros(used, "<f4")
        read = min(there, used)
        if read:
            given[:read] = np.frombuffer(data, "<f4", read, _STEP.size)
        np.clip(given, agent.low[:used], agent.high[:used], out=agent.inputs[:used])
        return False


class Handler:
    """The server's end of one connection. Made by an INIT, gone after END or RESET_COMMUNICATION."""

    def __init__(self, machine: ServerMachine, handler_id: int, peer: Hashable) -> None:
        self.id = handler_id
        self.peer = peer
        self.controlled: dict[int, AgentControl] = {}
        """By id, ascending: the order of completions."""
        self.deadline = 0.0
        """Meaningful while this handler is among ``machine.timed``."""
        self._machine = machine
        self._profile = machine.profile
        self._end = machine.end
        self._awaits_greeting = False
        self._stalled = False
        self._awaited: Code | None = None
        self._reset_to_tell = False
        self._step_to_tell = False
        self._completions: list[AgentControl] = []
        self._knows_agents = False
        self._event_ids: dict[str, int] = {}
        self._last_event_id = 0
        self._listened = False
        self._occurred: list[int] = []
        self._values: list[Variable] = []
        self._value_ids: dict[str, int] = {}
        self._observed: list[int] = []

    @property
    def client(self) -> str:
        """The peer's address, as the ledger has it."""
        peer = self.peer
        if isinstance(peer, tuple) and len(peer) >= 2:
            return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
        return str(peer)

    @property
    def waits_for_ack(self) -> bool:
        """Whether the next datagram will be taken for an acknowledgement."""
        return self._awaited is not None

    # --- beginning and end -----------------------------------------------------------------------------------------

    def greet(self, now: float) -> None:
        """Answer the INIT, as late as this kind of server does."""
        if self._profile.init_takes > 0.0:
            self._awaits_greeting = True
            self._wait_until(now + self._profile.init_takes)
        else:
            self._send_greeting()

    def _send_greeting(self) -> None:
        if self._profile.init_form is InitForm.BYTES:
            data = bytes((Code.INIT_COMMUNICATION_ACK, PROTOCOL_MAJOR, PROTOCOL_MINOR))
        else:
            data = _TWO_INTS.pack(Code.INIT_COMMUNICATION_ACK, PROTOCOL_MAJOR, PROTOCOL_MINOR)
        self._send(data)

    def evict(self, *, told: bool) -> None:
        """End this connection because somebody restarts the communication."""
        if told:
            self._send(bytes((Code.RESET_COMMUNICATION_ACK,)))
            if self._profile.stray_reset_ack:
                self._send(bytes((Code.RESET_SIMULATION_ACK,)))
        self._leave()

    def _leave(self) -> None:
        for control in list(self.controlled.values()):
            self._release(control)
        self._machine.listening -= len(self._event_ids)
        self._event_ids.clear()
        self._machine.close(self)
        self._machine.settle()

    def _release(self, control: AgentControl) -> None:
        del self.controlled[control.id]
        control.handler = None
        self._machine.withdraw(self, control)

    # --- datagrams -------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""
        if self._awaited is not None and (not data or data[0] != Code.RESET_COMMUNICATION):
            self._take_as_ack(data, now)
            return
        if self._stalled:
            self._wait_until(now + STALL)
        command = _COMMANDS.get(data[0]) if data else None
        if command is not None:
            command(self, data)
        elif not data or data[0] not in _ACKS:
            self._problem("unknown command", data)

    def _take_as_ack(self, data: bytes, now: float) -> None:
        """Whatever comes is the awaited acknowledgement, and lost if it was something else."""
        awaited, self._awaited = self._awaited, None
        if not data or data[0] not in _ANSWERS[awaited]:
            self._problem("datagram eaten in place of an acknowledgement", data)
            self._completions.clear()
        self._go_on(now)

    def handle_timer(self, now: float) -> None:
        """The time came that this handler waited for."""
        self._machine.timed.discard(self)
        if self._awaits_greeting:
            self._awaits_greeting = False
            self._send_greeting()
            self._go_on(now)
        elif self._stalled:
            self._stalled = False
            self._go_on(now)

    def _wait_until(self, deadline: float) -> None:
        self.deadline = deadline
        self._machine.timed.add(self)

    # --- completions -----------------------------------------------------------------------------------------------

    def reset_completed(self, now: float) -> None:
        """The world was reset: tell the client, now or when its handler is free."""
        self._reset_to_tell = True
        self._begin(now)

    def step_completed(self, now: float) -> None:
        """The world made a step: tell the client, now or when its handler is free.

        A second step before the first was told is told once, with the newer outputs.
        """
        self._step_to_tell = True
        self._begin(now)

    def _begin(self, now: float) -> None:
        if self._awaited is not None or self._stalled or self._awaits_greeting:
            return
        stall = self._machine.stall
        if stall is not None and stall():
            self._stalled = True
            self._wait_until(now + STALL)
            return
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Send what is to be told until an acknowledgement is needed."""
        one_by_one = self._profile.completions_one_by_one
        while self._awaited is None:
            if self._completions:
                self._send_completion(self._completions.pop(0), first=False)
                if one_by_one:
                    self._awaited = Code.NEXT_SIMULATION_STEP_COMPLETED
            elif self._reset_to_tell:
                self._reset_to_tell = False
                self._send(bytes((self._profile.reset_completed,)))
                if self._profile.eats_awaited_acks:
                    self._awaited = Code.RESET_SIMULATION_COMPLETED
            elif self._step_to_tell:
                self._step_to_tell = False
                controls = list(self.controlled.values())
                if not controls:
                    return
                self._completions = controls[1:]
                self._send_completion(controls[0], first=True)
                if one_by_one:
                    self._awaited = Code.NEXT_SIMULATION_STEP_COMPLETED
            else:
                return

    def _send_completion(self, control: AgentControl, *, first: bool) -> None:
        agent = control.agent
        floats = agent.outputs.tobytes() + agent.infos.tobytes()
        if not first or not (self._occurred or self._observed):
            data = control.head + floats
            if self._profile.datagram_limit is None:
                self._machine.send(self.id, data + self._end)
            else:
                self._send_vector(data, _COMPLETED.size)
            return
        events, self._occurred = self._occurred, []
        observed = self._observed if self._profile.values_are_pushed else []
        data = control.header(len(events), len(observed)) + floats + struct.pack(f"<{len(events)}i", *events)
        self._send_vector(data, _COMPLETED.size)
        for value_id in observed:
            self._send_value(value_id)

    def note_event(self, event: str) -> None:
        """Keep an event for the next completion, once."""
        event_id = self._event_ids.get(event)
        if event_id is not None and event_id not in self._occurred:
            self._occurred.append(event_id)

    # --- commands --------------------------------------------------------------------------------------------------

    def _step(self, data: bytes) -> None:
        if len(data) >= _STEP.size:
            agent_id, count = _STEP.unpack_from(data)
        else:
            agent_id, count = _int(data, 1), 0
        control = self.controlled.get(agent_id)
        if control is None:
            self._problem("step of an agent that the client does not control", data)
            return
        if not control.take_inputs(data, count):
            self._problem("step with a wrong number of inputs", data)
        machine = self._machine
        machine.send(self.id, control.ack)
        machine.step_votes.append((self, control))
        machine.settle()

    def _reset(self, data: bytes) -> None:
        self._send(bytes((Code.RESET_SIMULATION_ACK,)))
        self._machine.vote_reset(self, _int(data, 1))

    def _end_communication(self, data: bytes) -> None:
        if self._listened and not self._profile.end_after_events_is_safe:
            self._problem("END after an event registration: the real server dies of it", data)
        self._send(bytes((Code.END_COMMUNICATION_ACK,)))
        self._leave()

    def _restart_communication(self, data: bytes) -> None:
        self._machine.restart_communication(self)

    def _overview(self, data: bytes) -> None:
        self._knows_agents = True
        controls = self._machine.controls
        self._send(_ONE_INT.pack(Code.AGENT_OVERVIEW, len(controls)))
        for index, control in enumerate(controls):
            face = control.agent.interface
            free = control.handler is None or (self._profile.own_agents_available and control.handler is self)
            self._send_text(
                _TWO_INTS.pack(Code.AGENT_OVERVIEW_NEXT, index, control.id)
                + self._text(face.type)
                + bytes((free,))
                + self._text(face.name)
            )
        self._await(Code.AGENT_OVERVIEW)

    def _info(self, data: bytes) -> None:
        control = self._known(_int(data, 1))
        if control is None:
            self._problem("info of an unknown agent", data)
            self._send(_COUNTS.pack(Code.AGENT_INFO, 0, 0, 0, 0) + b"\0")
            return
        face = control.agent.interface
        self._send_text(
            _COUNTS.pack(Code.AGENT_INFO, control.id, len(face.inputs), len(face.outputs), len(face.infos))
            + self._text(face.name)
        )
        for index, value in enumerate((*face.inputs, *face.outputs, *face.infos)):
            head = _RANGE.pack(Code.AGENT_INFO_NEXT, index, value.min, value.max)
            self._send_text(head + self._text(value.name))
        self._await(Code.AGENT_INFO)

    def _register(self, data: bytes) -> None:
        agent_id = _int(data, 1)
        control = self._known(agent_id)
        done = control is not None and control.handler in (None, self)
        if control is not None and control.handler is None:
            control.handler = self
            self.controlled[agent_id] = control
            self.controlled = dict(sorted(self.controlled.items()))
            self._machine.controlled += 1
        self._send(_STATUS.pack(Code.REGISTER_FOR_AGENT_ACK, agent_id, done))
        self._machine.settle()

    def _deregister(self, data: bytes) -> None:
        agent_id = _int(data, 1)
        control = self.controlled.get(agent_id)
        if control is not None:
            self._release(control)
            status = 1
        else:
            status = self._profile.foreign_deregister_status if self._known(agent_id) else 2
        self._send(_STATUS.pack(Code.DEREGISTER_FROM_AGENT_ACK, agent_id, status))
        self._machine.settle()

    def _register_event(self, data: bytes) -> None:
        name = self._string(data, 1)
        event_id = self._event_ids.get(name, 0)
        if event_id == 0 and name in self._machine.event_names:
            self._last_event_id += 1
            event_id = self._event_ids[name] = self._last_event_id
            self._machine.listening += 1
            self._listened = True
        self._send(_ONE_INT.pack(Code.REGISTER_FOR_EVENT_ACK, event_id))

    def _deregister_event(self, data: bytes) -> None:
        """The id is echoed whether it was known or not (observed on a NERD server)."""
        event_id = _int(data, 1)
        for name, known in list(self._event_ids.items()):
            if known == event_id:
                del self._event_ids[name]
                self._machine.listening -= 1
        self._send(_ONE_INT.pack(Code.DEREGISTER_FROM_EVENT_ACK, event_id))

    def _list_values(self, data: bytes) -> None:
        found = self._machine.repository.find(self._string(data, 1))
        self._send(_ONE_INT.pack(Code.VALUE_IDS, len(found)))
        for index, variable in enumerate(found):
            value_id = self._value_ids.get(variable.name)
            if value_id is None:
                self._values.append(variable)
                value_id = self._value_ids[variable.name] = len(self._values)
            self._send_text(
                _TWO_INTS.pack(Code.VALUE_INFO, index, value_id)
                + self._text(variable.type)
                + self._text(variable.name)
            )

    def _get_value(self, data: bytes) -> None:
        self._send_value(_int(data, 1))

    def _send_value(self, value_id: int) -> None:
        variable = self._value(value_id)
        if variable is None:
            self._send(_ONE_INT.pack(Code.VALUE, -1) + b"\0")
        else:
            self._send_text(_ONE_INT.pack(Code.VALUE, value_id) + self._text(variable.get()))

    def _set_value(self, data: bytes) -> None:
        value_id = _int(data, 1)
        variable = self._value(value_id)
        status = 2 if variable is None else int(variable.set(self._string(data, 5)))
        self._send(_STATUS.pack(Code.SET_VALUE_ACK, value_id, status))

    def _observe(self, data: bytes) -> None:
        count, found = self._observable(data)
        self._observed += [value_id for value_id in found if value_id and value_id not in self._observed]
        self._send_ids(Code.REGISTER_FOR_VALUE_ACK, count, found)

    def _observe_no_more(self, data: bytes) -> None:
        count, found = self._observable(data)
        self._observed = [value_id for value_id in self._observed if value_id not in found]
        self._send_ids(Code.DEREGISTER_FROM_VALUE_ACK, count, found)

    def _observable(self, data: bytes) -> tuple[int, list[int]]:
        """The announced count, and each requested id, or 0 where it is refused.

        A NERD server compares the id at a position only with the known value at that position of its hash; too many
        ids kill it, here they are 0.
        """
        count = _int(data, 1)
        there = min(max(count, 0), max(0, (len(data) - 5) // 4))
        ids = struct.unpack_from(f"<{there}i", data, 5) if there else ()
        if self._profile.register_for_value_works:
            return count, [value_id if self._value(value_id) else 0 for value_id in ids]
        order = sorted(range(1, len(self._values) + 1), key=lambda value_id: value_id ^ _HASH_STIR)
        found = [
            value_id if at < len(order) and order[at] == value_id else 0 for at, value_id in enumerate(ids)
        ]
        limit = (self._profile.datagram_limit or 65_000) // 4
        return count, found + [0] * (min(count, limit) - there)

    def _send_ids(self, code: Code, count: int, ids: list[int]) -> None:
        counted = code is Code.DEREGISTER_FROM_VALUE_ACK or self._profile.register_for_value_count
        head = _ONE_INT.pack(code, count) if counted else bytes((code,))
        self._send_vector(head + struct.pack(f"<{len(ids)}i", *ids), len(head))

    # --- reading and writing ---------------------------------------------------------------------------------------

    def _known(self, agent_id: int) -> AgentControl | None:
        """The agent, if this client has asked for an overview before (OSP 1.1, section 4.3, footnote)."""
        controls = self._machine.controls
        return controls[agent_id - 1] if self._knows_agents and 1 <= agent_id <= len(controls) else None

    def _value(self, value_id: int) -> Variable | None:
        return self._values[value_id - 1] if 1 <= value_id <= len(self._values) else None

    def _await(self, code: Code) -> None:
        if self._profile.lists_want_ack:
            self._awaited = code

    def _string(self, data: bytes, offset: int) -> str:
        raw = data[offset:].partition(b"\0")[0]
        return (_ascii(raw) if self._profile.ascii_only else raw).decode("latin-1")

    def _text(self, text: str) -> bytes:
        raw = text.partition("\0")[0].encode("latin-1", "replace")
        return (_ascii(raw) if self._profile.ascii_only else raw) + b"\0"

    def _send(self, data: bytes) -> None:
        self._machine.send(self.id, data + self._end)

    def _send_text(self, data: bytes) -> None:
        """Send what ends with a string; one that is too long loses its end, and the end byte, but not its zero."""
        limit = self._profile.datagram_limit
        if limit is None or len(data) < limit - 1:
            self._machine.send(self.id, data + self._end)
        else:
            self._machine.send(self.id, data[: limit - 2] + b"\0")

    def _send_vector(self, data: bytes, head: int) -> None:
        """Send what ends with 4-byte values; too many are dropped without a word, the counts stay."""
        limit = self._profile.datagram_limit
        if limit is not None and len(data) >= limit - 1:
            data = data[: head + (limit - 1 - head) // 4 * 4]
        self._machine.send(self.id, data + self._end)

    def _problem(self, kind: str, data: bytes) -> None:
        self._machine.problem(kind, self.peer, data)


Vote = tuple[Handler, AgentControl | None]
"""Who asked, and for which agent (None for a reset)."""


def _int(data: bytes, offset: int) -> int:
    """The integer there; 0 where the datagram is too short, as a real server reads it."""
    return int(INT.unpack_from(data, offset)[0]) if len(data) >= offset + 4 else 0


def _ascii(raw: bytes) -> bytes:
    """``raw`` up to the first byte that is not ASCII."""
    for at, byte in enumerate(raw):
        if byte >= 0x80:
            return raw[:at]
    return raw


_COMMANDS: Final[dict[int, Callable[[Handler, bytes], None]]] = {
    Code.NEXT_SIMULATION_STEP: Handler._step,
    Code.RESET_SIMULATION: Handler._reset,
    Code.END_COMMUNICATION: Handler._end_communication,
    Code.RESET_COMMUNICATION: Handler._restart_communication,
    Code.GET_AGENT_OVERVIEW: Handler._overview,
    Code.GET_AGENT_INFO: Handler._info,
    Code.REGISTER_FOR_AGENT: Handler._register,
    Code.DEREGISTER_FROM_AGENT: Handler._deregister,
    Code.REGISTER_FOR_EVENT: Handler._register_event,
    Code.DEREGISTER_FROM_EVENT: Handler._deregister_event,
    Code.GET_VALUE_IDS: Handler._list_values,
    Code.GET_VALUE: Handler._get_value,
    Code.SET_VALUE: Handler._set_value,
    Code.REGISTER_FOR_VALUE: Handler._observe,
    Code.DEREGISTER_FROM_VALUE: Handler._observe_no_more,
}
"""What a client may ask for. Anything else is ignored without a reply."""

_ANSWERS: Final[dict[Code | None, frozenset[int]]] = {
    Code.NEXT_SIMULATION_STEP_COMPLETED: frozenset({Code.NEXT_SIMULATION_STEP_COMPLETED_ACK}),
    Code.RESET_SIMULATION_COMPLETED: frozenset(
        {Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK}
    ),
    Code.AGENT_OVERVIEW: frozenset({Code.AGENT_OVERVIEW_ACK}),
    Code.AGENT_INFO: frozenset({Code.AGENT_INFO_ACK}),
}
"""What acknowledges what. Of a reset both codes are taken, whichever way the server has them."""

_ACKS: Final = frozenset().union(*_ANSWERS.values(), {Code.VALUE_INFO_ACK})
"""Acknowledgements that nobody waits for: ignored, and not worth a word."""
