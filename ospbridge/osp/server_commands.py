"""What a client may ask for: one function for each command of OSP 1.1, and the table of them.

A command reads the datagram leniently, as real servers do (an integer that is missing is 0), changes the handler's
registrations and answers. What it cannot make sense of it counts as a problem. Facts: OSP 1.1, sections 4.1 to 4.7,
and a NERD server as observed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    DeregisterFromAgentAck,
    DeregisterFromEventAck,
    DeregisterFromValueAck,
    RegisterForAgentAck,
    RegisterForEventAck,
    RegisterForValueAck,
    ResetSimulationAck,
    SetValueAck,
    ValueIds,
    ValueInfo,
)
from ospbridge.osp.wire import INT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.server_handler import Handler

__all__ = ["COMMANDS"]

_HASH_STIR: Final = 61
"""Stirs the order in which REGISTER_FOR_VALUE compares ids; a hash order, of which one entry was seen (61 first)."""


def _step(handler: Handler, data: bytes) -> None:
    agent_id, count = _int(data), _int(data, 5)
    control = handler.controlled.get(agent_id)
    if control is None:
        handler.machine.problem("step of an agent that the client does not control")
        return
    if not control.take_inputs(data, count):
        handler.machine.problem("step with a wrong number of inputs")
    handler.machine.send(handler.id, control.ack)
    handler.machine.request_step(handler, control)


def _reset(handler: Handler, data: bytes) -> None:
    handler.reply(ResetSimulationAck())
    handler.machine.request_reset(handler, _int(data))


def _end(handler: Handler, _data: bytes) -> None:
    handler.end()


def _restart_communication(handler: Handler, _data: bytes) -> None:
    handler.machine.restart_communication(handler)


def _overview(handler: Handler, _data: bytes) -> None:
    handler.knows_agents = True
    controls = handler.machine.controls
    handler.send(AgentOverview.pack(len(controls)))
    for index, control in enumerate(controls):
        kind, name = handler.text(control.agent.interface.type), handler.text(control.agent.name)
        free = control.handler is None
        handler.send(AgentOverviewNext.pack(index, control.id, kind, free, name))
    handler.await_ack(Code.AGENT_OVERVIEW)


def _info(handler: Handler, data: bytes) -> None:
    control = handler.known_agent(_int(data))
    if control is None:
        handler.machine.problem("info of an unknown agent")
        handler.reply(AgentInfo(0, 0, 0, 0, ""))
        return
    face = control.agent.interface
    counts = len(face.inputs), len(face.outputs), len(face.infos)
    handler.send(AgentInfo.pack(control.id, *counts, handler.text(face.name)))
    for index, value in enumerate((*face.inputs, *face.outputs, *face.infos)):
        handler.send(AgentInfoNext.pack(index, value.min, value.max, handler.text(value.name)))
    handler.await_ack(Code.AGENT_INFO)


def _register(handler: Handler, data: bytes) -> None:
    agent_id = _int(data)
    control = handler.known_agent(agent_id)
    done = control is not None and control.handler in (None, handler)
    if control is not None and control.handler is None:
        handler.register(control)
    handler.send(RegisterForAgentAck.pack(agent_id, done))
    handler.machine.settle()


def _deregister(handler: Handler, data: bytes) -> None:
    agent_id = _int(data)
    control = handler.controlled.get(agent_id)
    if control is not None:
        handler.release(control)
        status = 1
    else:
        status = handler.profile.foreign_deregister_status if handler.known_agent(agent_id) else 2
    handler.send(DeregisterFromAgentAck.pack(agent_id, status))
    handler.machine.settle()


def _register_event(handler: Handler, data: bytes) -> None:
    name = handler.string(data, 1)
    known = name in handler.machine.simulation.event_names
    handler.send(RegisterForEventAck.pack(handler.events.register(name) if known else 0))


def _deregister_event(handler: Handler, data: bytes) -> None:
    """The id is echoed whether it was known or not (observed on a NERD server)."""
    handler.events.deregister(_int(data))
    handler.send(DeregisterFromEventAck.pack(_int(data)))


def _list_values(handler: Handler, data: bytes) -> None:
    found = handler.machine.repository.find(handler.string(data, 1))
    handler.send(ValueIds.pack(len(found)))
    for index, variable in enumerate(found):
        value_id = handler.value_ids.get(variable.name)
        if value_id is None:
            handler.values.append(variable)
            value_id = handler.value_ids[variable.name] = len(handler.values)
        kind, name = handler.text(variable.type), handler.text(variable.name)
        handler.send(ValueInfo.pack(index, value_id, kind, name))


def _get_value(handler: Handler, data: bytes) -> None:
    handler.send_value(_int(data))


def _set_value(handler: Handler, data: bytes) -> None:
    value_id = _int(data)
    variable = handler.known_value(value_id)
    status = 2 if variable is None else int(variable.set(handler.string(data, 5)))
    handler.send(SetValueAck.pack(value_id, status))


def _observe(handler: Handler, data: bytes) -> None:
    count, found = _observable(handler, data)
    # In order, each once; a count may be as large as a datagram.
    handler.observed = list(dict.fromkeys((*handler.observed, *filter(None, found))))
    counted = not handler.profile.register_for_value_works
    handler.reply(RegisterForValueAck(tuple(found), announced=(count,), counted=counted))


def _observe_no_more(handler: Handler, data: bytes) -> None:
    count, found = _observable(handler, data)
    dropped = frozenset(found)
    handler.observed = [value_id for value_id in handler.observed if value_id not in dropped]
    handler.reply(DeregisterFromValueAck(tuple(found), announced=(count,)))


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


def _int(data: bytes, offset: int = 1) -> int:
    """The integer at ``offset``; 0 where the datagram is too short, as a real server reads it."""
    return int(INT.unpack_from(data, offset)[0]) if len(data) >= offset + INT.size else 0


COMMANDS: Final[dict[int, Callable[[Handler, bytes], None]]] = {
    Code.NEXT_SIMULATION_STEP: _step,
    Code.RESET_SIMULATION: _reset,
    Code.END_COMMUNICATION: _end,
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
