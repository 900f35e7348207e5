"""The daemon in Prometheus' words: a table of all metrics, and what reads their values when somebody asks.

Nothing is counted here: a status is made when it is asked for, and steps know nothing of it. prometheus_client, of the
extra ``metrics``, writes the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import ospbridge
from ospbridge.daemon.attachment import FREE, State
from ospbridge.hub.status import STEP_BOUNDS
from ospbridge.text import identifier

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

    from ospbridge.daemon.notifying import Overlook
    from ospbridge.hub.status import LaunchStatus, StatusReply, UpstreamStatus

__all__ = ["METRICS", "Look", "Metric", "registry"]

Sample: TypeAlias = tuple[tuple[str, ...], Any]
"""The values of labels, and the metric's."""


@dataclass(frozen=True, slots=True)
class Metric:
    """``read`` tells its samples of a whole daemon."""

    kind: str
    """``counter``, ``gauge`` or ``histogram``."""
    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Look], Iterable[Sample]]

    @property
    def shown(self) -> str:
        """The name that queries use."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _each(read: Callable[[StatusReply], Any]) -> Callable[[Look], Iterator[Sample]]:
    """One sample of each simulator."""
    return lambda look: (((simulator,), read(status)) for simulator, status in _statuses(look))


def _counted(read: Callable[[StatusReply], dict[Any, Any]]) -> Callable[[Look], Iterator[Sample]]:
    """One sample of each simulator and key; a key may be a tuple."""
    return lambda look: (
        ((simulator, *(key if isinstance(key, tuple) else (key,))), value)
        for simulator, status in _statuses(look)
        for key, value in read(status).items()
    )


def _upstream(read: Callable[[UpstreamStatus], Any]) -> Callable[[Look], Iterator[Sample]]:
    """One sample of each upstream for which it is known."""

    def samples(look: Look) -> Iterator[Sample]:
        for status in (relay.status for relay in look.relays):
            value = read(status)
            if value is not None:
                yield (status.address, status.mode), value

    return samples


def _statuses(look: Look) -> list[tuple[str, StatusReply]]:
    return [(status.name or status.simulator, status) for status in look.statuses]


def _states(status: StatusReply) -> dict[str, int]:
    states = dict.fromkeys((FREE, *(state.value for state in State)), 0)
    for agent in status.agents:
        states[agent.state] += 1
    return states


def _datagrams(status: StatusReply) -> dict[tuple[str, str], int]:
    counts = status.datagrams
    return {("sent", code): n for code, n in counts.sent.items()} | {
        ("received", code): n for code, n in counts.received.items()
    }


def _step_seconds(status: StatusReply) -> tuple[list[tuple[str, float]], float]:
    bounds = [*(f"{bound:g}" for bound in STEP_BOUNDS), "+Inf"]
    counts = accumulate(map(float, status.step_times.counts))
    return list(zip(bounds, counts, strict=True)), status.step_times.seconds


def _episodes(look: Look) -> Iterator[Sample]:
    for conductor in look.conductors:
        simulator = conductor.settings.name or conductor.settings.title
        for (agent, ended), count in conductor.stats.episodes.items():
            yield (simulator, agent, ended), count


def _recorded(read: Callable[[Any], int]) -> Callable[[Look], Iterator[Sample]]:
    return lambda look: (
        ((simulator,), read(status.recording))
        for simulator, status in _statuses(look)
        if status.recording is not None
    )


def _launched(read: Callable[[LaunchStatus], int]) -> Callable[[Look], Iterator[Sample]]:
    """One sample of each simulator that the daemon launches."""
    return lambda look: (
        ((simulator,), read(status.launched))
        for simulator, status in _statuses(look)
        if status.launched is not None
    )


_SIMULATOR: Final = ("simulator",)
_UPSTREAM: Final = ("upstream", "mode")
METRICS: Final = (
    Metric("gauge", "ospbridge_info", "The daemon's version; always 1.", ("version",),
           lambda _: [((ospbridge.__version__,), 1)]),
    Metric("gauge", "ospbridge_simulator_joined", "Whether the simulator is joined.", _SIMULATOR,
           _each(lambda status: int(status.ready))),
    Metric("gauge", "ospbridge_simulator_running", "Whether a simulator that the daemon launched runs.", _SIMULATOR,
           _launched(lambda launched: int(launched.pid is not None))),
    Metric("counter", "ospbridge_simulator_restarts", "How often the daemon launched it again.", _SIMULATOR,
           _launched(lambda launched: launched.restarts)),
    Metric("counter", "ospbridge_steps", "Steps of the simulator that this daemon ran.", _SIMULATOR,
           _each(lambda status: status.steps)),
    Metric("counter", "ospbridge_resets", "Resets of the simulator that this daemon ran.", _SIMULATOR,
           _each(lambda status: status.resets)),
    Metric("histogram", "ospbridge_step_seconds",
           "Seconds that a step of the simulator took, from the last step request to the outcome.", _SIMULATOR,
           _each(_step_seconds)),
    Metric("counter", "ospbridge_datagrams", "Datagrams of OSP, by direction and code.",
           ("simulator", "direction", "code"), _counted(_datagrams)),
    Metric("counter", "ospbridge_retries", "Requests that were repeated because no answer came.", _SIMULATOR,
           _each(lambda status: status.datagrams.retries)),
    Metric("counter", "ospbridge_rebuilds", "Sessions that were lost and rebuilt, by reason.",
           ("simulator", "reason"), _counted(lambda status: status.rebuilds_by_reason)),
    Metric("gauge", "ospbridge_agents", "Agents of the daemon, by the state of their driver.",
           ("simulator", "state"), _counted(_states)),
    Metric("counter", "ospbridge_episodes", "Episodes that are over, by agent and how they ended.",
           ("simulator", "agent", "ended"), _episodes),
    Metric("gauge", "ospbridge_episode_return", "Sum of the rewards of an agent's latest episode.",
           ("simulator", "agent"), _counted(lambda s: {a.name: a.returns[-1] for a in s.agents if a.returns})),
    Metric("gauge", "ospbridge_episode_return_mean", "Mean return of an agent's latest episodes, 64 at most.",
           ("simulator", "agent"),
           _counted(lambda s: {a.name: sum(a.returns) / len(a.returns) for a in s.agents if a.returns})),
    Metric("gauge", "ospbridge_episode_steps", "Steps of an agent's latest episode.", ("simulator", "agent"),
           _counted(lambda s: {a.name: a.lengths[-1] for a in s.agents if a.lengths})),
    Metric("gauge", "ospbridge_hub_clients", "Connections to the hub.", _SIMULATOR,
           _each(lambda status: status.clients)),
    Metric("counter", "ospbridge_recorded_episodes", "Episodes written to the recording's directory.", _SIMULATOR,
           _recorded(lambda recording: recording.recorded)),
    Metric("counter", "ospbridge_recording_dropped", "Episodes that could not be written.", _SIMULATOR,
           _recorded(lambda recording: recording.dropped)),
    Metric("gauge", "ospbridge_upstream_connected", "Whether the upstream is connected.", _UPSTREAM,
           _upstream(lambda status: int(bool(status.dialect)))),
    Metric("gauge", "ospbridge_weights_sequence", "Sequence number of the weights that act.", _UPSTREAM,
           _upstream(lambda status: status.weights_seq_no)),
    Metric("counter", "ospbridge_upstream_batches", "Batches that the upstream learned from.", _UPSTREAM,
           _upstream(lambda status: status.batches)),
    Metric("counter", "ospbridge_upstream_steps", "Steps that the upstream learned from, or that arrived there.",
           _UPSTREAM, _upstream(lambda status: status.steps + status.delivered)),
    Metric("counter", "ospbridge_upstream_discarded_steps",
           "Steps that nobody could learn from any more, or that could not be sent.", _UPSTREAM,
           _upstream(lambda status: status.discarded)),
    Metric("gauge", "ospbridge_spool_episodes", "Episodes, or pieces of long ones, that wait for the upstream.",
           _UPSTREAM, _upstream(lambda status: status.spool and status.spool.entries + status.spool.unwritten)),
    Metric("gauge", "ospbridge_spool_bytes", "Size of what waits on disk.", _UPSTREAM,
           _upstream(lambda status: status.spool and status.spool.bytes)),
    Metric("counter", "ospbridge_spool_dropped", "Episodes that the spool lost.", _UPSTREAM,
           _upstream(lambda status: status.spool and status.spool.dropped)),
)  # fmt: skip


class Look:
    """One look at the daemon, for all metrics of one answer: a status is made once, however many metrics read it."""

    def __init__(self, overlook: Overlook) -> None:
        self.conductors = overlook.conductors
        self.relays = overlook.relays
        self.statuses = overlook.statuses()


class _Collector:
    def __init__(self, overlook: Overlook) -> None:
        self._overlook = overlook

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        kinds = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        look = Look(self._overlook)
        for metric in METRICS:
            family = kinds[metric.kind](metric.name, metric.help, labels=metric.labels)
            for whose, value in metric.read(look):
                # Labels of two agents are never the same, which would make the whole answer invalid.
                labels = [identifier(str(label)) for label in whose]
                if metric.kind == "histogram":
                    family.add_metric(labels, *value)
                else:
                    family.add_metric(labels, value)
            yield family


def registry(overlook: Overlook) -> CollectorRegistry:
    """Everything of the daemon, and of its process. Raises ImportError without the extra."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    made = CollectorRegistry()
    made.register(_Collector(overlook))
    ProcessCollector(registry=made)
    return made
