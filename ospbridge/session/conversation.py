"""What every session says, written once as exchanges; the drivers only move the datagrams.

Names instead of local ids, events and values by name, the outcome of a step as arrays the caller may keep. Local ids
are valid only within one connection, so nothing of them leaves this room.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final, SupportsIndex

from ospbridge.errors import (
    AgentTaken,
    BarrierStuck,
    LocalProtocolError,
    OspBridgeError,
    SessionClosed,
    SessionEvicted,
)
from ospbridge.interface import (
    AgentEntry,
    AgentInterface,
    Endpoint,
    Match,
    StepOutcome,
    ValueEntry,
    ValueReading,
    several,
)
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.leaving import leave
from ospbridge.osp.client.listing import list_values
from ospbridge.osp.client.machine import ClientMachine, Exchange
from ospbridge.osp.messages import StepCompletedAck
from ospbridge.osp.step import barrier
from ospbridge.osp.step.votes import Vote
from ospbridge.session import variables
from ospbridge.session.arguments import agent_name, need_mapping, seed_of, text_of
from ospbridge.session.lease import any_stale, forget_all
from ospbridge.session.lost_agents import explained, forget, locked_by_the_dead, stuck
from ospbridge.session.matching import choose, left_out, unknown
from ospbridge.session.tenure import Tenure
from ospbridge.transport.addresses import is_of_this_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike

    from ospbridge.osp.client.notices import Notice
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.timing import Limits

__all__ = ["Conversation"]

AROUND: Final = 0.2
"""Seconds of the time for leaving that are kept for what surrounds the goodbye."""


class Conversation:
    """One connection's exchanges, bookkeeping and lease."""

    def __init__(
        self,
        server: Endpoint,
        handler: Endpoint,
        profile: Profile,
        *,
        limits: Limits,
        answered_after: float = 0.0,
        leases: Path | None = None,
        tenure: Tenure | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.server = server
        self.handler = handler
        limits = replace(limits, close=max(limits.close - AROUND, limits.close / 2))
        self._jitter = jitter
        self.machine = ClientMachine(profile, limits=limits, jitter=jitter, peer=str(server))
        self.machine.patience = self.machine.round_trips.greeted(answered_after)
        self.machine.stalls.curable = profile.loses_wakeups and is_of_this_host(server.host)
        self.agents: tuple[AgentEntry, ...] = ()
        self.votes: dict[str, Vote] = {}
        """Controlled agents by name, in the order of registration, with their prepared requests."""
        self.asked: dict[str, int] = {}
        """Agents asked for without an answer yet: local id by name."""
        self.watched: dict[str, None] = {}
        """Names of the variables that each step's outcome carries."""
        self._votes: tuple[Vote, ...] = ()
        self._leases = leases
        self._tenure = tenure
        self._renew_lease()

    # --- agents ----------------------------------------------------------------------------------------------------

    def overview(self) -> Exchange[tuple[AgentEntry, ...]]:
        """All agents, free or not."""
        self._look_after_lease()
        self.agents = yield from roster.overview(self.machine)
        return self.agents

    def describe(self, name: str) -> Exchange[AgentInterface]:
        """The interface of the agent called ``name``."""
        entry = yield from self._entry(name)
        interface = yield from roster.agent_info(self.machine, entry.id)
        return AgentInterface(
            entry.id, entry.name, interface.inputs, interface.outputs, interface.infos, entry.type
        )

    def _entry(self, name: str) -> Exchange[AgentEntry]:
        agent_name(name)
        if not self.agents:
            yield from self.overview()
        found = self._called(name)
        if found is None:
            yield from self.overview()
            found = self._called(name)
        if found is None:
            raise unknown(self.agents, name, server=self.server)
        return found

    def _called(self, name: str) -> AgentEntry | None:
        """Of several agents of that name one that is free, where there is one."""
        called = [entry for entry in self.agents if entry.name == name]
        return next((entry for entry in called if entry.available), called[0] if called else None)

    def matching(
        self, patterns: str | Sequence[str], *, available: bool = True, meant: Sequence[Match] = ()
    ) -> Exchange[tuple[str, ...]]:
        """As ``matching.choose`` says, with a new overview."""
        patterns = several(patterns)
        agents = yield from self.overview()
        with explained(self.server, self._leases):
            return choose(
                agents, patterns, server=self.server, mine=self.votes, available=available, meant=meant
            )

    def register(self, names: Iterable[str]) -> Exchange[tuple[AgentInterface, ...]]:
        """Take control of agents; all or none of those that this call names."""
        taken: list[str] = []
        interfaces = []
        yield from barrier.conclude(self.machine)
        try:
            for name in names:
                if agent_name(name) in self.votes:
                    interfaces.append(self.votes[name].agent)
                    continue
                interface = yield from self.describe(name)
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
                taken.append(name)
                forget(self.server, name)
                self.votes[name] = Vote(interface, self.machine.profile)
                self._votes = tuple(self.votes.values())
                interfaces.append(interface)
        except OspBridgeError:
            for name in taken:
                yield from self.deregister(name)
            raise
        # Tells whether other clients control agents, so that steps are verified while they do.
        agents = yield from self.overview()
        m = self.machine
        for name, count in left_out(agents, m.controlled, self.votes).items():
            told = f"{count} more of {m.peer} {'is' if count == 1 else 'are'} called {name!r}"
            m.notices.remark(
                f"a session drives one agent of each name: {told}", about=f"agents called {name}"
            )
        return tuple(interfaces)

    def deregister(self, name: str) -> Exchange[None]:
        """Give an agent back."""
        vote = self.votes.pop(name, None)
        if vote is None:
            return
        self._votes = tuple(self.votes.values())
        yield from roster.deregister(self.machine, vote.agent_id)
        self._renew_lease()

    # --- reset and step --------------------------------------------------------------------------------------------

    def reset(self, seed: SupportsIndex = 0) -> Exchange[bool]:
        """Reset the world; True where the completion itself was seen."""
        seed = seed_of(seed)
        self._look_after_lease()
        try:
            seen = yield from barrier.reset(self.machine, seed)
        except BarrierStuck as error:
            raise stuck(error, self.server, self._leases, waited=self.machine.limits.reset) from None
        return seen

    def step(self, actions: Mapping[str, ArrayLike]) -> Exchange[dict[str, StepOutcome]]:
        """One step; ``actions`` has the inputs of every controlled agent. The result has every controlled agent."""
        self.fill(actions)
        return (yield from self.go_on(None))

    def fill(self, actions: Mapping[str, ArrayLike]) -> tuple[Vote, ...]:
        """Take over the inputs of the next step. Raises LocalProtocolError for what cannot be sent."""
        votes = self._votes
        try:
            if len(actions) != len(votes) or not votes:
                raise self._wrong_agents(actions)
            for vote in votes:
                vote.fill(actions[vote.name])
        except (KeyError, TypeError, IndexError):
            raise self._wrong_agents(actions) from None
        return votes

    def fill_one(self, inputs: ArrayLike) -> tuple[Vote, ...]:
        """The same for a session that controls one agent only."""
        votes = self._votes
        if len(votes) != 1:
            raise LocalProtocolError(
                f"the session controls {len(votes)} agents, not one",
                hint="`step` takes the inputs of each by its name" if votes else "register first",
            )
        votes[0].fill(inputs)
        return votes

    @property
    def filled(self) -> tuple[Vote, ...]:
        """The requests, with the inputs that were taken over; another tuple where agents came or went."""
        return self._votes

    def go_on(self, way: StraightWay | None) -> Exchange[dict[str, StepOutcome]]:
        """The step with the inputs that were taken over, from where ``way`` was left, or from its beginning."""
        votes = self._votes
        m = self.machine
        try:
            result = yield from (barrier.step(m, votes) if way is None else barrier.go_on(m, votes, way))
        except BarrierStuck as error:
            raise stuck(error, self.server, self._leases, waited=m.limits.step) from None
        outcomes = self._outcomes(result) if result.way is None else result.way.outcomes()
        if self.watched:
            values = yield from self._watched(result.values)
            for outcome in outcomes.values():
                outcome.values = values
        return outcomes

    def _outcomes(self, result: barrier.StepResult) -> dict[str, StepOutcome]:
        """Of completions that were looked at one by one."""
        outcomes = {}
        # Of a client's completions the first one tells them, whichever agent that is of.
        happened = dict.fromkeys(e for reply in result.completions.values() for e in reply.events)
        events = tuple(self.machine.events.get(e, f"event {e}") for e in happened)
        for vote in self._votes:
            reply = result.completions[vote.agent_id]
            outcome = StepOutcome(reply.outputs.copy(), reply.infos.copy())
            if result.restored:
                outcome.restored = vote.agent_id in result.restored
            if events:
                outcome.events = events
            outcomes[vote.name] = outcome
        return outcomes

    def _wrong_agents(self, actions: Mapping[str, ArrayLike]) -> LocalProtocolError:
        if not self._votes:
            return LocalProtocolError("a session that controls no agent cannot step", hint="register first")
        need_mapping(actions)
        missing = sorted(set(self.votes) - set(actions))
        surplus = sorted(set(actions) - set(self.votes))
        return LocalProtocolError(
            f"a step needs the inputs of exactly the controlled agents: missing {missing}, not controlled {surplus}"
        )

    def audit(self) -> Exchange[str]:
        """Why this episode's steps cannot be trusted; empty where the simulator's clock agrees."""
        return (yield from barrier.audit(self.machine))

    def look_back(self) -> Exchange[str]:
        """Why the steps of an episode that the next reset abandons cannot be trusted; empty where nothing is known."""
        return (yield from barrier.look_back(self.machine))

    # --- events and variables --------------------------------------------------------------------------------------

    def register_event(self, name: str) -> Exchange[bool]:
        """Be told of an event by its exact name; False where the simulator has none of that name."""
        text_of(name, "the name of an event", "'/Arena/Bump'")
        # Who dies meanwhile may have registered, and a successor's END would do harm.
        if self._tenure is not None:
            self._tenure.events = True
            self._renew_lease()
        event_id = yield from asking.register_event(self.machine, name)
        return event_id != 0

    def deregister_event(self, name: str) -> Exchange[None]:
        """Stop being told of an event."""
        for event_id, known in tuple(self.machine.events.items()):
            if known == name:
                yield from asking.deregister_event(self.machine, event_id)

    def values(self, expression: str = ".*") -> Exchange[tuple[ValueEntry, ...]]:
        """Variables whose name fits a regular expression."""
        text_of(expression, "a regular expression", "'/Simulation/.*'")
        return (yield from list_values(self.machine, expression))

    def get(self, name: str) -> Exchange[ValueReading]:
        """A variable with its content."""
        return variables.read(self.machine, name)

    def components(self, names: Iterable[str]) -> Exchange[dict[str, int]]:
        """How many components each variable has that is a vector; without those that are none, or are not there."""
        return variables.components(self.machine, names)

    def set(self, name: str, content: str) -> Exchange[None]:
        """Write a variable."""
        return variables.write(self.machine, name, content)

    def watch(self, names: Sequence[str]) -> Exchange[None]:
        """Carry these variables in each step's outcome: pushed where the server pushes, else polled."""
        ids: dict[str, int] = {}
        for name in names:
            ids[name] = (yield from variables.named(self.machine, name)).id
        if self.machine.profile.values_are_pushed and ids:
            yield from asking.observe(self.machine, {i: name for name, i in ids.items()})
        self.watched.update(dict.fromkeys(ids))

    def _watched(self, pushed: Mapping[int, str]) -> Exchange[dict[str, str]]:
        values = {}
        for name in self.watched:
            known = self.machine.values.get(name)
            content = pushed.get(known.id) if known else None
            values[name] = (yield from self.get(name)).value if content is None else content
        return values

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave(self) -> Exchange[bool]:
        """Give everything back, as the profile allows; True where the simulator confirmed it. Takes 2 s at most."""
        confirmed = yield from leave(self.machine, (*self.machine.controlled, *self.asked.values()))
        if confirmed:
            self.forget_lease()
        return confirmed

    def take_heart(self) -> ClientMachine:
        """A machine that can still say goodbye where the session's own was given up because of a silence."""
        before = self.machine
        m = ClientMachine(before.profile, limits=before.limits, jitter=self._jitter, peer=before.peer)
        m.controlled.update(before.controlled)
        m.ever_registered_events = before.ever_registered_events
        # A handler in mid-step waits for one.
        m.send(StepCompletedAck(0))
        self.machine = m
        return m

    @property
    def evicted(self) -> bool:
        """Somebody has restarted the communication: nothing is ours any more."""
        return isinstance(self.machine.lost, SessionEvicted)

    def restart_communication(self) -> Exchange[bool]:
        """Disconnect every client of the simulator."""
        try:
            confirmed = yield from asking.reset_communication(self.machine)
            if confirmed:
                forget_all(self.server, self._leases)
            return confirmed
        finally:
            self.forget_lease()

    def _renew_lease(self) -> None:
        if self._tenure is not None:
            self._tenure.renew(self._whose)

    def _look_after_lease(self) -> None:
        """Now and then: a session of weeks outlives what is tidied up, or removed when its user logs out."""
        if self._tenure is not None:
            self._tenure.look_after(self._whose)

    @property
    def _whose(self) -> dict[str, int]:
        """What whoever dies now leaves taken."""
        return {name: vote.agent_id for name, vote in self.votes.items()} | self.asked

    def forget_lease(self, *, refused: bool = False) -> None:
        """The agents and our place are free: nobody needs to reclaim them. ``refused``: a closed port says so."""
        if self._tenure is not None:
            self._tenure.end(refused=refused)

    def locked_by_the_dead(self) -> Exchange[list[str]]:
        """Taken agents that only a restart of the communication frees, where that disturbs nobody else."""
        own = None if self._tenure is None else self._tenure.lease
        if not self.machine.profile.deaf_after_closed_port or not any_stale(self.server, self._leases):
            return []
        entries = yield from self.overview()
        return locked_by_the_dead(entries, self.server, self._leases, own)

    def unguard(self) -> None:
        """The guardian is to say nothing for this session, whose socket is closed next."""
        if self._tenure is not None:
            self._tenure.unguard()

    def abandon_lease(self) -> None:
        """The agents may still be taken: leave the lease for a successor. The socket must be closed by then."""
        if self._tenure is not None:
            self._tenure.abandon()

    def closed(self) -> SessionClosed:
        """The error for use after closing."""
        return SessionClosed(f"the session with {self.server} was closed")

    def take_notices(self) -> list[Notice]:
        """What happened unasked since the last call."""
        notices = list(self.machine.notices)
        self.machine.notices.clear()
        return notices
