"""The OSP client for blocking callers: one connected UDP socket, no thread, no event loop.

A step from ``step`` to the socket and back: the inputs are copied into requests that are prepared already, these are
sent (``Session.begin_step``), and what comes is compared with the bytes that must come (``Session.run_fast_path``).
With whatever else comes, and where nothing does, the exchange of ``SessionCore.finish_step`` goes on, message by
message (``await_end``).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from math import ceil
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from ospbridge.errors import LocalProtocolError, OspBridgeError, SessionClosed, SimulatorNotFound
from ospbridge.interface import (
    AgentInterface,
    Endpoint,
    StepOutcome,
)
from ospbridge.osp.client import Exchange
from ospbridge.osp.fast_path import FastPath
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import SILENCE, Limits
from ospbridge.session.channel import say_goodbyes
from ospbridge.session.connect import GOODBYES, RESTARTS, join
from ospbridge.session.core import Session, SessionCore
from ospbridge.session.one_thread import OneThread
from ospbridge.transport.spinning import Spinning

if TYPE_CHECKING:
    import select
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.connect import Connection

__all__ = ["BlockingSession", "poll_until"]

P = ParamSpec("P")
T = TypeVar("T")
SLEEP_AT_MOST: Final = 0.05
"""Seconds of one sleep, behind which is looked whether another thread closes the session or fleet."""


def poll_until(poll: select.poll, deadline: float, in_use: OneThread) -> list[tuple[int, int]]:
    """What is ready before that time. Raises SessionClosed where another thread closes what is ``in_use``."""
    now = monotonic()
    while True:
        in_use.check()
        ready = poll.poll(ceil(1000 * min(max(deadline - now, 0.0), SLEEP_AT_MOST)))
        now = monotonic()
        if ready or now >= deadline:
            return ready


def runs(
    exchange: Callable[Concatenate[SessionCore, P], Exchange[T]],
) -> Callable[Concatenate[BlockingSession, P], T]:
    """A method of sessions that runs an exchange of their core."""

    @wraps(exchange)
    def run(self: BlockingSession, /, *given: P.args, **named: P.kwargs) -> T:
        return self.run(exchange(self.core, *given, **named))

    return run


class BlockingSession(Session):
    """An OSP session with a simulator, for one thread. Make one with ``BlockingSession.connect``.

    Close it, from whatever thread, or use it as a context manager. A session that was lost stays so: close it, and
    connect again.
    """

    def __init__(self, connection: Connection, *, spin: bool) -> None:
        super().__init__(connection, spin=spin, clock=monotonic)
        self.freed = connection.freed
        """Agents of dead sessions of ours that were given back on the way here."""
        self.in_use = OneThread(self.server)
        self._pid = os.getpid()

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

        def check() -> None:
            if ended is not None and ended():
                raise SimulatorNotFound(f"the simulator at {simulator} ended before it answered")

        connection = join(
            simulator,
            profile,
            limits=limits,
            reclaim_stale=reclaim_stale,
            pauses=rejoin_locked,
            trace=trace,
            leases=leases,
            check=check,
        )
        return cls(connection, spin=spin)

    def configure(self, limits: Limits, *, spin: bool) -> None:
        """Have other limits than it was made with from here on, but for leaving, and spin or not."""
        self.machine.limits = replace(limits, close=self.machine.limits.close)
        self._spin(enabled=spin)

    # --- steps -----------------------------------------------------------------------------------------------------

    def step(self, actions: Mapping[str, ArrayLike]) -> dict[str, StepOutcome]:
        """One step: float32[n_inputs] for the name of each controlled agent; the outcome of each, by its name.

        Inputs are in the announced ranges; a simulator limits what is beyond. The arrays of an outcome are the caller's
        own. Raises LocalProtocolError for other agents, another number of inputs, NaN and infinity, of which nothing
        was sent, and for a second thread; BarrierStuck where other clients do not step, StepUncertain where it cannot
        be told whether the step ran once, OutputsIncomplete, SessionLost, SessionClosed.
        """
        return self._step(self.core.fill, actions, FastPath.outcomes)  # type: ignore[no-any-return]

    def step_one(self, inputs: ArrayLike) -> StepOutcome:
        """``step`` for a session that controls one agent only, without names."""
        found = self._step(self.core.fill_one, inputs, FastPath.outcome)
        outcome: StepOutcome = next(iter(found.values())) if type(found) is dict else found
        return outcome

    def step_filled(self) -> dict[str, StepOutcome]:
        """``step`` with the inputs that ``core`` has taken over."""
        return self._step(None, None, FastPath.outcomes)  # type: ignore[no-any-return]

    def _step(
        self, fill: Callable[[Any], None] | None, inputs: object, outcomes: Callable[[FastPath], object]
    ) -> Any:
        """What ``outcomes`` makes of the fast path; where that was left, all outcomes by name."""
        try:
            self.in_use.enter()
            if fill is not None:
                fill(inputs)
            path = self.begin_step(monotonic())
            if path is not None and self.run_fast_path(path, self.sleep_for):
                return outcomes(path)
            self.await_end()
            return self.result()
        except BaseException as error:
            if self.in_use.mine:
                self.machine.interrupt(error)
            if not isinstance(error, OspBridgeError):
                # Ctrl-C may come behind the step's end, too: nobody is told what it brought.
                self.cancel_step()
            raise
        finally:
            self.in_use.leave()

    def sleep_for(self, path: FastPath, spinning: Spinning) -> bool:
        """Sleep until there is something of a fast path; False where that stays silent, and was left."""
        began = monotonic()
        if not self._sleep(min(began + SILENCE, path.began + self.machine.limits.step)):
            return self.leave_fast_path(path, None)
        spinning.in_vain(monotonic() - began)
        return True

    def cancel_step(self) -> None:
        """Whoever gave a step was interrupted: it may have run, and the next one must not go on from what they know."""
        self.machine.interrupt(LocalProtocolError("a step was given up before its end"))
        self.machine.abandon_step()

    # --- exchanges -------------------------------------------------------------------------------------------------

    def run(self, exchange: Exchange[T]) -> T:
        """The result of an exchange of this session's ``core``, or its error. Bounded by the exchange's own limits."""
        try:
            self.in_use.enter()
            self.begin(exchange, monotonic())
            self.await_end()
            return self.result()  # type: ignore[no-any-return]  # what the exchange returned
        except BaseException as error:
            if self.in_use.mine:
                self.machine.interrupt(error)
            raise
        finally:
            self.in_use.leave()

    def await_end(self) -> None:
        """Until what was begun has ended; a step that a fleet began may be on its fast path still."""
        path = self._active_path
        if path is not None and self.run_fast_path(path, self.sleep_for):
            return
        while not self.turn(monotonic()):
            self._wait(self.deadline)
        # A handler of signals may have closed the session meanwhile, by the same machine.
        self.in_use.check()

    def _wait(self, deadline: float) -> None:
        """Until something is there, or that time has come. Spins before it sleeps."""
        spinning, poll = self._spinning, self._poll.poll
        for _ in range(spinning.tries):
            if poll(0):
                spinning.paid()
                return
        began = monotonic()
        came = self._sleep(deadline)
        spinning.in_vain(monotonic() - began if came else float("inf"))

    def _sleep(self, deadline: float) -> bool:
        """Whether something is there before that time. Raises SessionClosed where another thread closes the session."""
        began = monotonic()
        came = bool(poll_until(self._poll, deadline, self.in_use))
        if came:
            self.machine.waited(monotonic() - began)
        return came

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

    def register(self, *names: str) -> tuple[AgentInterface, ...]:
        """Take control of agents by their names: all or none. Their interfaces, in the order of the names.

        The world steps only when each of them has its inputs. Raises AgentNotFound, AgentTaken.
        """
        return self.run(self.core.register(names))

    def watch(self, *names: str) -> None:
        """Carry variables in each step's outcome, in ``values``: pushed where the server pushes, else polled.

        What is polled costs a question for each step. Raises ValueNotFound.
        """
        self.run(self.core.watch(names))

    def restart_communication(self) -> bool:
        """Disconnect every client of the simulator, and close. True where the simulator confirmed it to us."""
        try:
            with self.in_use:
                sleep(GOODBYES.left(self.server))
                goodbye = self.goodbye(self.core.restart_communication())
                say_goodbyes([goodbye])
            if goodbye.error is not None:
                raise goodbye.error
            return goodbye.confirmed
        finally:
            RESTARTS.note(self.server)
            self._drop()

    # --- leaving ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the agents back and leave, within 2 s. Never raises; safe to call again, from any thread, at any moment.

        Another thread that steps meanwhile gets SessionClosed.
        """
        if self.closed:
            return
        alone = self.in_use.close(self.machine.limits.close)
        try:
            if not self.closed:
                if alone:
                    self.machine.interrupt(SessionClosed(f"the session with {self.server} was closed"))
                goodbye = self.goodbye(revived=not alone)
                try:
                    say_goodbyes([goodbye])
                finally:
                    self.left(confirmed=goodbye.confirmed)
        finally:
            self.in_use.leave()

    def _drop(self) -> None:
        self.in_use.refuse()
        super()._drop()

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
