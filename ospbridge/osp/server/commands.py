"""What a client may ask for: one function for each command of OSP 1.1, and the table of them.

A command reads the datagram leniently, as real servers do (an integer that is missing is 0), changes the handler's
registrations and answers. What it cannot make sense of it counts as a problem. Facts: OSP 1.1, sections 4.1 to 4.7,
and a NERD server as observed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ospbridge.osp.codes import Code
from ospbridge.osp.wire import INT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.server.handler import Handler

__all__ = ["COMMANDS"]

_STEP: Final = struct.Struct("<xii")
_ONE_INT: Final = struct.Struct("<Bi")
_TWO_INTS: Final = struct.Struct("<Bii")
_STATUS: Final = struct.Struct("<BiB")
_RANGE: Final = struct.Struct("<Biff")
_COUNTS: Final = struct.Struct("<Biiii")

_HASH_STIR: Final = 61
"""Stirs the order in which REGISTER_FOR_VALUE compares ids; a hash order, of which one entry was seen (61 first)."""


def _step(handler: Handler, data: bytes) -> None:
    if len(data) >= _STEP.size:
        agent_id, count = _STEP.unpack_from(data)
    else:
        agent_id, count = _int(data), 0
    control = handler.controlled.get(agent_id)
    if control is None:
        handler.problem("step of an agent that the client does not control")
        return
    if not control.take_inputs(data, count):
        handler.problem("step with a wrong number of inputs")
    machine = handler.machine
    machine.send(handler.id, control.ack)
    machine.step_votes.append((handler, control))
    machine.settle()


def _reset(handler: Handler, data: bytes) -> None:
    handler.send(bytes((Code.RESET_SIMULATION_ACK,)))
    handler.machine.vote_reset(handler, _int(data))


def _end_communication(handler: Handler, _data: bytes) -> None:
    if handler.listened and not handler.profile.end_after_events_is_safe:
        handler.problem("END after an event registration: the real server dies of it")
    handler.send(bytes((Code.END_COMMUNICATION_ACK,)))
    handler.leave()


def _restart_communication(handler: Handler, _data: bytes) -> None:
    handler.machine.restart_communication(handler)


def _overview(handler: Handler, _data: bytes) -> None:
    handler.knows_agents = True
    controls = handler.machine.controls
    handler.send(_ONE_INT.pack(Code.AGENT_OVERVIEW, len(controls)))
    for index, control in enumerate(controls):
        face = control.agent.interface
        free = control.handler is None or (
            handler.profile.own_agents_available and control.handler is handler
        )
        handler.send_text(
            _TWO_INTS.pack(Code.AGENT_OVERVIEW_NEXT, index, control.id)
            + handler.text(face.type)
            + bytes((free,))
            + handler.text(face.name)
        )
    handler.await_ack(Code.AGENT_OVERVIEW)


def _info(handler: Handler, data: bytes) -> None:
    control = handler.known_agent(_int(data))
    if control is None:
        handler.problem("info of an unknown agent")
        handler.send(_COUNTS.pack(Code.AGENT_INFO, 0, 0, 0, 0) + b"\0")
        return
    face = control.agent.interface
    handler.send_text(
        _COUNTS.pack(Code.AGENT_INFO, control.id, len(face.inputs), len(face.outputs), len(face.infos))
        + handler.text(face.name)
    )
    for index, value in enumerate((*face.inputs, *face.outputs, *face.infos)):
        head = _RANGE.pack(Code.AGENT_INFO_NEXT, index, value.min, value.max)
        handler.send_text(head + handler.text(value.name))
    handler.await_ack(Code.AGENT_INFO)


def _register(handler: Handler, data: bytes) -> None:
    agent_id = _int(data)
    control = handler.known_agent(agent_id)
    done = control is not None and control.handler in (None, handler)
    if control is not None and control.handler is None:
        control.handler = handler
        handler.controlled[agent_id] = control
        handler.controlled = dict(sorted(handler.controlled.items()))
        handler.machine.controlled += 1
    handler.send(_STATUS.pack(Code.REGISTER_FOR_AGENT_ACK, agent_id, done))
    handler.machine.settle()


def _deregister(handler: Handler, data: bytes) -> None:
    agent_id = _int(data)
    control = handler.controlled.get(agent_id)
    if control is not None:
        handler.release(control)
        status = 1
    else:
        status = handler.profile.foreign_deregister_status if handler.known_agent(agent_id) else 2
    handler.send(_STATUS.pack(Code.DEREGISTER_FROM_AGENT_ACK, agent_id, status))
    handler.machine.settle()


def _register_event(handler: Handler, data: bytes) -> None:
    name = handler.string(data, 1)
    event_id = handler.event_ids.get(name, 0)
    if event_id == 0 and name in handler.machine.event_names:
        handler.last_event_id += 1
        event_id = handler.event_ids[name] = handler.last_event_id
        handler.machine.listening += 1
        handler.listened = True
    handler.send(_ONE_INT.pack(Code.REGISTER_FOR_EVENT_ACK, event_id))


def _deregister_event(handler: Handler, data: bytes) -> None:
    """The id is echoed whether it was known or not (observed on a NERD server)."""
    event_id = _int(data)
    for name, known in list(handler.event_ids.items()):
        if known == event_id:
            handler.forget_event(name)
    handler.send(_ONE_INT.pack(Code.DEREGISTER_FROM_EVENT_ACK, event_id))


def _list_values(handler: Handler, data: bytes) -> None:
    found = handler.machine.repository.find(handler.string(data, 1))
    handler.send(_ONE_INT.pack(Code.VALUE_IDS, len(found)))
    for index, variable in enumerate(found):
        value_id = handler.value_ids.get(variable.name)
        if value_id is None:
            handler.values.append(variable)
            value_id = handler.value_ids[variable.name] = len(handler.values)
        handler.send_text(
            _TWO_INTS.pack(Code.VALUE_INFO, index, value_id)
            + handler.text(variable.type)
            + handler.text(variable.name)
        )


def _get_value(handler: Handler, data: bytes) -> None:
    handler.send_value(_int(data))


def _set_value(handler: Handler, data: bytes) -> None:
    value_id = _int(data)
    variable = handler.known_value(value_id)
    status = 2 if variable is None else int(variable.set(handler.string(data, 5)))
    handler.send(_STATUS.pack(Code.SET_VALUE_ACK, value_id, status))


def _observe(handler: Handler, data: bytes) -> None:
    count, found = _observable(handler, data)
    handler.observed += [value_id for value_id in found if value_id and value_id not in handler.observed]
    _send_ids(handler, Code.REGISTER_FOR_VALUE_ACK, count, found)


def _observe_no_more(handler: Handler, data: bytes) -> None:
    count, found = _observable(handler, data)
    handler.observed = [value_id for value_id in handler.observed if value_id not in found]
    _send_ids(handler, Code.DEREGISTER_FROM_VALUE_ACK, count, found)


def _observable(handler: Handler, data: bytes) -> tuple[int, list[int]]:
    """The count to answer with, and each requested id, or 0 where it is refused.

    A NERD server compares the id at a position only with the known value at that position of its hash; too many
    ids kill it, here they are 0.
    """
    count = _int(data)
    there = min(max(count, 0), max(0, (len(data) - 5) // 4))
    ids = struct.unpack_from(f"<{there}i", data, 5) if there else ()
    if handler.profile.register_for_value_works:
        return there, [value_id if handler.known_value(value_id) else 0 for value_id in ids]
    order = sorted(range(1, len(handler.values) + 1), key=lambda value_id: value_id ^ _HASH_STIR)
    found = [value_id if at < len(order) and order[at] == value_id else 0 for at, value_id in enumerate(ids)]
    limit = (handler.profile.datagram_limit or 65_000) // 4
    return count, found + [0] * (min(count, limit) - there)


def _send_ids(handler: Handler, code: Code, count: int, ids: list[int]) -> None:
    counted = code is Code.DEREGISTER_FROM_VALUE_ACK or handler.profile.register_for_value_count
    head = _ONE_INT.pack(code, count) if counted else bytes((code,))
    handler.send_vector(head + struct.pack(f"<{len(ids)}i", *ids), len(head))


def _int(data: bytes) -> int:
    """The integer behind the code; 0 where the datagram is too short, as a real server reads it."""
    return int(INT.unpack_from(data, 1)[0]) if len(data) >= 5 else 0


COMMANDS: Final[dict[int, Callable[[Handler, bytes], None]]] = {
    Code.NEXT_SIMULATION_STEP: _step,
    Code.RESET_SIMULATION: _reset,
    Code.END_COMMUNICATION: _end_communication,
    Code.RESET_COMMUNICATION: _restart_communication,
    Code.GET_AGENT_OVERVIEW: _overview,
    Code.GET_AGENT_INFO: _info,
    Code.REGISTER_FOR_AGENT: _register,
    Code.DEREGISTER_FROM_AGENT: _deregister,
    Code.REGISTER_FOR_EVENT: _register_event,
    Code.DEREGISTER_FROM_EVENT: _deregister_event,
    Code.GET_VALUE_IDS: _list_values,
    Code.GET_VALUE: _get_value,
    Code.SET_VALUE: _set_value,
    Code.REGISTER_FOR_VALUE: _observe,
    Code.DEREGISTER_FROM_VALUE: _observe_no_more,
}
"""What a client may ask for. Anything else is ignored without a reply."""
