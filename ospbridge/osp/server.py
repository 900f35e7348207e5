"""The server role of OSP 1.1 without I/O: the main port, a handler for each client, and the barrier.

Datagrams go in with ``receive_main`` and ``receive``, time with every call, and what the driver has to do comes out of
``take_effects``.

A step or reset does not run inside ``receive`` but in a later ``handle_timer``: the acknowledgement of the last request
can then leave before a world thinks, and what was already queued is still answered and counted, as by a real server:
two requests sent back to back are answered 81 81 85, and whoever asks for the clock meanwhile is told the old one.

Facts: OSP 1.1, sections 2 and 4; where the profile says so, as observed on a NERD server.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ospbridge.interface import Endpoint
from ospbridge.osp import messages
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.profile import InitForm
from ospbridge.osp.repository import Simulation
from ospbridge.osp.wire import INT, decode_text, encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import Variable, World, WorldAgent

NO_INIT: Final = "no INIT on the main port"
OTHER_INIT: Final = "INIT of another form or version"
PROBING: Final = frozenset({NO_INIT, OTHER_INIT})
"""Problems that are the ordinary traces of a client that finds out what kind of server this is."""
SILENT: Final = 60.0
"""Seconds of silence after which a handler without agents may be closed to make room for a new client."""
STALL: Final = 0.05
"""How long a stalled completion is delayed: one wait of the real server's handler, begun anew by any datagram."""
_INPUTS_BEGIN: Final = messages.NextSimulationStep.HEAD.size
_ASCII_ONLY: Final = bytes(byte if byte < 0x80 else 0 for byte in range(256))
_ACKS_OF: Final[dict[int, frozenset[int]]] = {
    Code.NEXT_SIMULATION_STEP_COMPLETED: frozenset({Code.NEXT_SIMULATION_STEP_COMPLETED_ACK}),
    Code.RESET_SIMULATION_COMPLETED: frozenset(
        {Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK}
    ),
    Code.AGENT_OVERVIEW: frozenset({Code.AGENT_OVERVIEW_ACK}),
    Code.AGENT_INFO: frozenset({Code.AGENT_INFO_ACK}),
}
"""What acknowledges what. Of a reset both codes are taken, whichever way the server has them."""
_ACKS: Final = frozenset().union(*_ACKS_OF.values(), {Code.VALUE_INFO_ACK})
"""Acknowledgements that nobody waits for: ignored, and not worth a word."""


class OpenHandler(NamedTuple):
    """Open a socket of its own for this handler, connected to ``peer``."""

    handler_id: int
    peer: Hashable


class Send(NamedTuple):
    """Send ``data`` from the handler's socket to its peer."""

    handler_id: int
    data: bytes


class CloseHandler(NamedTuple):
    """Close the handler's socket; what was sent before still goes out."""

    handler_id: int


Effect = OpenHandler | Send | CloseHandler


def _never() -> bool:
    return False


class Faults(NamedTuple):
    """What a real server's threads lose now and then; each is asked once for each occasion."""

    stall: Callable[[], bool] = _never
    """Whether a handler sleeps on although its completion is ready."""
    late: Callable[[], bool] = _never
    """Whether the barrier is looked at late although a request completed it."""
    lose_reset: Callable[[], bool] = _never
    """Whether a reset directly behind another is acknowledged, and never runs."""


class AgentControl:
    """An agent of the world with who controls it, and its constant pieces of datagrams."""

    __slots__ = ("ack", "agent", "handler", "id", "request_size")

    def __init__(self, agent: WorldAgent, agent_id: int, profile: Profile) -> None:
        self.agent = agent
        self.id = agent_id
        self.handler: Handler | None = None
        self.request_size = messages.NextSimulationStep.length(len(agent.inputs))
        self.ack = messages.NextSimulationStepAck.pack(agent_id) + profile.end

    def header(self, events: int, observed: int) -> bytes:
        """How a completion begins, up to the outputs."""
        return messages.StepCompleted.pack(
            self.id, len(self.agent.outputs), len(self.agent.infos), events, observed
        )

    def take_inputs(self, data: bytes) -> bool:
        """Write a request's inputs, clamped to their range; NaN passes. False if their number is wrong.

        Fewer inputs than the agent has: the others keep their value. Announced but missing floats are read as 0,
        surplus ones are ignored (observed on a NERD server).
        """
        agent, count = self.agent, _int(data, 5)
        given = agent.inputs[: max(count, 0)]
        floats = data[: len(data) - (len(data) - _INPUTS_BEGIN) % 4].ljust(self.request_size, b"\0")
        np.maximum(np.ndarray(given.shape, "<f4", floats, _INPUTS_BEGIN), agent.low[: len(given)], out=given)
        np.minimum(agent.inputs, agent.high, out=agent.inputs)
        return count == len(agent.inputs) and len(data) >= self.request_size


