"""The OSP client for trio, on the same machine as the blocking one. One task at a time may use a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, SupportsIndex, TypeVar

import trio

from ospbridge.errors import OspBridgeError
from ospbridge.interface import AgentEntry, AgentInterface, Endpoint, StepOutcome, ValueEntry, ValueReading
from ospbridge.osp.client.machine import Exchange
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.session.arguments import limits_of, no_path, place_of
from ospbridge.session.arriving import Arrival
from ospbridge.session.conversation import Conversation
from ospbridge.session.driven import Driven
from ospbridge.session.equipping import equip
from ospbridge.session.lease import being_freed
from ospbridge.session.locked_out import told_of_leases
from ospbridge.session.lost_agents import told_of_restart
from ospbridge.session.reclaim import FREED_WITHIN, LOOKED_EVERY, successors
from ospbridge.session.settling import GOODBYES, RESTARTS
from ospbridge.session.trio_connecting import find_handler, reclaim, see_off
from ospbridge.session.trio_link import TrioLink
from ospbridge.transport.addresses import parse_endpoint, resolve

if TYPE_CHECKING:
    import os
    import socket
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.step.votes import Vote
    from ospbridge.task.base import Task

__all__ = ["TrioSession"]

T = TypeVar("T")


class TrioSession(Driven[TrioLink]):
    """A ``BlockingSession`` for one task of trio. Make one with ``await TrioSession.connect``.

    Close it with ``aclose``, or use it with ``async with``. What is cancelled in a step or reset leaves a vote that may
    still count: close the session then, and connect again.
    """

    def __init__(
        self,
        sock: socket.socket,
        conversation: Conversation,
        *,
        spin: bool,
        trace: TraceWriter | None,
        tally: Tally | None = None,
        linger: float = 0.0,
    ) -> None:
        link = TrioLink(
            sock,
            conversation.machine,
            port=conversation.handler.port,
            spin=spin,
            trace=trace,
            tally=tally,
            linger=linger,
        )
        super().__init__(sock, conversation, link)
        self.clock = trio.lowlevel.current_clock().current_time
        """The time, without trio's way to it: a step asks several times."""

    async def _run(self, exchange: Exchange[T]) -> T:
        if self.closed:
            exchange.close()
            raise self.conversation.closed()
        return await self.link.run(exchange)

    # --- connecting ------------------------------------------------------------------------------------------------

    @classmethod
    async def connect(
        cls,
        simulator: str | Endpoint,
        *,
        profile: str | Profile = "auto",
        limits: Limits | None = None,
        spin: bool = True,
        trace: TraceWriter | None = None,
        tally: Tally | None = None,
        leases: str | os.PathLike[str] | None = None,
        reclaim_stale: bool = True,
        linger: float = 0.0,
    ) -> Self:
        """Join the simulator at ``HOST:PORT``; as ``BlockingSession.connect``.

        ``linger``: seconds for which a step waits for each datagram before other tasks have their turn.
        """
        limits, leases = limits_of(limits), place_of(leases)
        no_path(trace)
        named = parse_endpoint(str(simulator) if isinstance(simulator, Endpoint) else simulator)
        family, server = await trio.to_thread.run_sync(resolve, named, abandon_on_cancel=True)
        await trio.sleep(RESTARTS.left(server))
        with (
            told_of_leases(server, leases, said_goodbye=reclaim_stale),
            Arrival(
                family,
                server,
                profile,
                limits=limits,
                now=trio.current_time(),
                pauses=reclaim_stale,
                trace=trace,
                tally=tally,
                leases=leases,
            ) as arrival,
        ):
            await find_handler(arrival)
            conversation = arrival.conversation()
        session = cls(arrival.sock, conversation, spin=spin, trace=trace, tally=tally, linger=linger)
        try:
            session._arrived(arrival)
            if reclaim_stale:
                give_up = trio.current_time() + FREED_WITHIN
                # What another process does is looked for, since nothing tells when it is done.
                while being_freed(server, leases) and trio.current_time() < give_up:  # noqa: ASYNC110
                    await trio.sleep(LOOKED_EVERY)
                await reclaim(successors(server, leases, session.machine.limits))
                locked = await session._run(session.conversation.locked_by_the_dead())
                if locked:
                    await session.restart_communication()
                    session = await cls.connect(
                        simulator,
                        profile=profile,
                        limits=limits,
                        spin=spin,
                        trace=trace,
                        tally=tally,
                        leases=leases,
                        reclaim_stale=False,
                        linger=linger,
                    )
                    session.machine.notices.remark(told_of_restart(server, locked))
        except BaseException:
            await session.aclose()
            raise
        return session

    # --- the protocol ----------------------------------------------------------------------------------------------

    @property
    def gave_way_at(self) -> float:
        """When other tasks had their turn in a step, or in anything else that was asked, by trio's clock."""
        return self.link.gave_way_at

    async def agents(self) -> tuple[AgentEntry, ...]:
        """All agents of the simulator."""
        return await self._run(self.conversation.overview())

    async def describe(self, name: str) -> AgentInterface:
        """Inputs, outputs and infos of an agent. Raises AgentNotFound."""
        return await self._run(self.conversation.describe(name))

    async def matching(self, patterns: str | Sequence[str], *, available: bool = True) -> tuple[str, ...]:
        """Agents that fit shell globs. Raises AgentNotFound where nothing fits, AgentTaken where none is free."""
        return await self._run(self.conversation.matching(patterns, available=available))

    async def register(self, *names: str) -> tuple[AgentInterface, ...]:
        """Take control of agents: all or none. Raises AgentNotFound, AgentTaken."""
        return await self._run(self.conversation.register(names))

    async def deregister(self, name: str) -> None:
        """Give an agent back."""
        await self._run(self.conversation.deregister(name))

    async def reset(self, seed: SupportsIndex = 0) -> bool:
        """Reset the world (int32 seed, 0: don't care). Raises BarrierStuck."""
        return await self._run(self.conversation.reset(seed))

    async def step(self, actions: Mapping[str, ArrayLike]) -> dict[str, StepOutcome]:
        """One step with the inputs of every controlled agent. Raises BarrierStuck, StepUncertain, SessionLost."""
        if self.closed:
            raise self.conversation.closed()
        conversation = self.conversation
        votes = conversation.fill(actions)
        if not conversation.watched:
            way = self.link.walk(votes)
            if way is not None:
                return way.outcomes()
        return await self.step_on()

    def step_at_once(self, inputs: Iterable[ArrayLike]) -> dict[str, StepOutcome] | None:
        """``step`` with the inputs of all ``votes_at_once`` in their order, as far as it goes without other tasks.

        None: ``step_on`` must follow, before anything else. Raises LocalProtocolError for what cannot be sent.
        """
        conversation = self.conversation
        votes = conversation.filled
        for vote, mine in zip(votes, inputs, strict=True):
            vote.fill(mine)
        way = self.link.walk(votes)
        return None if way is None else way.outcomes()

    async def step_on(self) -> dict[str, StepOutcome]:
        """The rest of a step that was taken up. Raises as ``step``."""
        link = self.link
        conversation = self.conversation
        way = None
        if link.checkpoint_due:
            await link.give_way()
            way = link.walk(conversation.filled)
        if link.pausing is not None:
            way = await link.walk_on()
        if way is not None:
            return way.outcomes()
        return await link.run(conversation.go_on(link.left_way()))

    @property
    def votes_at_once(self) -> tuple[Vote, ...]:
        """Of all controlled agents, the same tuple for as long as these are; none where a step asks for more."""
        conversation = self.conversation
        return () if self.closed or conversation.watched else conversation.filled

    async def audit(self) -> str:
        """Why the steps since the last reset cannot be trusted; empty where the clock agrees."""
        return await self._run(self.conversation.audit())

    async def look_back(self) -> str:
        """Why the steps of an episode that the next reset abandons cannot be trusted; empty where nothing is known."""
        return await self._run(self.conversation.look_back())

    async def register_event(self, name: str) -> bool:
        """Be told of an event with each step's outcome; False where there is none of that name."""
        return await self._run(self.conversation.register_event(name))

    async def deregister_event(self, name: str) -> None:
        """Stop being told of an event."""
        await self._run(self.conversation.deregister_event(name))

    async def values(self, expression: str = ".*") -> tuple[ValueEntry, ...]:
        """Variables whose name fits a regular expression, as this server understands it."""
        return await self._run(self.conversation.values(expression))

    async def get(self, name: str) -> ValueReading:
        """A variable with its content. Raises ValueNotFound."""
        return await self._run(self.conversation.get(name))

    async def components(self, names: Iterable[str]) -> dict[str, int]:
        """How many components each variable has that is a vector; without those that are none, or are not there."""
        return await self._run(self.conversation.components(names))

    async def set(self, name: str, content: str) -> None:
        """Write a variable. Raises ValueNotFound, ValueRejected."""
        await self._run(self.conversation.set(name, content))

    async def watch(self, *names: str) -> None:
        """Carry variables in each step's outcome: pushed where the server pushes, else polled."""
        await self._run(self.conversation.watch(names))

    async def equip(self, tasks: Collection[Task]) -> None:
        """Ask for the events and variables that tasks want. Raises ConfigurationError, ValueNotFound."""
        await self._run(equip(self.conversation, tasks))

    async def restart_communication(self) -> bool:
        """Disconnect every client of the simulator, and close. True where the simulator confirmed it to us."""
        try:
            await trio.sleep(GOODBYES.left(self.server))
            confirmed = await self._run(self.conversation.restart_communication())
            await see_off(self._others, trio.current_time() + self.machine.limits.close)
            return confirmed
        finally:
            RESTARTS.note(self.server)
            self._drop()

    async def wait_readable(self) -> None:
        """Until something comes unasked; then ``take_notices`` reads it. For a session at rest only."""
        await self.link.wait_readable()

    # --- leaving ---------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give the agents back and leave, within 2 s, also when cancelled."""
        if self.closed:
            return
        confirmed = False
        give_up = trio.current_time() + self.machine.limits.close
        with trio.CancelScope(shield=True):
            try:
                goodbye = self.goodbye()
                if goodbye is not None:
                    confirmed = await self.link.run(goodbye)
            except OspBridgeError:
                pass
            finally:
                try:
                    await see_off(self.surplus(confirmed=confirmed), give_up)
                finally:
                    self.left(confirmed=confirmed)

    def _drop(self) -> None:
        if not self.closed:
            trio.lowlevel.notify_closing(self._socket)
            super()._drop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
