"""What every session says, written once as exchanges; the drivers only move the datagrams and wait.

Local ids are valid only within one connection, so nothing of them leaves this package.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from socket import MSG_DONTWAIT
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias

from ospbridge.errors import (
    AgentTaken,
    ConfigurationError,
    LocalProtocolError,
    OspBridgeError,
    SessionEvicted,
    ValueNotFound,
)
from ospbridge.interface import (
    AgentEntry,
    AgentInterface,
    Match,
    StepOutcome,
    ValueEntry,
    ValueReading,
    several,
)
from ospbridge.osp import agents as roster
from ospbridge.osp import queries
from ospbridge.osp.client import ClientMachine, Exchange
from ospbridge.osp.clock_reading import audit, write_value
from ospbridge.osp.codes import DATAGRAM_END
from ospbridge.osp.disconnect import leave
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.lists import find_value, forget_ids, list_values
from ospbridge.osp.reset import reset
from ospbridge.osp.step import StepResult, continue_step, step
from ospbridge.osp.timing import SILENCE
from ospbridge.session import names
from ospbridge.session.channel import Goodbye
from ospbridge.session.connect import GOODBYES, machine_to_leave, restart
from ospbridge.session.lease import explained, forget_loss, note_loss
from ospbridge.task.variables import components_in
from ospbridge.toml.nearest import nearest
from ospbridge.transport.addresses import is_of_this_host
from ospbridge.transport.guardian import take_problem
from ospbridge.transport.spinning import Spinning
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import ArrayLike

    from ospbridge.interface import Endpoint
    from ospbridge.osp.notices import Notice
    from ospbridge.osp.profile import Profile
    from ospbridge.session.channel import Left
    from ospbridge.session.connect import Connection
    from ospbridge.session.lease import SessionLease
    from ospbridge.task.base import Task

__all__ = ["Session", "SessionCore"]

Wait: TypeAlias = "Callable[[FastPath, Spinning], bool]"
"""Sleeps until there is something of a fast path; False where nothing comes."""
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""
NEVER: Final = Spinning(0)
NO_VECTORS: Final = frozenset({"Int", "Integer", "Double", "NormalizedDouble", "Bool", "String", "FileName"})
"""Types whose contents need not be looked at."""
AROUND: Final = 0.2
"""Seconds of the time for leaving that are kept for what surrounds the goodbye."""


class SessionCore:
    """One connection's exchanges, bookkeeping and lease."""

    def __init__(
        self,
        server: Endpoint,
        handler: Endpoint,
        machine: ClientMachine,
        lease: SessionLease | None = None,
    ) -> None:
        self.server = server
        self.handler = handler
        self.machine = machine
        limits = machine.limits
        machine.limits = replace(limits, close=max(limits.close - AROUND, limits.close / 2))
        machine.pace.curable = machine.profile.loses_wakeups and is_of_this_host(server.host)
        self.agents: tuple[AgentEntry, ...] = ()
        self.requests: dict[str, StepRequest] = {}
        """Controlled agents by name, in the order of registration, with their prepared step requests."""
        self.asked: dict[str, int] = {}
        """Agents asked for without an answer yet: local id by name."""
        self.watched: dict[str, None] = {}
        """Names of the variables that each step's outcome carries."""
        self.lease = lease
        self.filled: tuple[StepRequest, ...] = ()
        """The requests, with the inputs that were taken over; another tuple where agents came or went."""
        self._leases = None if lease is None else lease.directory
        self._fast_path: FastPath | None = None
        self._renew_lease()

    # --- agents ----------------------------------------------------------------------------------------------------

    def overview(self) -> Exchange[tuple[AgentEntry, ...]]:
        """All agents of the simulator, free or not, as an overview tells them now. Raises QueryTimeout."""
        self._look_after_lease()
        self.agents = yield from roster.overview(self.machine)
        return self.agents

    def describe(self, name: str) -> Exchange[AgentInterface]:
        """Inputs, outputs and infos of an agent, in the order of a step's arrays. Raises AgentNotFound."""
        found = self._called(names.agent_name(name))
        if found is None:
            yield from self.overview()
            found = self._called(name)
        if found is None:
            raise names.unknown_agent(self.agents, name, server=self.server)
        told = yield from roster.agent_info(self.machine, found.id)
        return AgentInterface(found.id, found.name, told.inputs, told.outputs, told.infos, found.type)

    def _called(self, name: str) -> AgentEntry | None:
        """Of several agents of that name one that is free, where there is one."""
        called = [entry for entry in self.agents if entry.name == name]
        return next((entry for entry in called if entry.available), called[0] if called else None)

    def matching(
        self, patterns: str | Sequence[str], *, available: bool = True, meant: Sequence[Match] = ()
    ) -> Exchange[tuple[str, ...]]:
        """Names of the agents that fit shell globs; without globs of all that are free, or this session's.

        ``available=False``: also those that others control. ``meant``: of those that fit, what these mean. Raises
        AgentNotFound where nothing fits, AgentTaken where none is free.
        """
        patterns = several(patterns)
        agents = yield from self.overview()
        with explained(self.server, self._leases):
            return names.choose(
                agents, patterns, server=self.server, mine=self.requests, available=available, meant=meant
            )

    def register(self, wanted: Iterable[str]) -> Exchange[tuple[AgentInterface, ...]]:
        """Take control of agents; all or none of those that this call names."""
        taken: list[str] = []
        interfaces = []
        try:
            for name in wanted:
                if names.agent_name(name) in self.requests:
                    interfaces.append(self.requests[name].agent)
                    continue
                interface = yield from self.describe(name)
                yield from self._register(name, interface)
                taken.append(name)
                interfaces.append(interface)
        except OspBridgeError:
            for name in taken:
                yield from self.deregister(name)
            raise
        # Tells whether other clients control agents, so that steps are verified while they do.
        agents = yield from self.overview()
        m = self.machine
        left = (
            e.name for e in agents if e.available and e.id not in m.controlled and e.name in self.requests
        )
        for name, count in Counter(left).items():
            told = f"{count} more of {m.peer} {'is' if count == 1 else 'are'} called {name!r}"
            m.notices.remark(
                f"a session drives one agent of each name: {told}", about=f"agents called {name}"
            )
        return tuple(interfaces)

    def _register(self, name: str, interface: AgentInterface) -> Exchange[None]:
        # From the first request on the agent may be ours, whether or not the answer ever arrives.
        self.asked[name] = interface.id
        self._renew_lease()
        try:
            with explained(self.server, self._leases):
                yield from roster.register(self.machine, interface)
        except AgentTaken:
            del self.asked[name]
            self._renew_lease()
            raise
        del self.asked[name]
        forget_loss(self.server, name)
        self.requests[name] = StepRequest(interface, self.machine.profile)
        self.filled = tuple(self.requests.values())

    def deregister(self, name: str) -> Exchange[None]:
        """Give an agent back; nothing happens where it is not this session's."""
        request = self.requests.pop(name, None)
        if request is None:
            return
        self.filled = tuple(self.requests.values())
        yield from roster.deregister(self.machine, request.agent_id)
        self._renew_lease()

    def subscribe(self, tasks: Collection[Task]) -> Exchange[None]:
        """Ask for the events and variables that tasks want and that are not told yet.

        What they remark is this session's from now on. Raises ConfigurationError, ValueNotFound.
        """
        for task in tasks:
            task.remark = self.machine.notices.remark
        for event in dict.fromkeys(event for task in tasks for event in task.events):
            if not (yield from self.register_event(event)):
                wanting = ", ".join(repr(task.agent.name) for task in tasks if event in task.events)
                raise ConfigurationError(
                    f"{self.server} has no event {event!r}, which the task of agent {wanting} wants",
                    hint="events must be named exactly; see the simulator's own documents",
                )
        wanted = dict.fromkeys(name for task in tasks for name in task.values)
        yield from self.watch([name for name in wanted if name not in self.watched])

    # --- reset and step --------------------------------------------------------------------------------------------

    def reset(self, seed: SupportsIndex = 0) -> Exchange[bool]:
        """Reset the world (int32 seed, 0: don't care), which tells nothing of the agents: the next step does.

        Every client that controls an agent must ask for it. Returns True where the completion itself was seen, False
        where the simulator's clock tells that the reset ran. Raises LocalProtocolError for what is no seed, and where
        no agent is controlled; BarrierStuck, StepUncertain, SessionLost.
        """
        seed = names.seed_of(seed)
        self._look_after_lease()
        with explained(self.server, self._leases, waited=self.machine.limits.reset):
            return (yield from reset(self.machine, seed))

    def step(self, actions: Mapping[str, ArrayLike]) -> Exchange[dict[str, StepOutcome]]:
        """One step; ``actions`` has the inputs of every controlled agent. The result has every controlled agent."""
        self.fill(actions)
        return (yield from self.finish_step(None))

    def fill(self, actions: Mapping[str, ArrayLike]) -> None:
        """Take over the inputs of the next step. Raises LocalProtocolError for what cannot be sent."""
        requests = self.filled
        try:
            if len(actions) != len(requests) or not requests:
                raise self._wrong_agents(actions)
            for request in requests:
                request.fill(actions[request.name])
        except (KeyError, TypeError, IndexError):
            raise self._wrong_agents(actions) from None

    def fill_one(self, inputs: ArrayLike) -> None:
        """The same for a session that controls one agent only."""
        requests = self.filled
        if len(requests) != 1:
            raise LocalProtocolError(
                f"the session controls {len(requests)} agents, not one",
                hint="`step` takes the inputs of each by its name" if requests else "register first",
            )
        requests[0].fill(inputs)

    @property
    def path(self) -> FastPath:
        """The fast path of steps with the agents that are controlled now."""
        if self._fast_path is None or self._fast_path.requests is not self.filled:
            m = self.machine
            self._fast_path = FastPath(self.filled, pipelining=m.profile.pipelining)
        return self._fast_path

    def finish_step(self, path: FastPath | None) -> Exchange[dict[str, StepOutcome]]:
        """A step with the inputs that were taken over: from where ``path`` was left, or from its beginning."""
        m = self.machine
        with explained(self.server, self._leases, waited=m.limits.step):
            result = yield from (step(m, self.path) if path is None else continue_step(m, path))
        outcomes = self._outcomes(result)
        if self.watched:
            values = yield from self._watched(result.values)
            for outcome in outcomes.values():
                outcome.values = values
        return outcomes

    def _outcomes(self, result: StepResult) -> dict[str, StepOutcome]:
        """Of completions that were looked at one by one."""
        outcomes = {}
        # Of a client's completions the first one tells them, whichever agent that is of.
        happened = dict.fromkeys(e for reply in result.completions.values() for e in reply.events)
        events = tuple(self.machine.events.get(e, f"event {e}") for e in happened)
        for request in self.filled:
            reply = result.completions[request.agent_id]
            outcomes[request.name] = outcome = StepOutcome(reply.outputs.copy(), reply.infos.copy())
            if result.restored:
                outcome.restored = request.agent_id in result.restored
            if events:
                outcome.events = events
        return outcomes

    def _wrong_agents(self, actions: Mapping[str, ArrayLike]) -> LocalProtocolError:
        if not self.filled:
            return LocalProtocolError("a session that controls no agent cannot step", hint="register first")
        if not isinstance(actions, Mapping):
            raise LocalProtocolError(
                f"a step needs a mapping from the name of each controlled agent to its inputs, got {actions!r}",
                hint="for instance {'robot1': [0.0, 0.0]}; `BlockingSession.step_one` takes the inputs of the only one",
            )
        missing = sorted(set(self.requests) - set(actions))
        surplus = sorted(set(actions) - set(self.requests))
        return LocalProtocolError(
            f"a step needs the inputs of exactly the controlled agents: missing {missing}, not controlled {surplus}"
        )

    def audit(self) -> Exchange[str]:
        """Why the steps since the last reset cannot be trusted; empty where the simulator's clock agrees.

        Ask at the end of an episode, before the next reset.
        """
        return audit(self.machine)

    def audit_previous(self) -> Exchange[str]:
        """Why the steps of an episode that the next reset abandons cannot be trusted; empty where nothing is known."""
        return "" if self.machine.episode.request_outstanding else (yield from audit(self.machine))

    # --- events and variables --------------------------------------------------------------------------------------

    def register_event(self, name: str) -> Exchange[bool]:
        """Be told of an event with each step's outcome; False where the simulator has none of that exact name."""
        names.text_of(name, "the name of an event", "'/Arena/Bump'")
        # Who dies meanwhile may have registered, and a successor's END would do harm.
        self._renew_lease(events=True)
        event_id = yield from queries.register_event(self.machine, name)
        return event_id != 0

    def deregister_event(self, name: str) -> Exchange[None]:
        """Stop being told of an event."""
        for event_id, known in tuple(self.machine.events.items()):
            if known == name:
                yield from queries.deregister_event(self.machine, event_id)

    def values(self, expression: str = ".*") -> Exchange[tuple[ValueEntry, ...]]:
        """Variables whose name fits a regular expression, as this kind of server understands it.

        None where nothing fits, and where the expression is wrong: the protocol does not tell one from the other.
        Raises QueryTimeout, IncompleteListing.
        """
        names.text_of(expression, "a regular expression", "'/Simulation/.*'")
        return (yield from list_values(self.machine, expression))

    def get(self, name: str) -> Exchange[ValueReading]:
        """A variable with its content, as the simulator writes it. Raises ValueNotFound, QueryTimeout."""
        for _ in range(2):
            entry = yield from self._named(name)
            content = yield from queries.get_value(self.machine, entry.id)
            if content is not None:
                return ValueReading(entry.name, entry.type, content)
            forget_ids(self.machine)
        raise self._forgotten(name)

    def components(self, wanted: Iterable[str]) -> Exchange[dict[str, int]]:
        """How many components each variable has that is a vector; without those that are none, or are not there."""
        found: dict[str, int] = {}
        for name in wanted:
            entry = yield from find_value(self.machine, name)
            if entry is None or entry.type in NO_VECTORS:
                continue
            if count := components_in((yield from self.get(name)).value):
                found[name] = count
        return found

    def set(self, name: str, content: str) -> Exchange[None]:
        """Write a variable, in the form in which ``get`` reads it.

        Raises ValueNotFound; ValueRejected for what the simulator cannot parse, or does not let itself be told.
        """
        names.text_of(content, "the content of a value", "'0.25': values travel as text")
        yield from self._named(name)
        if not (yield from write_value(self.machine, name, content)):
            raise self._forgotten(name)

    def _named(self, name: str) -> Exchange[ValueEntry]:
        names.text_of(name, "the name of a value", "'/Simulation/Seed'; several are named one by one")
        m = self.machine
        entry = yield from find_value(m, name)
        if entry is None:
            raise ValueNotFound(
                f"{m.peer} has no value {name!r}", hint=nearest(name, m.values.entries, most=1)
            )
        return entry

    def _forgotten(self, name: str) -> ValueNotFound:
        return ValueNotFound(f"{self.machine.peer} does not know value {name!r} any more")

    def watch(self, wanted: Sequence[str]) -> Exchange[None]:
        """Carry these variables in each step's outcome: pushed where the server pushes, else polled."""
        ids: dict[str, int] = {}
        for name in wanted:
            ids[name] = (yield from self._named(name)).id
        if self.machine.profile.values_are_pushed and ids:
            yield from queries.observe(self.machine, {i: name for name, i in ids.items()})
        self.watched.update(dict.fromkeys(ids))

    def _watched(self, pushed: Mapping[int, str]) -> Exchange[dict[str, str]]:
        values = {}
        for name in self.watched:
            known = self.machine.values.entries.get(name)
            content = pushed.get(known.id) if known else None
            values[name] = (yield from self.get(name)).value if content is None else content
        return values

    def pop_notices(self) -> list[Notice]:
        """What happened since the last call that nobody asked for."""
        notices = list(self.machine.notices)
        self.machine.notices.clear()
        return notices

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave(self) -> Exchange[bool]:
        """Give everything back, as the profile allows; True where the simulator confirmed it. Takes 2 s at most."""
        return leave(self.machine, (*self.machine.controlled, *self.asked.values()))

    def revive(self) -> Exchange[bool]:
        """The goodbye of a machine that can still say it, where the session's own was given up because of a silence."""
        old, agents = self.machine, self._taken.values()
        self.machine, goodbye = machine_to_leave(
            old.profile, old.limits, agents, peer=old.peer, events=old.events_used
        )
        self.machine.succeed(old)
        return goodbye

    @property
    def evicted(self) -> bool:
        """Somebody has restarted the communication: nothing is ours any more."""
        return isinstance(self.machine.lost, SessionEvicted)

    def restart_communication(self) -> Exchange[bool]:
        """Disconnect every client of the simulator."""
        return restart(self.machine, self.server, self._leases, self.lease)

    @property
    def _taken(self) -> dict[str, int]:
        """What whoever dies now leaves taken."""
        return {name: request.agent_id for name, request in self.requests.items()} | self.asked

    def _renew_lease(self, *, events: bool = False) -> None:
        if self.lease is not None:
            self.lease.renew(self._taken, events=events)

    def _look_after_lease(self) -> None:
        """Now and then: a session of weeks outlives what is tidied up, or removed when its user logs out."""
        if self.lease is not None:
            self.lease.look_after(self._taken)


