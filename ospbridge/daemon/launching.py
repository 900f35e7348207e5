"""A simulator that the daemon launches: started, started again when it has ended, and ended with the daemon.

How a process is started and ended is the business of ``ospbridge.launch``, whose calls block and run in threads. Here
stands when: before each joining, and at what cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ospbridge.errors import SessionLost, SimulatorNotFound, SimulatorNotStarted
from ospbridge.hub.status import LaunchStatus
from ospbridge.launch import cores
from ospbridge.launch.simulator import FELT, LaunchedSimulator, check_free
from ospbridge.observe import logs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Never

    from ospbridge.daemon.settings import Settings
    from ospbridge.errors import OspBridgeError
    from ospbridge.interface import Endpoint
    from ospbridge.session.rebuild import Budget

__all__ = ["SimulatorLauncher"]

T = TypeVar("T")
log = logs.get(__name__)
LOOK_EVERY: Final = 0.2
"""Seconds between looks at whether its process runs: between steps nobody else would notice."""
LOG_EVERY: Final = 30.0
"""Seconds between looks at the size of its log."""
FELT_LOOKS: Final = 60
"""Looks at whether its process has ended, where its closed port was met."""


class SimulatorLauncher:
    """One simulator of the daemon, of ``of`` that it launches. Raises UsageError where its log cannot be written.

    ``run`` must be running; ``ensure`` is called before the simulator is joined.
    """

    def __init__(self, settings: Settings, *, of: int = 1) -> None:
        assert settings.launch is not None
        spec = settings.launch
        self._core: cores.Core | None = None
        """Its own for as long as the daemon runs."""
        if spec.pin == "auto":
            # The environments run in other processes, which need a core as the daemon does.
            self._core = next(iter(cores.take(1, of=of + 1)), None)
            spec = replace(spec, pin=None if self._core is None else self._core.number)
        try:
            self._simulator = LaunchedSimulator(spec, port=settings.simulator.port)
        except BaseException:
            self._release()
            raise
        self._settings = replace(settings, simulator=self.address)
        self.starting = False
        """It was started, and does not listen yet."""
        self._starts = 0
        self._told: set[str] = set()
        self._joining: trio.CancelScope | None = None
        self._end_told = True
        """The log says how it ended the last time, or it was not started yet."""

    @property
    def address(self) -> Endpoint:
        return self._simulator.address

    @property
    def name(self) -> str:
        """The program's."""
        return self._simulator.spec.name

    @property
    def alive(self) -> bool:
        return self._simulator.alive

    @property
    def status(self) -> LaunchStatus:
        spec, refused = self._simulator.spec, self._simulator.refused
        return LaunchStatus(
            program=spec.name,
            pid=self._simulator.pid,
            restarts=max(self._starts - 1, 0),
            log=str(self._simulator.log),
            batch=spec.batch and "batch" not in refused,
            core=spec.pin if isinstance(spec.pin, int) and "pin" not in refused else None,
        )

    # --- starting --------------------------------------------------------------------------------------------------

    async def ensure(self, budget: Budget) -> None:
        """It runs and listens when this returns; it is started unless it does.

        Raises SimulatorNotStarted where it cannot be started, SessionLost where it has ended too often: one that did
        not live for 10 s costs a rebuild of ``budget``.
        """
        simulator = self._simulator
        if simulator.alive:
            return
        self._tell_end()
        if self._starts and not simulator.proven and not budget.spend(trio.current_time()):
            raise SessionLost(
                f"the launched simulator {self.name} ended too often ({budget.capacity} times, one is forgiven a "
                f"minute); the last time: {self._how_it_ended()}",
                hint=f"see its log, {simulator.log}; start the daemon again when it is mended",
            )
        check_free(simulator.address, self.name)
        self._starts += 1
        self._end_told = False
        self.starting = True
        try:
            await trio.to_thread.run_sync(simulator.start)
            # Whoever cancels this stops the simulator, which ends the thread too.
            await trio.to_thread.run_sync(simulator.wait_ready, abandon_on_cancel=True)
        except SimulatorNotStarted:
            self._end_told = True  # the error tells it
            await self.stop()
            raise
        finally:
            self.starting = False
        self._tell_start()

    def _tell_start(self) -> None:
        status = self.status
        log.info(
            "simulator_launched",
            **self._settings.whose,
            program=status.program,
            pid=status.pid,
            log=status.log,
            batch=status.batch,
            core=status.core,
            restarts=status.restarts,
        )
        for what, why in self._simulator.refused.items():
            if what not in self._told:
                self._told.add(what)
                log.warning("launch_option_refused", **self._settings.whose, option=what, reason=why)

    def _tell_end(self) -> None:
        if not self._end_told:
            self._end_told = True
            log.warning("simulator_ended", **self._settings.whose, reason=self._how_it_ended())

    def _how_it_ended(self) -> str:
        said = self._simulator.log.last_words()
        return self._simulator.end_told() + (f"; it said last: {' | '.join(said)}" if said else "")

    # --- while it runs ---------------------------------------------------------------------------------------------

    async def run(self, lost: Callable[[SessionLost], None]) -> Never:
        """Look after its process and log until cancelled, and stop it then. ``lost`` is called when it has ended."""
        log_at = trio.current_time() + LOG_EVERY
        try:
            while True:
                await trio.sleep(LOOK_EVERY)
                if self._starts and not self._simulator.alive:
                    if self._joining is not None:
                        self._joining.cancel()
                    lost(SessionLost(self._gone(), hint=f"see its log, {self._simulator.log}"))
                if trio.current_time() >= log_at:
                    await trio.to_thread.run_sync(self._simulator.log.rotate)
                    log_at = trio.current_time() + LOG_EVERY
        finally:
            with trio.CancelScope(shield=True):
                await self.stop()

    async def while_alive(self, join: Callable[[], Awaitable[T]]) -> T:
        """What ``join`` returns, which would wait for long for one that has ended. Raises SimulatorNotFound then."""
        try:
            with trio.CancelScope() as self._joining:
                return await join()
        finally:
            self._joining = None
        raise SimulatorNotFound(
            f"the launched simulator {self.name} ended while it was joined, {self._simulator.end_told()}",
            hint=f"see its log, {self._simulator.log}",
        )

    async def explain(self, error: OspBridgeError) -> None:
        """Add to the error that ended a session that its process is gone, where it is: that may take it a moment."""
        if await self.has_ended():
            error.add(f"; {self._gone()}")

    async def has_ended(self) -> bool:
        """Whether its process has, for who has just met its closed port."""
        for _ in range(FELT_LOOKS):
            if not self._simulator.alive:
                return True
            await trio.sleep(FELT / FELT_LOOKS)
        return False

    def _gone(self) -> str:
        return f"the launched simulator is gone: {self._simulator.end_told()}"

    async def stop(self) -> None:
        """End its process, within some seconds. It may be started again."""
        await trio.to_thread.run_sync(self._simulator.stop)

    def close(self) -> None:
        """The same at the end of the daemon, where ``run`` has not; its core is anybody's from here on."""
        self._simulator.stop()
        self._release()

    def _release(self) -> None:
        if self._core is not None:
            self._core.release()
            self._core = None
