"""Whether a simulator and a daemon answer, and what they say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.diagnosis.checks import Check, advice, problem, well
from ospbridge.diagnosis.stalls import check_scheduling
from ospbridge.errors import OspBridgeError
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient
from ospbridge.session.names import NO_SCENE
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ospbridge.interface import AgentEntry, Endpoint
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.transport.tls import TlsFiles

__all__ = ["check_hub", "check_simulator"]


def check_simulator(
    simulator: Endpoint, *, timeout: float, trace: TraceWriter | None = None
) -> Iterator[Check]:
    """Join as a client that only looks, and leave again; then see how its threads are scheduled."""
    subject = f"simulator {simulator}"
    try:
        with BlockingSession.connect(
            simulator,
            limits=Limits(connect=timeout, query=min(timeout, 5.0)),
            reclaim_stale=False,
            trace=trace,
        ) as session:
            profile = session.profile
            agents = session.agents()
    except OspBridgeError as error:
        yield problem(subject, error.message, error.hint)
        return
    yield _answers(subject, profile.name, agents)
    scheduled = check_scheduling(simulator, profile)
    if scheduled is not None:
        yield scheduled


def _answers(subject: str, profile: str, agents: Sequence[AgentEntry]) -> Check:
    taken = [agent.name for agent in agents if not agent.available]
    if not agents:
        return problem(
            subject,
            f"answers (profile {profile}), and offers no agents",
            NO_SCENE,
        )
    detail = f"answers (profile {profile}); {pluralize(len(agents), 'agent')}, {len(agents) - len(taken)} of them free"
    if len(taken) == len(agents):
        return advice(
            subject,
            f"{detail}: {listed(taken)} taken",
            "stop the client that has them; if it died: ospbridge restart-communication",
        )
    return well(subject, detail)


def check_hub(hub: str | None, *, timeout: float, tls: TlsFiles | None = None) -> Check:
    """Say hello to a daemon and ask how it is; ``hub`` None is the usual place."""
    subject = f"daemon {hub or 'at the usual place'}"
    try:
        client = HubClient.connect(hub, timeout=timeout, spin=False, tls=tls)
        try:
            status = client.status()
        finally:
            client.close()
    except OspBridgeError as error:
        return problem(subject, error.message, error.hint)
    if not status.ready:
        return problem(
            subject,
            f"ospbridge {status.version}, pid {status.pid}; it has no simulator: {status.connection}",
            f"start the simulator at {status.simulator}",
        )
    troubled = [
        f"{upstream.address}: {upstream.trouble}" for upstream in status.upstreams if upstream.trouble
    ]
    if troubled:
        return problem(
            subject,
            f"an RLlink server is away: {'; '.join(troubled)}",
            "start it; the daemon connects by itself",
        )
    return well(
        subject,
        f"ospbridge {status.version}, pid {status.pid}, joined "
        f"{status.simulator} with {pluralize(len(status.agents), 'agent')}",
    )
