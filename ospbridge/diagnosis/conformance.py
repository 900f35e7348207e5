"""Probing a server for all deviations, one by one, with nothing left behind.

What one probe makes of the connection does not reach the next: a lost or silent handler is replaced, the probe tried
again, and only what stays without an answer is not tried. A server that answers nothing any more ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self

from ospbridge.diagnosis.connecting import SETTLING
from ospbridge.diagnosis.deviations import DEVIATIONS, ORDER
from ospbridge.diagnosis.findings import Deviation, Finding, Verdict, not_tried
from ospbridge.diagnosis.greeting import Server
from ospbridge.diagnosis.stage import Stage
from ospbridge.errors import (
    AgentTaken,
    LocalProtocolError,
    OspBridgeError,
    QueryTimeout,
    RemoteProtocolError,
    SessionLost,
    SimulatorNotFound,
)
from ospbridge.text import listed
from ospbridge.transport.addresses import resolve

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ospbridge.interface import Endpoint
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.profile import Profile

__all__ = ["Conformance", "Report"]

TRIES: Final = 3
"""How often a probe is begun that loses its handler or gets no answer."""
MUTE: Final = 3
"""Probes in a row without an answer, after which the server must answer a plain question, or is given up."""
LONGEST: Final = 180.0
"""Seconds for all probes; those that are left then are not tried."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found: of each deviation, by number."""

    profile: Profile
    agents: tuple[str, ...]
    findings: tuple[tuple[Deviation, Finding], ...]

    def count(self, verdict: Verdict) -> int:
        """How many findings say so."""
        return sum(finding.verdict is verdict for _, finding in self.findings)


class Conformance:
    """Joins the simulator at ``simulator`` when it is made; to be closed, or used as a context manager.

    ``invasive``: also try what ends other clients' sessions, or needs a second client. ``timeout``: seconds for the
    simulator to answer an INIT. ``trace`` gets every datagram. Raises SimulatorNotFound, SimulatorSilent,
    VersionRefused or ConfigurationError.
    """

    def __init__(
        self,
        simulator: Endpoint,
        *,
        invasive: bool = False,
        timeout: float = 10.0,
        trace: TraceWriter | None = None,
    ) -> None:
        self._trace = trace
        self._invasive = invasive
        self._mute = 0
        self._stage = Stage(Server(resolve(simulator), trace), timeout=timeout)

    def run(self, told: Callable[[Deviation], None] = lambda _: None) -> Report:
        """Probe; ``told`` is called before each deviation. Raises SessionLost, QueryTimeout, RemoteProtocolError."""
        agents = tuple(agent.name for agent in self._stage.agents())
        give_up = monotonic() + LONGEST
        found: dict[str, Finding] = {}
        for deviation in ORDER:
            told(deviation)
            if self._trace is not None:
                self._trace.note(f"{deviation.id} {deviation.title}")
            if monotonic() > give_up:
                found[deviation.id] = not_tried(f"the time was up after {LONGEST:.0f} s")
            else:
                found[deviation.id] = self._finding(deviation)
        return Report(
            self._stage.profile,
            agents,
            tuple((deviation, found[deviation.id]) for deviation in DEVIATIONS),
        )

    def _finding(self, deviation: Deviation) -> Finding:
        if deviation.invasive and not self._invasive:
            return not_tried("it needs a second client, or ends the sessions of all: --invasive tries it")
        problem: OspBridgeError | None = None
        for _ in range(TRIES):
            try:
                self._stage.line.drain()
                found = self._prevented(deviation) or deviation.probe(self._stage)
            except (QueryTimeout, SessionLost) as error:
                problem = error
                self._rejoin(deviation, gone=isinstance(error, SessionLost))
            except (AgentTaken, RemoteProtocolError, LocalProtocolError) as error:
                self._rejoin(deviation)
                self._mute = 0
                return not_tried(error.message)
            except SimulatorNotFound as error:
                raise self._lost(deviation, error) from None
            else:
                self._mute = 0
                return found
        assert problem is not None
        self._mute += 1
        if self._mute >= MUTE:
            # One that still says which agents it has only knows nothing of what was asked.
            self._stage.agents()
            self._mute = 0
        return not_tried(f"{problem.message} ({TRIES} tries)")

    def _rejoin(self, deviation: Deviation, *, gone: bool = False) -> None:
        if gone:
            self._stage.line.forget()
            # Somebody may have restarted the communication: an INIT at once would be lost, or worse.
            sleep(SETTLING)
        try:
            self._stage.rejoin()
        except SimulatorNotFound as error:
            raise self._lost(deviation, error) from None

    def _lost(self, deviation: Deviation, error: SimulatorNotFound) -> SessionLost:
        return SessionLost(
            f"{self._stage.server} was there and is gone, while {deviation.id} ({deviation.title}) was probed: "
            f"{error.message}",
            hint="see whether the simulator still runs, and its own log",
        )

    def _prevented(self, deviation: Deviation) -> Finding | None:
        """Why this deviation cannot be tried now; None if it can."""
        if not (deviation.alone or deviation.agents):
            return None
        agents = self._stage.agents()
        taken = [agent.name for agent in agents if not agent.available]
        if deviation.alone and taken:
            return not_tried(f"other clients control {listed(taken)}, and would be disturbed")
        if len(agents) < deviation.agents:
            has = f"has {len(agents)}" if agents else "has none"
            return not_tried(f"it takes {deviation.agents} agents, and the simulator {has}")
        return None

    def close(self) -> None:
        """Give everything back, and leave. Takes a few seconds at most, and never raises."""
        self._stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
