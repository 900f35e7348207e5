"""The OSP client for blocking callers: one connected UDP socket, no thread, no event loop."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, TypeVar

from ospbridge.errors import LocalProtocolError, OspBridgeError, SessionClosed
from ospbridge.interface import (
    AgentEntry,
    AgentInterface,
    Endpoint,
    Match,
    StepOutcome,
    ValueEntry,
    ValueReading,
)
from ospbridge.osp.client.machine import Exchange
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.session.arguments import limits_of, no_path, place_of
from ospbridge.session.arriving import Arrival
from ospbridge.session.blocking_connecting import find_handler, reclaim, see_off
from ospbridge.session.conversation import Conversation
from ospbridge.session.crossing import Crossing, crossed
from ospbridge.session.driven import Driven
from ospbridge.session.equipping import equip
from ospbridge.session.lease import being_freed
from ospbridge.session.link import Link
from ospbridge.session.locked_out import told_of_leases
from ospbridge.session.lost_agents import told_of_restart
from ospbridge.session.reclaim import FREED_WITHIN, LOOKED_EVERY, successors
from ospbridge.session.settling import GOODBYES, RESTARTS
from ospbridge.transport.addresses import parse_endpoint, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.link import GoOn
    from ospbridge.task.base import Task

__all__ = ["BlockingSession"]

T = TypeVar("T")


class BlockingSession(Driven[Link]):
    """An OSP session with a simulator, for one thread. Make one with ``BlockingSession.connect``.

    Close it, or use it as a context manager. A session that was lost stays so: close it, and connect again.
    """

    def __init__(
        self, sock: socket.socket, conversation: Conversation, *, spin: bool, trace: TraceWriter | None
    ) -> None:
        link = Link(sock, conversation.machine, port=conversation.handler.port, spin=spin, trace=trace)
        super().__init__(sock, conversation, link)
        self.freed: tuple[str, ...] = ()
        """Agents of dead sessions of ours that were given back on the way here."""
        self._pid = os.getpid()
        self._crossing = Crossing()

    def run(self, exchange: Exchange[T]) -> T:
        """The result of an exchange of this session's ``conversation``, or its error."""
        if self.closed:
            exchange.close()
            raise self.conversation.closed()
        try:
            return self.link.run(exchange)
        except Exception as error:
            self._look_for_others(error)
            raise

    def _look_for_others(self, error: Exception) -> None:
        """What went wrong in whatever way comes of two threads, where another one uses this session: tells that."""
        if self._crossing.seen(self, USES) and not isinstance(error, SessionClosed):
            raise crossed(self.server) from error

    def _step_failed(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._look_for_others(error)
        if not isinstance(error, OspBridgeError):
            self.abandon_step()

    def abandon_step(self) -> None:
        """Whoever gave a step was interrupted: it may have run, and the next one must not go on from what they know."""
        self.link.interrupt(LocalProtocolError("a step was given up before its end"))
        self.machine.abandon_step()

    # --- connecting ------------------------------------------------------------------------------------------------

    @classmethod
    def connect(
        cls,
        simulator: str | Endpoint,
        *,
        profile: str | Profile = "auto",
        limits: Limits | None = None,
        spin: bool = True,
        trace: TraceWriter | None = None,
        leases: str | os.PathLike[str] | None = None,
        reclaim_stale: bool = True,
        rejoin_locked: bool = False,
        ended: Callable[[], bool] | None = None,
    ) -> Self:
        """Join the simulator at ``HOST:PORT``.

        ``profile``: ``"auto"`` finds out which kind of server it is. ``limits``: how long each request may take.
        ``spin=False`` sleeps while it waits: steps are slower, and the processor is idle. ``trace``: told of every
        datagram. ``leases``: the directory of what tells who died, unless it is the usual one. ``reclaim_stale`` first
        frees agents of our own sessions that died; ``rejoin_locked`` only where nobody can join before that is done.
        ``ended``: whether nobody will answer any more, of a simulator whose process is known.

        Raises SimulatorNotFound, SimulatorSilent, VersionRefused; ConfigurationError for a wrong address or profile,
        UsageError for what is no ``Limits`` or no ``TraceWriter``.
        """
        limits, leases = limits_of(limits), place_of(leases)
        no_path(trace)
        named = parse_endpoint(str(simulator) if isinstance(simulator, Endpoint) else simulator)
        family, server = resolve(named)
        sleep(RESTARTS.left(server))
        pauses = reclaim_stale or rejoin_locked
        freed: list[str] = []
        with (
            told_of_leases(server, leases, said_goodbye=pauses),
            Arrival(
                family,
                server,
                profile,
                limits=limits,
                now=monotonic(),
                pauses=pauses,
                trace=trace,
                leases=leases,
            ) as arrival,
        ):
            find_handler(arrival, freed, ended)
            conversation = arrival.conversation()
        session = cls(arrival.sock, conversation, spin=spin, trace=trace)
        try:
            session._arrived(arrival)
            if reclaim_stale:
                give_up = monotonic() + FREED_WITHIN
                while being_freed(server, leases) and monotonic() < give_up:
                    sleep(LOOKED_EVERY)
                freed += reclaim(successors(server, leases, session.machine.limits))
                locked = session.run(session.conversation.locked_by_the_dead())
                if locked:
                    session.restart_communication()
                    session = cls.connect(
                        simulator,
                        profile=profile,
                        limits=limits,
                        spin=spin,
                        trace=trace,
                        leases=leases,
                        reclaim_stale=False,
                    )
                    session.machine.notices.remark(told_of_restart(server, locked))
                    freed += locked
            session.freed = tuple(freed)
        except BaseException:
            session.close()
            raise
        return session

    def heed(self, limits: Limits, *, spin: bool) -> None:
        """Have other limits than it was made with from here on, but for leaving, and spin or not."""
        self.machine.limits = replace(limits, close=self.machine.limits.close)
        self.link.spin(enabled=spin)

    # --- the protocol ----------------------------------------------------------------------------------------------

    def agents(self) -> tuple[AgentEntry, ...]:
        """All agents of the simulator, free or not, as an overview tells them now. Raises QueryTimeout."""
        return self.run(self.conversation.overview())

    def describe(self, name: str) -> AgentInterface:
        """Inputs, outputs and infos of an agent, each with its range, in the order of a step's arrays.

        Raises AgentNotFound.
        """
        return self.run(self.conversation.describe(name))

    def matching(
        self, patterns: str | Sequence[str], *, available: bool = True, meant: Sequence[Match] = ()
    ) -> tuple[str, ...]:
        """Names of the agents that fit shell globs; without globs of all that are free, or this session's.

        ``available=False``: also those that others control. Raises AgentNotFound where nothing fits, AgentTaken where
        none is free.
        """
        return self.run(self.conversation.matching(patterns, available=available, meant=meant))

    def register(self, *names: str) -> tuple[AgentInterface, ...]:
        """Take control of agents by their names: all or none. Their interfaces, in the order of the names.

        The world steps only when each of them has its inputs. Raises AgentNotFound, AgentTaken.
        """
        return self.run(self.conversation.register(names))

    def deregister(self, name: str) -> None:
        """Give an agent back; nothing happens where it is not this session's."""
        self.run(self.conversation.deregister(name))

    def reset(self, seed: SupportsIndex = 0) -> bool:
        """Reset the world (int32 seed, 0: don't care), which tells nothing of the agents: the next step does.

        Every client that controls an agent must ask for it. Returns True where the completion itself was seen, False
        where the simulator's clock tells that the reset ran. Raises LocalProtocolError for what is no seed, and where
        no agent is controlled; BarrierStuck, StepUncertain, SessionLost.
        """
        self.begin_anew()
        return self.run(self.conversation.reset(seed))

    def begin_anew(self) -> None:
        """An episode begins, in whatever way: of threads that met before it nobody is told any more."""
        self._crossing.forget()

    def step(self, actions: Mapping[str, ArrayLike]) -> dict[str, StepOutcome]:
        """One step: float32[n_inputs] for the name of each controlled agent; the outcome of each, by its name.

        Inputs are in the announced ranges; a simulator limits what is beyond. The arrays of an outcome are the caller's
        own. Raises LocalProtocolError for other agents, another number of inputs, NaN and infinity, of which nothing
        was sent; BarrierStuck where other clients do not step, StepUncertain where it cannot be told whether the step
        ran once, OutputsIncomplete, SessionLost, SessionClosed.
        """
        if self.closed:
            raise self.conversation.closed()
        conversation = self.conversation
        try:
            votes = conversation.fill(actions)
            way = None if conversation.watched else self.link.walk(votes)
            if way is not None:
                return way.outcomes()
            return self.link.run(conversation.go_on(self.link.left_way()))
        except BaseException as error:
            self._step_failed(error)
            raise

    def step_one(self, inputs: ArrayLike) -> StepOutcome:
        """``step`` for a session that controls one agent only, without names."""
        if self.closed:
            raise self.conversation.closed()
        conversation = self.conversation
        try:
            votes = conversation.fill_one(inputs)
            way = None if conversation.watched else self.link.walk(votes)
            if way is not None:
                return way.outcome()
            return self.link.run(conversation.go_on(self.link.left_way()))[votes[0].agent.name]
        except BaseException as error:
            self._step_failed(error)
            raise

    def step_or(self, go_on: GoOn) -> Any:
        """A step with the inputs that ``conversation`` took over: its straight way, at the end.

        Where that cannot be walked, the result of the exchange that ``go_on`` makes from where it was left.
        """
        if self.closed:
            raise self.conversation.closed()
        try:
            way = self.link.walk(self.conversation.filled)
            return self.link.run(go_on(self.link.left_way())) if way is None else way
        except BaseException as error:
            self._step_failed(error)
            raise

    def audit(self) -> str:
        """Why the steps since the last reset cannot be trusted; empty where the simulator's clock agrees.

        Ask at the end of an episode, before the next reset.
        """
        return self.run(self.conversation.audit())

    def look_back(self) -> str:
        """Why the steps of an episode that the next reset abandons cannot be trusted; empty where nothing is known."""
        return self.run(self.conversation.look_back())

    def register_event(self, name: str) -> bool:
        """Be told of an event with each step's outcome; False where the simulator has none of that exact name."""
        return self.run(self.conversation.register_event(name))

    def deregister_event(self, name: str) -> None:
        """Stop being told of an event."""
        self.run(self.conversation.deregister_event(name))

    def values(self, expression: str = ".*") -> tuple[ValueEntry, ...]:
        """Variables whose name fits a regular expression, as this kind of server understands it.

        None where nothing fits, and where the expression is wrong: the protocol does not tell one from the other.
        Raises QueryTimeout, IncompleteListing.
        """
        return self.run(self.conversation.values(expression))

    def get(self, name: str) -> ValueReading:
        """A variable with its content, as the simulator writes it. Raises ValueNotFound, QueryTimeout."""
        return self.run(self.conversation.get(name))

    def components(self, names: Iterable[str]) -> dict[str, int]:
        """How many components each variable has that is a vector; without those that are none, or are not there."""
        return self.run(self.conversation.components(names))

    def set(self, name: str, content: str) -> None:
        """Write a variable, in the form in which ``get`` reads it.

        Raises ValueNotFound; ValueRejected for what the simulator cannot parse, or does not let itself be told.
        """
        self.run(self.conversation.set(name, content))

    def watch(self, *names: str) -> None:
        """Carry variables in each step's outcome, in ``values``: pushed where the server pushes, else polled.

        What is polled costs a question for each step. Raises ValueNotFound.
        """
        self.run(self.conversation.watch(names))

    def equip(self, tasks: Collection[Task]) -> None:
        """Ask for the events and variables that tasks want. Raises ConfigurationError, ValueNotFound."""
        self.run(equip(self.conversation, tasks))

    def restart_communication(self) -> bool:
        """Disconnect every client of the simulator, and close. True where the simulator confirmed it to us."""
        try:
            sleep(GOODBYES.left(self.server))
            confirmed = self.run(self.conversation.restart_communication())
            see_off(self._others, monotonic() + self.machine.limits.close)
            return confirmed
        finally:
            RESTARTS.note(self.server)
            self._drop()

    # --- leaving ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the agents back and leave, within 2 s. Safe to call again, and after the simulator died."""
        if self.closed:
            return
        confirmed = False
        give_up = monotonic() + self.machine.limits.close
        try:
            goodbye = self.goodbye()
            if goodbye is not None:
                confirmed = self.link.run(goodbye)
        except (OspBridgeError, RuntimeError):
            # The latter where another thread waits in a step: it is told as soon as the socket is gone.
            pass
        finally:
            try:
                see_off(self.surplus(confirmed=confirmed), give_up)
            finally:
                self.left(confirmed=confirmed)

    def disown(self) -> None:
        """In a forked child: the session is the parent's. Let go of it without a word."""
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A last resort for sessions that nobody closed; without it their agents would stay taken.
        if not getattr(self, "closed", True):
            with suppress(Exception):
                if self._pid == os.getpid():
                    self.close()
                else:
                    self.disown()


USES: Final = frozenset(
    use.__code__
    for use in (
        BlockingSession.run,
        BlockingSession.step,
        BlockingSession.step_one,
        BlockingSession.step_or,
    )
)
"""What a session does for one thread at a time; closing may come from any."""
