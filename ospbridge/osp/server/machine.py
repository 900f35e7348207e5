"""The server role of OSP 1.1 without I/O: the main port, the barrier, and what makes them move.

Datagrams go in with ``receive_main`` and ``receive``, time with every call, and what the driver has to do comes out of
``take_effects``. No sockets, clocks, randomness or logs in here. One client's side is in ``handler``.

A step or reset that is due does not run inside ``receive`` but in the next ``handle_timer``: the acknowledgement of the
last request can then leave before a world thinks, and requests that were already queued are still counted, as by a
real server (two requests sent back to back are answered 81 81 85, not 81 85). ``due`` says that ``handle_timer``
should be called as soon as nothing more is there to read.

Facts: OSP 1.1, sections 2 and 4; where the profile says so, as observed on a NERD server.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ospbridge.errors import WorldFailed
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.profile import InitForm, SeedBy
from ospbridge.osp.server.agent import AgentControl
from ospbridge.osp.server.handler import Handler, Vote
from ospbridge.osp.server.repository import Clock, Repository
from ospbridge.osp.wire import INT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World

__all__ = [
    "CONTROL_EVENTS",
    "PROBING",
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


class ServerMachine:
    """One server: a world behind a main port, with a handler for each INIT.

    ``stall``: asked once per completion phase; True delays it by 50 ms, as a real server now and then does.
    ``ledger``: called with a record of every step and reset that really ran (see ``ospbridge.simulator.ledger``).
    ``max_handlers``: how many clients may be connected; an INIT beyond it closes an idle handler, or is not answered.
    ``problems`` counts datagrams that were ignored, by kind.
    """

    def __init__(
        self,
        world: World,
        profile: Profile,
        *,
        stall: Callable[[], bool] | None = None,
        ledger: Callable[[dict[str, Any]], None] | None = None,
        max_handlers: int = 64,
    ) -> None:
        self.world = world
        self.profile = profile
        self.stall = stall
        self.clock = Clock(world.time_step)
        self.repository = Repository(world, self.clock, profile)
        self.event_names = frozenset((*CONTROL_EVENTS, *world.events))
        self.controls = [AgentControl(agent, index + 1, profile) for index, agent in enumerate(world.agents)]
        self.controlled = 0
        """How many agents are controlled by any client: what the barrier waits for."""
        self.step_votes: list[Vote] = []
        self.reset_votes: list[tuple[Handler, int]] = []
        """Who asked, and for which seed."""
        self.timed: set[Handler] = set()
        """Handlers that wait for a point in time."""
        self.listening = 0
        """How many event registrations there are; none, and events cost nothing."""
        self.due = False
        """Whether a step or reset is complete and runs in the next ``handle_timer``."""
        self.steps = 0
        """Steps that ran since the server began."""
        self.resets = 0
        self.problems: Counter[str] = Counter()
        self._ledger = ledger
        self._max_handlers = max_handlers
        self._handlers: dict[int, Handler] = {}
        self._last_handler_id = 0
        self._effects: list[Effect] = []
        self._was_reset = False

    # --- what the driver calls -------------------------------------------------------------------------------------

    @property
    def handlers(self) -> int:
        """How many clients are connected."""
        return len(self._handlers)

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
            handler = Handler(self, self._last_handler_id, peer)
            self._handlers[handler.id] = handler
            self._effects.append(OpenHandler(handler.id, peer))
            handler.greet(now)

    def receive(self, handler_id: int, data: bytes, now: float) -> None:
        """A datagram came to a handler's socket, from its peer. Never raises for what is in it."""
        self.clock.now = now
        handler = self._handlers.get(handler_id)
        if handler is not None:
            handler.receive(data, now)

    def next_deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called; None if only datagrams matter."""
        if self.due:
            return self.clock.now
        if not self.timed:
            return None
        return min(handler.deadline for handler in self.timed)

    def handle_timer(self, now: float) -> None:
        """Run what is due: a reset, a step, delayed answers."""
        self.clock.now = now
        if self.due:
            self.due = False
            if self.controlled and len(self.reset_votes) >= self.controlled:
                self._run_reset(now)
            if self.controlled and len(self.step_votes) >= self.controlled:
                self._run_step(now)
        if self.timed:
            for handler in sorted(self.timed, key=_by_id):
                if handler.deadline <= now:
                    handler.handle_timer(now)

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in this order."""
        effects = self._effects
        self._effects = []
        return effects

    def _make_room(self, now: float) -> bool:
        """Close the handler that was silent for longest, if it controls nothing and was silent for a minute.

        Clients that leave without END, as some have to, leave their handlers behind; a real server keeps them all.
        """
        idle = [handler for handler in self._handlers.values() if not handler.controlled]
        silent = min(idle, key=_last_heard, default=None)
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

    def settle(self) -> None:
        """See whether the barrier is complete; called after all that changes votes or agents."""
        needed = self.controlled
        if needed and (len(self.step_votes) >= needed or len(self.reset_votes) >= needed):
            self.due = True

    def vote_reset(self, handler: Handler, seed: int) -> None:
        """Count a reset request."""
        if not handler.controlled and not self.profile.observers_may_reset:
            return
        self.reset_votes.append((handler, seed))
        self.settle()

    def withdraw(self, handler: Handler, control: AgentControl) -> None:
        """An agent is controlled no more. Whether its requests lapse is a matter of the profile."""
        self.controlled -= 1
        if not self.profile.votes_survive_leaving:
            self.step_votes = [vote for vote in self.step_votes if vote[1] is not control]
            of_handler = [vote for vote in self.reset_votes if vote[0] is handler]
            for vote in of_handler[len(handler.controlled) :]:
                self.reset_votes.remove(vote)
        if not self.controlled:
            self.step_votes.clear()

    def close(self, handler: Handler) -> None:
        """Forget a handler; its agents were released before."""
        self.timed.discard(handler)
        self._handlers.pop(handler.id, None)
        self._effects.append(CloseHandler(handler.id))

    def restart_communication(self, requester: Handler) -> None:
        """End all connections (OSP 1.1, section 4.2); the requester is told first.

        A client whose handler waits for an acknowledgement is not told, as observed on a NERD server.
        """
        others = [handler for handler in self._handlers.values() if handler is not requester]
        for handler in (requester, *others):
            handler.evict(told=handler is requester or not handler.waits_for_ack)
        self.step_votes.clear()
        self.reset_votes.clear()
        self.due = False

    def occur(self, event: str) -> None:
        """An event happened: every handler that listens keeps it for its next completion."""
        for handler in self._handlers.values():
            handler.note_event(event)

    # --- the barrier -----------------------------------------------------------------------------------------------

    def _version(self, data: bytes) -> tuple[int, int] | None:
        if self.profile.init_form is InitForm.BYTES:
            return (data[1], data[2]) if len(data) >= 3 else None
        return (INT.unpack_from(data, 1)[0], INT.unpack_from(data, 5)[0]) if len(data) >= 9 else None

    def _seed(self, votes: Sequence[tuple[Handler, int]] = ()) -> int:
        """The seed of a reset; 0 for "don't care". Of votes the last that is not 0 wins (OSP 1.1, section 4.6)."""
        voted = next((seed for _, seed in reversed(votes) if seed), 0)
        if self.profile.seed_by is SeedBy.RESET and voted:
            return voted
        return 0 if self.clock.randomize_seed else self.clock.seed

    def _restart_world(self, seed: int) -> None:
        for control in self.controls:
            control.agent.inputs[:] = control.agent.neutral
        self.world.reset(seed)
        self.clock.restart()
        self._was_reset = True

    def _run_reset(self, now: float) -> None:
        votes, self.reset_votes = self.reset_votes, []
        seed = self._seed(votes)
        if not self.profile.votes_survive_reset:
            self.step_votes.clear()
        if self.listening:
            self.occur(RESET)
        self._restart_world(seed)
        self.resets += 1
        self._tell_world_events()
        if self.listening:
            self.occur(RESET_FINALIZED)
        if self._ledger is not None:
            self._ledger(self._record("reset", self.resets, votes) | {"seed": seed})
        for handler in list(self._handlers.values()):
            handler.reset_completed(now)

    def _run_step(self, now: float) -> None:
        votes, self.step_votes = self.step_votes, []
        if not self._was_reset:
            self._restart_unasked()
        if self.listening:
            self.occur(NEXT_STEP)
        for _ in range(self.clock.iterations):
            self.world.step()
        self.clock.steps += 1
        self.steps += 1
        self._tell_world_events()
        if self.listening:
            self.occur(STEP_COMPLETED)
        if self._ledger is not None:
            self._ledger(self._record("step", self.steps, votes))
        for handler in list(self._handlers.values()):
            if handler.controlled:
                handler.step_completed(now)

    def _restart_unasked(self) -> None:
        """The first step ever, with no reset before it. A NERD server loses its inputs."""
        kept = [control.agent.inputs.copy() for control in self.controls]
        self._restart_world(self._seed())
        if not self.profile.steps_before_reset:
            for control, inputs in zip(self.controls, kept, strict=True):
                control.agent.inputs[:] = inputs

    def _tell_world_events(self) -> None:
        for event in self.world.take_events():
            if event not in self.event_names:
                declared = ", ".join(self.world.events) or "none"
                raise WorldFailed(
                    f"the world told of the event {event!r}; those it said it has: {declared}",
                    hint="name in the world's `events` all that its `take_events` may tell",
                )
            if self.listening:
                self.occur(event)

    def _record(self, kind: str, number: int, votes: Sequence[tuple[Handler, object]]) -> dict[str, Any]:
        agents: dict[str, Any] = {}
        for control in self.controls:
            agents[control.agent.name] = {
                "inputs": [float(value) for value in control.agent.inputs],
                "client": None if control.handler is None else control.handler.client,
                "votes": [handler.client for handler, voted in votes if voted is control],
            }
        return {
            "kind": kind,
            "n": number,
            "time": self.clock.time,
            "agents": agents,
            "clients": [handler.client for handler, _ in votes],
        }


def _by_id(handler: Handler) -> int:
    return handler.id


def _last_heard(handler: Handler) -> float:
    return handler.last_heard
