"""The server role of OSP 1.1 without I/O: the main port, the barrier, and what runs when it is complete.

Datagrams go in with ``receive_main`` and ``receive``, time with every call, and what the driver has to do comes out of
``take_effects``. No sockets, clocks, randomness or logs in here. One client's side is in ``server_handler``, what a
client may ask for in ``server_commands``.

A step or reset does not run inside ``receive`` but in a later ``handle_timer``: the acknowledgement of the last request
can then leave before a world thinks, what was already queued is still answered and counted, as by a real server (two
requests sent back to back are answered 81 81 85, not 81 85), and whoever asks for the clock meanwhile is told the old
one. ``due`` says that ``handle_timer`` should be called as soon as nothing more is there to read.

Facts: OSP 1.1, sections 2 and 4; where the profile says so, as observed on a NERD server.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ospbridge.errors import WorldFailed
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.messages import NextSimulationStep, NextSimulationStepAck, StepCompleted
from ospbridge.osp.profile import InitForm, SeedBy
from ospbridge.osp.repository import Clock, Repository
from ospbridge.osp.server_handler import Handler
from ospbridge.osp.wire import INT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World, WorldAgent

__all__ = [
    "CONTROL_EVENTS",
    "PROBING",
    "AgentControl",
    "CloseHandler",
    "Effect",
    "OpenHandler",
    "Send",
    "ServerMachine",
]

NEXT_STEP: Final = "/Control/NextStep"
STEP_COMPLETED: Final = "/Control/StepCompleted"
RESET: Final = "/Control/ResetSimulation"
RESET_FINALIZED: Final = "/Control/ResetSimulationFinalized"
CONTROL_EVENTS: Final = (NEXT_STEP, STEP_COMPLETED, RESET, RESET_FINALIZED)
"""Events of the server itself, named as on a NERD server."""
NO_INIT: Final = "no INIT on the main port"
OTHER_INIT: Final = "INIT of another form or version"
PROBING: Final = frozenset({NO_INIT, OTHER_INIT})
"""Problems that are the ordinary traces of a client that finds out what kind of server this is."""
INPUTS_BEGIN: Final = NextSimulationStep.HEAD.size
SILENT: Final = 60.0
"""Seconds of silence after which a handler without agents may be closed to make room for a new client."""


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


class Faults(NamedTuple):
    """What a real server's threads lose now and then; each is asked once for each occasion."""

    stall: Callable[[], bool] | None = None
    """Whether a handler sleeps on although its completion is ready."""
    late: Callable[[], bool] | None = None
    """Whether the barrier is looked at late although a request completed it."""
    lose_reset: Callable[[], bool] | None = None
    """Whether a reset directly behind another is acknowledged, and never runs."""