class AnyHandler(Protocol):
    """The server's end of one connection, as a ``BaseServer`` knows it."""

    id: int
    last_heard: float

    @property
    def controlled(self) -> Collection[object]:
        """What it must not give way for."""

    @property
    def deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called."""

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""

    def handle_timer(self, now: float) -> None:
        """``deadline`` has come."""

    def give_way(self) -> None:
        """Close, for another client's sake."""


H = TypeVar("H", bound=AnyHandler)


class BaseServer(ABC, Generic[H]):
    """A main port and a handler for each client, as the driver of their sockets knows them.

    ``max_handlers``: how many clients may be connected; an INIT beyond it closes an idle handler, or is not answered.
    ``problems`` counts datagrams that were ignored, by kind.
    """

    deaf_after_closed_port = False
    """As ``Profile`` has it."""

    def __init__(self, max_handlers: int) -> None:
        self.problems: Counter[str] = Counter()
        self._max_handlers = max_handlers
        self._handlers: dict[int, H] = {}
        self._last_handler_id = 0
        self._effects: list[Effect] = []

    @property
    def handlers(self) -> int:
        """How many clients are connected."""
        return len(self._handlers)

    @property
    def due(self) -> bool:
        """Whether ``handle_timer`` should be called as soon as nothing more is there to read."""
        return False

    @abstractmethod
    def receive_main(self, data: bytes, peer: Hashable, now: float) -> None:
        """A datagram came to the main port. Whatever is not an INIT of this server's form is ignored."""

    def receive(self, handler_id: int, data: bytes, now: float) -> None:
        """A datagram came to a handler's socket, from its peer. Never raises for what is in it."""
        handler = self._handlers.get(handler_id)
        if handler is not None:
            handler.receive(data, now)

    def next_deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called; None if only datagrams matter."""
        deadlines = (handler.deadline for handler in self._handlers.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Send the answers that are due."""
        for handler in list(self._handlers.values()):
            if handler.deadline is not None and handler.deadline <= now:
                handler.handle_timer(now)

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in this order."""
        effects, self._effects = self._effects, []
        return effects

    def _next_handler_id(self, now: float) -> int | None:
        """For one client more; None where there is no room.

        The handler that was silent for longest gives way if it controls nothing and was silent for a minute: clients
        that leave without END, as some have to, leave their handlers behind, and a real server keeps them all.
        """
        if len(self._handlers) >= self._max_handlers:
            idle = (handler for handler in self._handlers.values() if not handler.controlled)
            silent = min(idle, key=lambda handler: handler.last_heard, default=None)
            if silent is None or now - silent.last_heard < SILENT:
                self.problems["INIT beyond the limit of handlers"] += 1
                return None
            silent.give_way()
        self._last_handler_id += 1
        return self._last_handler_id

    def _add(self, handler: H, peer: Hashable) -> None:
        self._handlers[handler.id] = handler
        self._effects.append(OpenHandler(handler.id, peer))

    def send(self, handler_id: int, data: bytes) -> None:
        """Queue a datagram."""
        self._effects.append(Send(handler_id, data))

    def close(self, handler: H) -> None:
        """Forget a handler."""
        del self._handlers[handler.id]
        self._effects.append(CloseHandler(handler.id))


class ServerMachine(BaseServer["Handler"]):
    """One server: a world behind a main port, with a handler for each INIT.

    ``ledger``: called with a record of every step and reset that really ran (see ``ospbridge.simulator.ledger``).
    """

    def __init__(
        self,
        world: World,
        profile: Profile,
        *,
        faults: Faults = Faults(),  # noqa: B008  # it never changes
        ledger: Callable[[dict[str, Any]], None] | None = None,
        max_handlers: int = 64,
    ) -> None:
        super().__init__(max_handlers)
        self.profile = profile
        self.deaf_after_closed_port = profile.deaf_after_closed_port
        self.simulation = Simulation(world, profile)
        self.clock = self.simulation.clock
        """Simulated time, and the time of the driver's last call."""
        self.steps = 0
        """Steps that ran since the server began."""
        self.resets = 0
        self.faults = faults
        self.controls = [AgentControl(agent, index + 1, profile) for index, agent in enumerate(world.agents)]
        self.controlled = 0
        """How many agents are controlled by any client: what the barrier waits for."""
        self.step_requests: list[tuple[Handler, AgentControl]] = []
        """Who asked for a step, and for which agent."""
        # Requests beyond the number of agents would change nothing.
        self.reset_requests: deque[tuple[Handler, int]] = deque(maxlen=max(len(self.controls), 1))
        """Who asked for a reset, and for which seed."""
        self.due_at: float | None = None
        """When the step or reset runs that all have asked for; None while somebody is missing."""
        self._ledger = ledger

    # --- what the driver calls -------------------------------------------------------------------------------------

    def receive_main(self, data: bytes, peer: Hashable, now: float) -> None:
        self.clock.now = now
        in_bytes = self.profile.init_form is InitForm.BYTES
        version = tuple(data[1:3]) if in_bytes else (_int(data), _int(data, 5))
        if not data or data[0] != Code.INIT_COMMUNICATION:
            self.problems[NO_INIT] += 1
        elif version != (PROTOCOL_MAJOR, PROTOCOL_MINOR):
            self.problems[OTHER_INIT] += 1
        elif (handler_id := self._next_handler_id(now)) is not None:
            handler = Handler(self, handler_id, peer)
            self._add(handler, peer)
            if not self.profile.init_takes:
                handler.handle_timer(now)

    def receive(self, handler_id: int, data: bytes, now: float) -> None:
        self.clock.now = now
        super().receive(handler_id, data, now)

    @property
    def due(self) -> bool:
        """Whether ``handle_timer`` should be called as soon as nothing more is there to read."""
        return self.due_at is not None and self.due_at <= self.clock.now

    def next_deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called; None if only datagrams matter."""
        deadline = super().next_deadline()
        return min(deadline or inf, self.due_at) if self.due_at is not None else deadline

    def handle_timer(self, now: float) -> None:
        """Run what is due: a reset, a step, delayed answers."""
        self.clock.now = now
        if self.due:
            self.due_at = None
            if len(self.reset_requests) >= self.controlled:
                self._run_reset()
            if len(self.step_requests) >= self.controlled:
                self._run_step()
        super().handle_timer(now)

    # --- what handlers call ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look at the barrier because of a request: at once, unless this is one of the times when that is lost."""
        self.settle(self.profile.barrier_poll if self.faults.late() else 0.0)

    def settle(self, delay: float | None = None) -> None:
        """See whether the barrier is complete; called after all that changes requests or agents.

        ``delay``: after how many seconds what is complete runs; by default the time at which a server looks by itself.
        """
        if 0 < self.controlled <= max(len(self.step_requests), len(self.reset_requests)):
            due_at = self.clock.now + (self.profile.barrier_poll if delay is None else delay)
            self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)
        else:
            self.due_at = None

    def release(self, handler: Handler, control: AgentControl) -> None:
        """Let an agent be controlled no more. Whether its requests lapse is a matter of the profile."""
        self.controlled -= 1
        del handler.controlled[control.id]
        control.handler = None
        if not self.profile.requests_outlive_sessions:
            self.step_requests = [request for request in self.step_requests if request[1] is not control]
            own = [request for request in self.reset_requests if request[0] is handler]
            for request in own[len(handler.controlled) :]:
                self.reset_requests.remove(request)

    def close(self, handler: Handler) -> None:
        """Release the handler's agents and forget it; the barrier may then be complete without them."""
        for control in list(handler.controlled.values()):
            self.release(handler, control)
        super().close(handler)
        self.settle()

    def restart_communication(self, requester: Handler) -> None:
        """End all connections (OSP 1.1, section 4.2); the requester is told first.

        A client whose handler waits for an acknowledgement is not told, as observed on a NERD server.
        """
        requester.give_way()
        for handler in list(self._handlers.values()):
            handler.give_way(told=handler.awaited is None)
        self.step_requests.clear()
        self.reset_requests.clear()
        self.due_at = None

    # --- running ---------------------------------------------------------------------------------------------------

    def _run_reset(self) -> None:
        requests = list(self.reset_requests)
        self.reset_requests.clear()
        if self.resets and not self.clock.steps and self.faults.lose_reset():
            return
        if not self.profile.requests_outlive_sessions:
            self.step_requests.clear()
        seed = self.simulation.seed([seed for _, seed in requests])
        self._tell_events(self.simulation.reset(seed))
        self.resets += 1
        if self._ledger is not None:
            self._ledger(self._record("reset", self.resets, requests) | {"seed": seed})
        for handler in list(self._handlers.values()):
            handler.tell(self.profile.reset_completed)

    def _run_step(self) -> None:
        requests, self.step_requests = self.step_requests, []
        self._tell_events(self.simulation.step())
        self.steps += 1
        if self._ledger is not None:
            self._ledger(self._record("step", self.steps, requests))
        for handler in list(self._handlers.values()):
            if handler.controlled:
                handler.tell(Code.NEXT_SIMULATION_STEP_COMPLETED)

    def _tell_events(self, events: Sequence[str]) -> None:
        """Every handler that listens keeps what occurred for its next completion, each event once."""
        for handler in self._handlers.values():
            ids = (handler.event_ids.get(event) for event in events)
            handler.occurred.update(dict.fromkeys(event_id for event_id in ids if event_id is not None))

    def _record(self, kind: str, number: int, requests: Sequence[tuple[Handler, object]]) -> dict[str, Any]:
        agents = {
            control.agent.name: {
                "inputs": control.agent.inputs.tolist(),
                "client": None if control.handler is None else control.handler.client,
                "votes": [handler.client for handler, asked in requests if asked is control],
            }
            for control in self.controls
        }
        clients = [handler.client for handler, _ in requests]
        return {"kind": kind, "n": number, "time": self.clock.time, "agents": agents, "clients": clients}


