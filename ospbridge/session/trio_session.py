"""The OSP client for trio, with the same core as the blocking one. One task at a time may use a session.

The socket is an ordinary non-blocking one: receive first, and ask trio to wait only when nothing is there. That leaves
the scheduler out of most steps; checkpoints keep the other tasks alive, while the simulator is at work if it is.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

import trio

from ospbridge.errors import SessionClosed
from ospbridge.interface import AgentInterface, Endpoint, StepOutcome
from ospbridge.osp.client import Exchange
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.session.connect import GOODBYES, RESTARTS, join
from ospbridge.session.core import Session, SessionCore
from ospbridge.transport.spinning import Spinning

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from numpy.typing import ArrayLike

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.fast_path import FastPath, StepRequest
    from ospbridge.session.channel import Goodbye
    from ospbridge.session.connect import Connection

__all__ = ["TrioSession"]

P = ParamSpec("P")
T = TypeVar("T")
CHECKPOINT_EVERY: Final = 0.002
"""Seconds between checkpoints."""
AT_ONCE: Final = 1000
"""Sessions that are joined at the same time, each from a thread that mostly sleeps."""
_joining: Final = trio.CapacityLimiter(AT_ONCE)


def runs(
    exchange: Callable[Concatenate[SessionCore, P], Exchange[T]],
) -> Callable[Concatenate[TrioSession, P], Coroutine[Any, Any, T]]:
    """A method of sessions that runs an exchange of their core."""

    @wraps(exchange)
    async def run(self: TrioSession, /, *given: P.args, **named: P.kwargs) -> T:
        return await self._run(exchange(self.core, *given, **named))

    return run


class TrioSession(Session):
    """A ``BlockingSession`` for one task of trio. Make one with ``await TrioSession.connect``.

    Close it with ``aclose``, or use it with ``async with``. What is cancelled in a step or reset leaves a request that
    may still count: close the session then, and connect again. ``linger``: seconds for which a step waits for each
    datagram without the scheduler, in which no other task runs.
    """

    def __init__(self, connection: Connection, *, spin: bool, linger: float = 0.0) -> None:
        super().__init__(connection, spin=spin, clock=trio.lowlevel.current_clock().current_time)
        self._begun = False
        """Requests of the step that was taken up may have been sent."""
        self.yielded_at = 0.0
        """When other tasks had their turn in a step, or in anything else that was asked, by trio's clock."""
        self._linger = round(linger * 1000)

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
        """Join the simulator at ``HOST:PORT``; as ``BlockingSession.connect``."""
        blocking = partial(
            join,
            simulator,
            profile,
            limits=limits,
            reclaim_stale=reclaim_stale,
            trace=trace,
            tally=tally,
            leases=leases,
            check=trio.from_thread.check_cancelled,
        )
        return cls(await trio.to_thread.run_sync(blocking, limiter=_joining), spin=spin, linger=linger)

    # --- steps -----------------------------------------------------------------------------------------------------

    async def step(self, actions: Mapping[str, ArrayLike]) -> dict[str, StepOutcome]:
        """One step with the inputs of every controlled agent. Raises BarrierStuck, StepUncertain, SessionLost."""
        self._check_open()
        self.core.fill(actions)
        return self._try_step() or await self.finish_step()

    @property
    def requests(self) -> tuple[StepRequest, ...]:
        """Of all controlled agents, for ``try_step``: one tuple as long as these are; empty where it cannot be used."""
        core = self.core
        return () if self.closed or core.watched else core.filled

    def try_step(self, inputs: Iterable[ArrayLike]) -> dict[str, StepOutcome] | None:
        """``step`` with the inputs of all ``requests`` in their order, as far as it goes without other tasks.

        None: ``finish_step`` must follow, before anything else. Raises LocalProtocolError for what cannot be sent.
        """
        for request, mine in zip(self.core.filled, inputs, strict=True):
            request.fill(mine)
        return self._try_step()

    def _try_step(self) -> dict[str, StepOutcome] | None:
        now = self.clock()
        self._begun = now - self.yielded_at <= CHECKPOINT_EVERY
        if self._begun:
            path = self.begin_step(now)
            if path is not None and self.run_fast_path(path, self._lingers):
                return path.outcomes()
        return None

    async def finish_step(self) -> dict[str, StepOutcome]:
        """The rest of a step that was taken up. Raises as ``step``."""
        try:
            while not self._begun:
                await self._checkpoint()
                if outcomes := self._try_step():
                    return outcomes
            if self._active_path is not None:
                await self._wait()
            await self._await_end()
        except BaseException as error:
            self.machine.interrupt(error)
            if self._begun and not isinstance(error, Exception):
                self.machine.abandon_step()
            raise
        return self.result()  # type: ignore[no-any-return]  # outcomes

    def _lingers(self, _: FastPath, spinning: Spinning) -> bool:
        """Whether something comes within the time for which other tasks may be kept from their turn."""
        began = self.clock()
        if (
            not self._linger
            or began - self.yielded_at > CHECKPOINT_EVERY
            or not self._poll.poll(self._linger)
        ):
            return False
        spinning.in_vain(self.clock() - began)
        return True

    # --- exchanges -------------------------------------------------------------------------------------------------

    async def _run(self, exchange: Exchange[T]) -> T:
        """The exchange's result, or its error. A checkpoint; when cancelled the exchange is interrupted."""
        self._check_open()
        try:
            await self._checkpoint()
            self.begin(exchange, self.clock())
            await self._await_end()
        except BaseException as error:
            self.machine.interrupt(error)
            raise
        return self.result()  # type: ignore[no-any-return]  # what the exchange returned

    async def _await_end(self) -> None:
        """Until what was begun has ended."""
        while not self.turn(self.clock(), self._lingers):
            await self._wait()

    async def _checkpoint(self) -> None:
        """Other tasks have their turn, if they had none for a while."""
        if self.clock() - self.yielded_at > CHECKPOINT_EVERY:
            await trio.lowlevel.checkpoint()
            self.yielded_at = self.clock()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def _wait(self) -> None:
        """Until something is there, or the deadline has come. An exchange spins before it sleeps."""
        path = self._active_path
        spinning = self._thinking if path is not None and path.completing else self._spinning
        if path is None:
            await self._checkpoint()
            for _ in range(spinning.tries):
                if self._poll.poll(0):
                    spinning.paid()
                    return
        began = self.clock()
        came = False
        try:
            with trio.move_on_at(self.deadline):
                await trio.lowlevel.wait_readable(self.channel.sock)
                came = True
        except trio.ClosedResourceError:
            self._check_open()
            raise
        self.yielded_at = self.clock()
        slept = self.yielded_at - began
        # This task may have had its turn only behind the deadline, and what is there counts all the same.
        came = came or bool(self._poll.poll(0))
        spinning.in_vain(slept if came else float("inf"))
        if came:
            self.machine.waited(slept)

    def _check_open(self) -> None:
        if self.closed:
            raise SessionClosed(f"the session with {self.server} was closed")

    # --- the protocol ----------------------------------------------------------------------------------------------

    agents = runs(SessionCore.overview)
    describe = runs(SessionCore.describe)
    matching = runs(SessionCore.matching)
    deregister = runs(SessionCore.deregister)
    reset = runs(SessionCore.reset)
    audit = runs(SessionCore.audit)
    audit_previous = runs(SessionCore.audit_previous)
    register_event = runs(SessionCore.register_event)
    deregister_event = runs(SessionCore.deregister_event)
    values = runs(SessionCore.values)
    get = runs(SessionCore.get)
    components = runs(SessionCore.components)
    set = runs(SessionCore.set)
    subscribe = runs(SessionCore.subscribe)

    async def register(self, *names: str) -> tuple[AgentInterface, ...]:
        """Take control of agents: all or none. Raises AgentNotFound, AgentTaken."""
        return await self._run(self.core.register(names))

    async def watch(self, *names: str) -> None:
        """Carry variables in each step's outcome: pushed where the server pushes, else polled."""
        await self._run(self.core.watch(names))

    async def wait_readable(self) -> None:
        """Until something unsolicited comes; then ``pop_notices`` reads it. For a session at rest only."""
        await trio.lowlevel.wait_readable(self.channel.sock)

    async def restart_communication(self) -> bool:
        """Disconnect every client of the simulator, and close. True where the simulator confirmed it to us."""
        self._check_open()
        try:
            await trio.sleep(GOODBYES.left(self.server))
            goodbye = self.goodbye(self.core.restart_communication())
            await self._say(goodbye)
            if goodbye.error is not None:
                raise goodbye.error
            return goodbye.confirmed
        finally:
            RESTARTS.note(self.server)
            self._drop()

    # --- leaving ---------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give the agents back and leave, within 2 s, also when cancelled."""
        if self.closed:
            return
        self.machine.interrupt(SessionClosed(f"the session with {self.server} was closed"))
        goodbye = self.goodbye()
        with trio.CancelScope(shield=True):
            try:
                await self._say(goodbye)
            finally:
                self.left(confirmed=goodbye.confirmed)

    async def _say(self, goodbye: Goodbye) -> None:
        await trio.lowlevel.checkpoint()
        while not goodbye.turn(self.clock()):
            with trio.move_on_at(goodbye.deadline):
                await trio.lowlevel.wait_readable(goodbye.sock)

    def _drop(self) -> None:
        if not self.closed:
            trio.lowlevel.notify_closing(self.channel.sock)
            super()._drop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