class AgentControl:
    """An agent of the world with who controls it, and its constant pieces of datagrams."""

    __slots__ = ("ack", "agent", "handler", "head", "id", "inputs", "request_size")

    def __init__(self, agent: WorldAgent, agent_id: int, profile: Profile) -> None:
        self.agent = agent
        self.id = agent_id
        self.handler: Handler | None = None
        self.inputs = len(agent.inputs)
        self.request_size = NextSimulationStep.length(self.inputs)
        self.ack = NextSimulationStepAck.pack(agent_id) + profile.end
        self.head = self.header(0, 0)

    def header(self, events: int, observed: int) -> bytes:
        """How a completion begins, up to the outputs."""
        return StepCompleted.pack(self.id, len(self.agent.outputs), len(self.agent.infos), events, observed)

    def take_inputs(self, data: bytes, count: int) -> bool:
        """Write a request's inputs, clamped to their range; NaN passes. False if their number is wrong.

        Fewer inputs than the agent has: the others keep their value. Announced but missing floats are read as 0,
        surplus ones are ignored (observed on a NERD server).
        """
        agent, offset = self.agent, INPUTS_BEGIN
        whole = count == self.inputs and len(data) >= self.request_size
        if whole and count:
            np.maximum(np.frombuffer(data, "<f4", count, offset), agent.low, out=agent.inputs)
            np.minimum(agent.inputs, agent.high, out=agent.inputs)
        elif not whole:
            used = min(max(count, 0), self.inputs)
            received = min(max(0, (len(data) - offset) // 4), used)
            given = np.zeros(used, "<f4")
            if received:
                given[:received] = np.frombuffer(data, "<f4", received, offset)
            np.clip(given, agent.low[:used], agent.high[:used], out=agent.inputs[:used])
        return whole


class Simulation:
    """The world with its clock, its repository and the events that it may tell."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world = world
        self.clock = Clock(world.time_step)
        self.repository = Repository(world, self.clock, profile)
        self.event_names = frozenset((*CONTROL_EVENTS, *world.events))
        self.steps = 0
        """Steps that ran since the server began."""
        self.resets = 0
        self._profile = profile
        self._restarted = False

    @property
    def fresh(self) -> bool:
        """Whether no step followed the last reset."""
        return self.resets > 0 and self.clock.steps == 0

    def seed(self, requested: Sequence[int] = ()) -> int:
        """The seed of a reset; 0 for "don't care". Of several the last that is not 0 wins (OSP 1.1, section 4.6)."""
        seed = next((seed for seed in reversed(requested) if seed), 0)
        if self._profile.seed_by is SeedBy.RESET and seed:
            return seed
        return 0 if self.clock.randomize_seed else self.clock.seed

    def reset(self, seed: int) -> list[str]:
        """Reset the world; returns the events that occurred, in order."""
        self._restart(seed)
        self.resets += 1
        return [RESET, *self._world_events(), RESET_FINALIZED]

    def step(self) -> list[str]:
        """Run a step with the agents' inputs; returns the events that occurred, in order."""
        if not self._restarted:
            self._restart_unasked()
        for _ in range(self.clock.iterations):
            self.world.step()
        self.clock.steps += 1
        self.steps += 1
        return [NEXT_STEP, *self._world_events(), STEP_COMPLETED]

    def _restart(self, seed: int) -> None:
        for agent in self.world.agents:
            agent.inputs[:] = agent.neutral
        self.world.reset(seed)
        self.clock.restart()
        self._restarted = True

    def _restart_unasked(self) -> None:
        """The first step ever, with no reset before it. A NERD server loses its inputs."""
        kept = [agent.inputs.copy() for agent in self.world.agents]
        self._restart(self.seed())
        if not self._profile.steps_before_reset:
            for agent, inputs in zip(self.world.agents, kept, strict=True):
                agent.inputs[:] = inputs

    def _world_events(self) -> list[str]:
        events = self.world.take_events()
        for event in events:
            if event not in self.event_names:
                declared = ", ".join(self.world.events) or "none"
                raise WorldFailed(
                    f"the world told of the event {event!r}; those it said it has: {declared}",
                    hint="name in the world's `events` all that its `take_events` may tell",
                )
        return events


class ServerMachine:
    """One server: a world behind a main port, with a handler for each INIT.

    ``stall``, ``late``, ``lose_reset``: see ``Faults``. ``ledger``: called with a record of every step and reset that
    really ran (see ``ospbridge.simulator.ledger``). ``max_handlers``: how many clients may be connected; an INIT beyond
    it closes an idle handler, or is not answered. ``problems`` counts datagrams that were ignored, by kind.
    """

    def __init__(
        self,
        world: World,
        profile: Profile,
        *,
        stall: Callable[[], bool] | None = None,
        late: Callable[[], bool] | None = None,
        lose_reset: Callable[[], bool] | None = None,
        ledger: Callable[[dict[str, Any]], None] | None = None,
        max_handlers: int = 64,
    ) -> None:
        self.profile = profile
        self.simulation = Simulation(world, profile)
        self.clock = self.simulation.clock
        """Simulated time, and the time of the driver's last call."""
        self.faults = Faults(stall, late, lose_reset)
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
        self.problems: Counter[str] = Counter()
        self._ledger = ledger
        self._max_handlers = max_handlers
        self._handlers: dict[int, Handler] = {}
        self._last_handler_id = 0
        self._effects: list[Effect] = []

    @property
    def handlers(self) -> int:
        """How many clients are connected."""
        return len(self._handlers)

    @property
    def world(self) -> World:
        """What is hosted."""
        return self.simulation.world

    @property
    def repository(self) -> Repository:
        """The variables."""
        return self.simulation.repository

    @property
    def steps(self) -> int:
        """Steps that ran since the server began."""
        return self.simulation.steps

    @property
    def resets(self) -> int:
        """Resets that ran since the server began."""
        return self.simulation.resets

    # --- what the driver calls -------------------------------------------------------------------------------------

    def receive_main(self, data: bytes, peer: Hashable, now: float) -> None:
        """A datagram came to the main port. Whatever is not an INIT of this server's form is ignored."""
        self.clock.now = now
        if not data or data[0] != Code.INIT_COMMUNICATION:
            self.problem(NO_INIT)
        elif self._version(data) != (PROTOCOL_MAJOR, PROTOCOL_MINOR):
            self.problem(OTHER_INIT)
        elif len(self._handlers) >= self._max_handlers and not self._make_room(now):
            self.problem("INIT beyond the limit of handlers")
        else:
            self._last_handler_id += 1
            handler = self._handlers[self._last_handler_id] = Handler(self, self._last_handler_id, peer)
            self._effects.append(OpenHandler(handler.id, peer))
            handler.greet(now)

    def receive(self, handler_id: int, data: bytes, now: float) -> None:
        """A datagram came to a handler's socket, from its peer. Never raises for what is in it."""
        self.clock.now = now
        handler = self._handlers.get(handler_id)
        if handler is not None:
            handler.receive(data, now)

    @property
    def due(self) -> bool:
        """Whether ``handle_timer`` should be called as soon as nothing more is there to read."""
        return self.due_at is not None and self.due_at <= self.clock.now

    def next_deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called; None if only datagrams matter."""
        first = self.due_at
        for handler in self._handlers.values():
            deadline = handler.deadline
            if deadline is not None and (first is None or deadline < first):
                first = deadline
        return first

    def handle_timer(self, now: float) -> None:
        """Run what is due: a reset, a step, delayed answers."""
        self.clock.now = now
        if self.due:
            self.due_at = None
            if self._complete(self.reset_requests):
                self._run_reset(now)
            if self._complete(self.step_requests):
                self._run_step(now)
        for handler in list(self._handlers.values()):
            if handler.deadline is not None and handler.deadline <= now:
                handler.handle_timer()

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in this order."""
        effects, self._effects = self._effects, []
        return effects

    def _version(self, data: bytes) -> tuple[int, int] | None:
        if self.profile.init_form is InitForm.BYTES:
            return (data[1], data[2]) if len(data) >= 3 else None
        return (INT.unpack_from(data, 1)[0], INT.unpack_from(data, 5)[0]) if len(data) >= 9 else None

    def _make_room(self, now: float) -> bool:
        """Close the handler that was silent for longest, if it controls nothing and was silent for a minute.

        Clients that leave without END, as some have to, leave their handlers behind; a real server keeps them all.
        """
        idle = (handler for handler in self._handlers.values() if not handler.controlled)
        silent = min(idle, key=lambda handler: handler.last_heard, default=None)
        if silent is None or now - silent.last_heard < SILENT:
            return False
        silent.evict(told=True)
        return True

    # --- what handlers call ----------------------------------------------------------------------------------------

    def send(self, handler_id: int, data: bytes) -> None:
        """Queue a datagram."""
        self._effects.append(Send(handler_id, data))

    def problem(self, kind: str) -> None:
        """Count a datagram that was not understood."""
        self.problems[kind] += 1

    def request_step(self, handler: Handler, control: AgentControl) -> None:
        """Count a step request."""
        self.step_requests.append((handler, control))
        self._wake()

    def request_reset(self, handler: Handler, seed: int) -> None:
        """Count a reset request."""
        if handler.controlled or self.profile.requests_outlive_sessions:
            self.reset_requests.append((handler, seed))
            self._wake()

    def _wake(self) -> None:
        late = self.faults.late
        self.settle(self.profile.barrier_poll if late is not None and late() else 0.0)

    def settle(self, delay: float | None = None) -> None:
        """See whether the barrier is complete; called after all that changes requests or agents.

        ``delay``: after how many seconds what is complete runs; by default the time at which a server looks by itself.
        """
        needed = self.controlled
        if not needed or max(len(self.step_requests), len(self.reset_requests)) < needed:
            self.due_at = None
            return
        due_at = self.clock.now + (self.profile.barrier_poll if delay is None else delay)
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)

    def _complete(self, requests: Collection[object]) -> bool:
        return 0 < self.controlled <= len(requests)

    def release(self, handler: Handler, control: AgentControl) -> None:
        """An agent is controlled no more. Whether its requests lapse is a matter of the profile."""
        self.controlled -= 1
        if not self.profile.requests_outlive_sessions:
            self.step_requests = [request for request in self.step_requests if request[1] is not control]
            own = [request for request in self.reset_requests if request[0] is handler]
            for request in own[len(handler.controlled) :]:
                self.reset_requests.remove(request)

    def close(self, handler: Handler) -> None:
        """Forget a handler; its agents were released before."""
        del self._handlers[handler.id]
        self._effects.append(CloseHandler(handler.id))

    def restart_communication(self, requester: Handler) -> None:
        """End all connections (OSP 1.1, section 4.2); the requester is told first.

        A client whose handler waits for an acknowledgement is not told, as observed on a NERD server.
        """
        others = [handler for handler in self._handlers.values() if handler is not requester]
        for handler in (requester, *others):
            handler.evict(told=handler is requester or not handler.waits_for_ack)
        self.step_requests.clear()
        self.reset_requests.clear()
        self.due_at = None

    # --- running ---------------------------------------------------------------------------------------------------

    def _run_reset(self, now: float) -> None:
        requests = list(self.reset_requests)
        self.reset_requests.clear()
        lose = self.faults.lose_reset
        if lose is not None and self.simulation.fresh and lose():
            return
        if not self.profile.requests_outlive_sessions:
            self.step_requests.clear()
        seed = self.simulation.seed([seed for _, seed in requests])
        self._tell_events(self.simulation.reset(seed))
        if self._ledger is not None:
            self._ledger(self._record("reset", self.resets, requests) | {"seed": seed})
        for handler in list(self._handlers.values()):
            handler.tell(self.profile.reset_completed, now)

    def _run_step(self, now: float) -> None:
        requests, self.step_requests = self.step_requests, []
        self._tell_events(self.simulation.step())
        if self._ledger is not None:
            self._ledger(self._record("step", self.steps, requests))
        for handler in list(self._handlers.values()):
            if handler.controlled:
                handler.tell(Code.NEXT_SIMULATION_STEP_COMPLETED, now)

    def _tell_events(self, events: Sequence[str]) -> None:
        """Every handler that listens keeps what occurred for its next completion."""
        for handler in self._handlers.values():
            handler.events.occur(events)

    def _record(self, kind: str, number: int, requests: Sequence[tuple[Handler, object]]) -> dict[str, Any]:
        agents: dict[str, Any] = {}
        for control in self.controls:
            agents[control.agent.name] = {
                "inputs": [float(value) for value in control.agent.inputs],
                "client": None if control.handler is None else control.handler.client,
                "votes": [handler.client for handler, asked in requests if asked is control],
            }
        return {
            "kind": kind,
            "n": number,
            "time": self.clock.time,
            "agents": agents,
            "clients": [handler.client for handler, _ in requests],
        }