class Handler:
    """The server's end of one connection. Made by an INIT, gone after END or RESET_COMMUNICATION.

    It is idle, delayed, or waits for an acknowledgement. Commands are read leniently, as real servers do (an integer
    that is missing is 0); what makes no sense is counted as a problem.
    """

    def __init__(self, machine: ServerMachine, handler_id: int, peer: Hashable) -> None:
        self.id = handler_id
        self.client = str(Endpoint(*peer[:2]) if isinstance(peer, tuple) else peer)
        """The peer's address, as the ledger has it."""
        self.machine = machine
        self.controlled: dict[int, AgentControl] = {}
        """By id, ascending: the order of completions."""
        self.last_heard = machine.clock.now
        self.deadline: float | None = machine.clock.now + self.profile.init_takes
        """Until when the handler sleeps: before its answer to INIT, or because a wake-up was lost."""
        self.event_ids: dict[str, int] = {}
        """Of the events that the client registered for, by name."""
        self.last_event_id = 0
        self.occurred: dict[int, None] = {}
        """Ids of the events that are still to be told, in order of occurrence."""
        self.awaited: Code | None = None
        """Whose acknowledgement the next datagram will be taken for."""
        self._knows_agents = False
        self.values: list[Variable] = []
        self.value_ids: dict[str, int] = {}
        self._observed: dict[int, None] = {}
        """Ids of variables that are pushed, in the order in which they were asked for."""
        self._to_tell: list[Code | AgentControl] = [Code.INIT_COMMUNICATION_ACK]
        """What has happened and is not told yet, each once however often it happened; of the step that is being told,
        whose completions are still to come."""

    @property
    def profile(self) -> Profile:
        """What kind of server this is."""
        return self.machine.profile

    def give_way(self, *, told: bool = True) -> None:
        """End this connection because somebody restarts the communication, or another client needs the room."""
        if told:
            self.send(messages.ResetCommunicationAck.pack())
            if self.profile.stray_reset_ack:
                self.send(messages.ResetSimulationAck.pack())
        self.machine.close(self)

    # --- datagrams and time ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""
        self.last_heard = now
        if self.deadline is not None:
            self.deadline = now + STALL
        code = data[0] if data else 0
        if self.awaited is not None and code != Code.RESET_COMMUNICATION:
            # Whatever comes is the awaited acknowledgement, and lost if it was something else; so are completions.
            if code not in _ACKS_OF[self.awaited]:
                self.machine.problems["datagram eaten in place of an acknowledgement"] += 1
                self._to_tell = [told for told in self._to_tell if isinstance(told, Code)]
            self.awaited = None
            self._go_on()
        elif code in self.COMMANDS:
            self.COMMANDS[code](self, data)
        elif code not in _ACKS:
            self.machine.problems["unknown command"] += 1

    def handle_timer(self, _now: float) -> None:
        """``deadline`` has come."""
        self.deadline = None
        self._go_on()

    def tell(self, what: Code) -> None:
        """A step or reset was made: tell the client, now or when its handler is free.

        A second step before the first was told is told once, with the newer outputs.
        """
        if what not in self._to_tell:
            self._to_tell.append(what)
        if self.awaited is not None or Code.INIT_COMMUNICATION_ACK in self._to_tell:
            return
        if not self.machine.faults.stall():
            self.deadline = None
            self._go_on()
        elif self.deadline is None:
            self.deadline = self.machine.clock.now + STALL

    def _go_on(self) -> None:
        """Send what is to be told until an acknowledgement is needed."""
        while self._to_tell and self.awaited is None and self.deadline is None:
            told = self._to_tell.pop(0)
            if isinstance(told, AgentControl):
                self._send_completion(told, [], [])
            elif told is Code.INIT_COMMUNICATION_ACK:
                self.send(messages.InitAck(form=self.profile.init_form).encode())
            elif told is not Code.NEXT_SIMULATION_STEP_COMPLETED:
                self.send(bytes((told,)))
                self._await_ack(Code.RESET_SIMULATION_COMPLETED)
            elif self.controlled:
                first, *self._to_tell[:0] = self.controlled.values()
                events, self.occurred = list(self.occurred), {}
                self._send_completion(first, events, list(self._observed))

    def _send_completion(self, control: AgentControl, events: list[int], observed: list[int]) -> None:
        if self.profile.completions_one_by_one:
            self.awaited = Code.NEXT_SIMULATION_STEP_COMPLETED
        head = control.header(len(events), len(observed))
        ids = struct.pack(f"<{len(events)}i", *events)
        self.send(head + control.agent.outputs.tobytes() + control.agent.infos.tobytes() + ids)
        for value_id in observed:
            self.send_value(value_id)

    # --- stepping, resetting, leaving: OSP 1.1, sections 4.1, 4.2, 4.6 and 4.7 -------------------------------------

    def _step(self, data: bytes) -> None:
        control = self.controlled.get(_int(data))
        if control is None:
            self.machine.problems["step of an agent that the client does not control"] += 1
            return
        if not control.take_inputs(data):
            self.machine.problems["step with a wrong number of inputs"] += 1
        self.machine.send(self.id, control.ack)
        self.machine.step_requests.append((self, control))
        self.machine.wake()

    def _reset(self, data: bytes) -> None:
        self.send(messages.ResetSimulationAck.pack())
        if self.controlled or self.profile.requests_outlive_sessions:
            self.machine.reset_requests.append((self, _int(data)))
            self.machine.wake()

    def _end(self, _data: bytes) -> None:
        if self.last_event_id and not self.profile.end_after_events_is_safe:
            self.machine.problems["END after an event registration: the real server dies of it"] += 1
        self.send(messages.EndAck.pack())
        self.machine.close(self)

    # --- agents: section 4.3 ---------------------------------------------------------------------------------------

    def _overview(self, _data: bytes) -> None:
        self._knows_agents = True
        self.send(messages.AgentOverview.pack(len(self.machine.controls)))
        for index, control in enumerate(self.machine.controls):
            kind, name = self.text(control.agent.interface.type), self.text(control.agent.name)
            self.send(messages.AgentOverviewNext.pack(index, control.id, kind, control.handler is None, name))
        self._await_ack(Code.AGENT_OVERVIEW)

    def _info(self, data: bytes) -> None:
        control = self._known_agent(_int(data))
        if control is None:
            self.machine.problems["info of an unknown agent"] += 1
            self.send(messages.AgentInfo.pack(0, 0, 0, 0, b"\0"))
            return
        face = control.agent.interface
        counts = len(face.inputs), len(face.outputs), len(face.infos)
        self.send(messages.AgentInfo.pack(control.id, *counts, self.text(face.name)))
        for index, value in enumerate((*face.inputs, *face.outputs, *face.infos)):
            self.send(messages.AgentInfoNext.pack(index, value.min, value.max, self.text(value.name)))
        self._await_ack(Code.AGENT_INFO)

    def _register(self, data: bytes) -> None:
        control = self._known_agent(_int(data))
        done = control is not None and control.handler in (None, self)
        if control is not None and control.handler is None:
            self.machine.controlled += 1
            control.handler = self
            self.controlled = dict(sorted({**self.controlled, control.id: control}.items()))
        self.send(messages.RegisterForAgentAck.pack(_int(data), done))
        self.machine.settle()

    def _deregister(self, data: bytes) -> None:
        agent_id = _int(data)
        control = self.controlled.get(agent_id)
        if control is not None:
            self.machine.release(self, control)
            status = 1
        else:
            status = self.profile.foreign_deregister_status if self._known_agent(agent_id) else 2
        self.send(messages.DeregisterFromAgentAck.pack(agent_id, status))
        self.machine.settle()

    def _known_agent(self, agent_id: int) -> AgentControl | None:
        """The agent, if this client has asked for an overview before (OSP 1.1, section 4.3, footnote)."""
        controls = self.machine.controls
        return controls[agent_id - 1] if self._knows_agents and 1 <= agent_id <= len(controls) else None

    # --- events: section 4.4 ---------------------------------------------------------------------------------------

    def _register_event(self, data: bytes) -> None:
        """The same event has the same id each time."""
        name = self._string(data, 1)
        if name in self.machine.simulation.event_names and name not in self.event_ids:
            self.last_event_id += 1
            self.event_ids[name] = self.last_event_id
        self.send(messages.RegisterForEventAck.pack(self.event_ids.get(name, 0)))

    def _deregister_event(self, data: bytes) -> None:
        """The id is echoed whether it was known or not (observed on a NERD server)."""
        event_id = _int(data)
        self.event_ids = {name: known for name, known in self.event_ids.items() if known != event_id}
        self.occurred.pop(event_id, None)
        self.send(messages.DeregisterFromEventAck.pack(event_id))

    # --- variables: section 4.5 ------------------------------------------------------------------------------------

    def _list_values(self, data: bytes) -> None:
        found = self.machine.simulation.repository.find(self._string(data, 1))
        self.send(messages.ValueIds.pack(len(found)))
        for index, variable in enumerate(found):
            value_id = self.value_ids.get(variable.name)
            if value_id is None:
                self.values.append(variable)
                value_id = self.value_ids[variable.name] = len(self.values)
            kind, name = self.text(variable.type), self.text(variable.name)
            self.send(messages.ValueInfo.pack(index, value_id, kind, name))

    def _set_value(self, data: bytes) -> None:
        value_id = _int(data)
        variable = self._known_value(value_id)
        status = 2 if variable is None else int(variable.set(self._string(data, 5)))
        self.send(messages.SetValueAck.pack(value_id, status))

    def _observe(self, data: bytes) -> None:
        found = self._observable(data)
        if self.profile.values_are_pushed:
            self._observed.update(dict.fromkeys(filter(None, found)))
        counted = not self.profile.register_for_value_works
        self.send(messages.RegisterForValueAck(found, counted=counted).encode())

    def _observe_no_more(self, data: bytes) -> None:
        found = self._observable(data)
        for value_id in found:
            self._observed.pop(value_id, None)
        self.send(messages.DeregisterFromValueAck(found).encode())

    def _observable(self, data: bytes) -> tuple[int, ...]:
        """Each requested id, or 0 where it is refused.

        A NERD server compares the id at a position only with the known value at that position of its hash, here of
        the ids in falling order; too many ids kill it, here they are 0.
        """
        count = min(max(_int(data), 0), max(0, (len(data) - 5) // 4))
        ids = struct.unpack_from(f"<{count}i", data, 5) if count else ()
        if self.profile.register_for_value_works:
            return tuple(value_id if self._known_value(value_id) else 0 for value_id in ids)
        known = reversed(self.value_ids.values())
        return tuple(asked if asked == next(known, 0) else 0 for asked in ids)

    def send_value(self, value_id: int) -> None:
        """Send what a variable holds; id -1 and nothing for one that this client does not know."""
        variable = self._known_value(value_id)
        if variable is None:
            self.send(messages.ValueContent.pack(-1, b"\0"))
        else:
            self.send(messages.ValueContent.pack(value_id, self.text(variable.get())))

    def _known_value(self, value_id: int) -> Variable | None:
        """The variable that was listed for this client under that id."""
        return self.values[value_id - 1] if 1 <= value_id <= len(self.values) else None

    # --- reading and writing ---------------------------------------------------------------------------------------

    def _await_ack(self, code: Code) -> None:
        """Wait for one acknowledgement behind a list or a reset, where this kind of server does."""
        if self.profile.eats_awaited_acks:
            self.awaited = code

    def _string(self, data: bytes, offset: int) -> str:
        """The string at ``offset``; of a NERD server with a zero for each byte that is not ASCII."""
        raw = data[offset:].partition(b"\0")[0]
        return decode_text(raw.translate(_ASCII_ONLY) if self.profile.ascii_only else raw)

    def text(self, text: str) -> bytes:
        """``text`` as this kind of server writes it, with its zero; of a world's own half of a character is a ``?``."""
        raw = encode_text(text.encode("utf-8", "replace").decode())
        return (raw.translate(_ASCII_ONLY) if self.profile.ascii_only else raw.partition(b"\0")[0]) + b"\0"

    def send(self, data: bytes) -> None:
        """Send a datagram. One that is too long for this kind of server loses its end without a word.

        Vectors lose whole values, and the counts stay; strings lose the end byte too, but not their zero.
        """
        end, limit = self.profile.end, self.profile.datagram_limit
        if limit is not None and len(data) >= limit - 1:
            kind = messages.REPLIES[data[0]]
            if issubclass(kind, messages.Vectors):
                data = data[: limit - 1 - (limit - 1 - kind.HEAD.size) % 4]
            else:
                data, end = data[: limit - 2] + b"\0", b""
        self.machine.send(self.id, data + end)

    COMMANDS: ClassVar[dict[int, Callable[[Handler, bytes], None]]] = {
        Code.NEXT_SIMULATION_STEP: _step,
        Code.RESET_SIMULATION: _reset,
        Code.END_COMMUNICATION: _end,
        Code.RESET_COMMUNICATION: lambda handler, _: handler.machine.restart_communication(handler),
        Code.GET_AGENT_OVERVIEW: _overview,
        Code.GET_AGENT_INFO: _info,
        Code.REGISTER_FOR_AGENT: _register,
        Code.DEREGISTER_FROM_AGENT: _deregister,
        Code.REGISTER_FOR_EVENT: _register_event,
        Code.DEREGISTER_FROM_EVENT: _deregister_event,
        Code.GET_VALUE_IDS: _list_values,
        Code.GET_VALUE: lambda handler, data: handler.send_value(_int(data)),
        Code.SET_VALUE: _set_value,
        Code.REGISTER_FOR_VALUE: _observe,
        Code.DEREGISTER_FROM_VALUE: _observe_no_more,
    }
    """What a client may ask for. Anything else is ignored without a reply."""


def _int(data: bytes, offset: int = 1) -> int:
    """The integer at ``offset``; 0 where the datagram is too short, as a real server reads it."""
    return int(INT.unpack_from(data, offset)[0]) if len(data) >= offset + INT.size else 0