class Session:
    """What a session is, whichever driver moves its datagrams; over a socket that is connected to the handler."""

    def __init__(self, connection: Connection, *, spin: bool, clock: Callable[[], float]) -> None:
        self.clock: Final = clock
        """The time, without any way to it: a step asks several times."""
        self.channel = connection.channel
        self.machine = machine = self.channel.machine
        self.server: Endpoint = connection.server
        """The simulator's address, resolved."""
        self.core = SessionCore(self.server, connection.handler, machine, connection.lease)
        self.closed = False
        """Nothing can be asked any more; closing has no more to do."""
        self._connection = connection
        self._active_path: FastPath | None = None
        """That of the step that was begun, while no exchange has taken its place."""
        self._quiet_at = 0.0
        """When it is left, if nothing comes."""
        self._failed: Exception | None = None
        """Why nothing could be begun."""
        self._poll = select.poll()
        self._poll.register(self.channel.sock, select.POLLIN)
        self._spin(enabled=spin)
        if connection.remark:
            machine.notices.remark(connection.remark)
        # Requests of the dead outlive their sessions.
        machine.episode.barrier_unknown = bool(connection.freed)
        if problem := take_problem():
            machine.notices.remark(
                f"no guardian protects the agents of this process: {problem}; if it is killed, they may stay taken"
            )

    def _spin(self, *, enabled: bool) -> None:
        self._spinning = Spinning(SPINS, enabled=enabled)
        self._thinking = Spinning(SPINS, enabled=enabled)
        """The same for completions, which a simulator may take its time for while it acknowledges at once."""

    @property
    def profile(self) -> Profile:
        """The kind of server that was found."""
        return self.machine.profile

    @property
    def controlled(self) -> tuple[str, ...]:
        """Names of the agents this session controls."""
        return tuple(self.core.requests)

    @property
    def over(self) -> bool:
        """Nobody keeps an agent for this session."""
        return self.channel.gone or self.core.evicted

    # --- steps and exchanges ---------------------------------------------------------------------------------------

    def begin(self, exchange: Exchange[Any], now: float) -> None:
        """Start an exchange and send its first datagrams; ``result`` tells also what goes wrong here."""
        self._active_path = self._failed = None
        try:
            self.channel.begin(exchange, now)
        except Exception as error:  # noqa: BLE001  # told by ``result``
            self._failed = error

    def begin_step(self, now: float) -> FastPath | None:
        """The same for a step with the inputs that were taken over. Its fast path, where it took that."""
        self._failed = None
        try:
            # What is there before a request is sent cannot be its answer. Were it taken for that, as the answers are of
            # a step that a copy of the request ran, each step from then on would bring what the one before it did.
            if self._poll.poll(0):
                self.channel.drain(now)
        except Exception as error:  # noqa: BLE001  # told by ``result``
            self._active_path, self._failed = None, error
            return None
        path = self.core.path
        if self.channel.trace is not None or not self.machine.start(path, now):
            self._active_path = None
            self._begin_exchange(None, None, now)
            return None
        path.came = []
        self._active_path = path
        self._quiet_at = now + SILENCE
        try:
            send = self.channel.sock.send
            for datagram in path.first:
                send(datagram, MSG_DONTWAIT)
        except OSError as error:
            self.leave_fast_path(path, error)
            return None
        path.prepare()
        return path

    def turn(self, now: float, wait: Wait | None = None) -> bool:
        """Take in what there is, or that nothing came in time; True: it has ended.

        ``wait``: see ``run_fast_path``; it must be short beside a silence.
        """
        path = self._active_path
        if path is None:
            return self._failed is not None or self.channel.turn(now)
        came = len(path.came)
        if self.run_fast_path(path, wait):
            return True
        if len(path.came) > came:
            self._quiet_at = min(now + SILENCE, path.began + self.machine.limits.step)
        elif self._active_path is not None and now >= self._quiet_at:
            self.leave_fast_path(path, None)
        return self.ended

    @property
    def deadline(self) -> float:
        """When ``turn`` is to be called at the latest."""
        return self._quiet_at if self._active_path is not None else self.machine.deadline or 0.0

    @property
    def ended(self) -> bool:
        """Nothing is awaited; of a fast path only ``turn`` knows."""
        return self._failed is not None or (self._active_path is None and self.machine.finished)

    def result(self) -> Any:
        """What an exchange returned, or the outcomes of a step. Raises the error that it ended with."""
        if self._failed is not None:
            raise self._failed
        return self.machine.result() if self._active_path is None else self._active_path.outcomes()

    def run_fast_path(self, path: FastPath, wait: Wait | None) -> bool:
        """Take in what a fast path brings, and answer it; True: all of it has come.

        False where it was left, and where nothing is there and ``wait`` brings nothing. Without ``wait`` only what is
        there already is taken in.
        """
        receive, send = self.channel.sock.recv, self.channel.sock.send
        came = path.came
        # Beside a simulator that thinks for long, all that spinning could save of its acknowledgements is next to
        # nothing, and one that was woken on this very core waits for it.
        spinning = self._spinning if wait is not None and self._thinking.tries else NEVER
        try:
            for head, size, answer, completes in path.expected[len(came) :] if came else path.expected:
                if completes and wait is not None:
                    spinning = self._thinking
                tries = spinning.tries
                for _ in range(tries or 1):
                    try:
                        data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
                    except BlockingIOError:
                        continue
                    if tries < spinning.most:
                        spinning.paid()
                    break
                else:
                    if wait is None or not wait(path, spinning):
                        return False
                    data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
                if not data.startswith(head) or (
                    len(data) != size and (len(data) != size + 1 or data[-1] != DATAGRAM_END)
                ):
                    return self.leave_fast_path(path, data)
                came.append(data)
                if answer is not None:
                    send(answer, MSG_DONTWAIT)
        except OSError as error:
            return self.leave_fast_path(path, error)
        if self.core.watched:
            # An exchange asks for the variables, behind a step that has run.
            return self.leave_fast_path(path, None)
        if self.channel.tally is not None:
            self.channel.tally.fast_steps += path.count
        self.machine.ran(path)
        return True

    def leave_fast_path(self, path: FastPath, left: Left) -> bool:
        """False: the fast path ends here, and the exchange of the step deals with what ended it."""
        self.channel.count(path)
        self._active_path = None
        self._begin_exchange(path, left, self.clock())
        return False

    def _begin_exchange(self, path: FastPath | None, left: Left, now: float) -> None:
        try:
            self.channel.begin_behind(left, self.core.finish_step(path), now)
        except Exception as error:  # noqa: BLE001  # told by ``result``
            self._failed = error

    def pop_notices(self) -> list[Notice]:
        """What happened meanwhile: resets by others, late and repeated datagrams; and what to know of the simulator."""
        if not self.closed:
            self.channel.drain(self.clock())
        return self.core.pop_notices()

    # --- leaving ---------------------------------------------------------------------------------------------------

    def goodbye(self, exchange: Exchange[bool] | None = None, *, revived: bool = False) -> Goodbye:
        """To be said now; ``left`` must follow. ``revived``: by another machine, since this one is in use."""
        if exchange is None and self.machine.lost is None and not revived:
            exchange = self.core.leave()
        elif exchange is None and not self.over:
            # It may be there again, and would keep the agents.
            exchange = self.core.revive()
            self.machine = self.channel.machine = self.core.machine
        return Goodbye(self.channel, exchange)

    def left(self, *, confirmed: bool) -> None:
        """The ``goodbye`` ended so: nothing more is to be said, to its handler or another."""
        over, evicted, lease = self.over, self.core.evicted, self._connection.lease
        if not over:
            GOODBYES.note(self.server)
        try:
            if confirmed or over:
                lease.end(refused=not (confirmed or evicted))
            if not (confirmed or evicted):
                note_loss(self.server, self.controlled, "was given up")
        finally:
            self._drop()

    def _drop(self) -> None:
        self.closed = True
        self._connection.drop()
