"""A source that shows whatever a test wants to be shown, and a dashboard of it at a real socket."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import msgspec
import numpy as np
import trio

from ospbridge.dashboard.address import Access
from ospbridge.dashboard.serving import Dashboard
from ospbridge.errors import AgentNotFound
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.replies import Kind, Moment, Moments
from ospbridge.hub.status import (
    AgentStatus,
    DatagramCounts,
    SpoolStatus,
    StatusReply,
    StepTimes,
    UpstreamStatus,
)
from ospbridge.interface import AgentInterface, BoxSpace, Endpoint, InterfaceValue
from ospbridge.observe.recent import Warned


def upstream(trouble: str = "") -> UpstreamStatus:
    return UpstreamStatus(
        "127.0.0.1:5555",
        "observe",
        trouble=trouble,
        dialect="" if trouble else "msgpack",
        weights_seq_no=7,
        delivered=1234,
        spool=SpoolStatus("/var/lib/ospbridge/spool.sqlite", entries=3, bytes=4096),
    )


def status(**changed: object) -> StatusReply:
    """Of a daemon whose one agent an environment plays, and from which an upstream learns."""
    agents = [AgentStatus("robot", "playing", "python (pid 7)", 12, 2, [1.5, 2.5], [10, 20])]
    told = StatusReply(True, "127.0.0.1:45454", "joined", "nerd", agents, 42, 3, 0, 100.0, "0.1", 4711)
    usual: dict[str, object] = {
        "upstreams": [upstream()],
        "step_times": StepTimes((0, 4, 30, 8) + (0,) * 15, 0.004),
        "datagrams": DatagramCounts({"NEXT_SIMULATION_STEP": 42}, {"NEXT_SIMULATION_STEP_COMPLETED": 42}, 1),
        "clients": 1,
    }
    return msgspec.structs.replace(told, **(usual | changed))


def description(outputs: int = 2, inputs: int = 1) -> AgentDescription:
    sensors = tuple(InterfaceValue(f"/sensor/{at}", -1.0, 1.0) for at in range(outputs))
    motors = tuple(InterfaceValue(f"/motor/{at}", -1.0, 1.0) for at in range(inputs))
    interface = AgentInterface(0, "robot", motors, sensors, (InterfaceValue("/battery", 0.0, math.inf),))
    return AgentDescription.of(interface, _box(outputs), _box(inputs))


def _box(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -1.0, np.float32), np.full(size, 1.0, np.float32))


def moment(
    number: int,
    kind: Kind = Kind.STEP,
    *,
    step: int | None = None,
    sensors: int = 2,
    motors: int = 1,
    terminated: bool = False,
) -> Moment:
    inputs = np.full(motors, 0.5, np.float32).tobytes() if kind is Kind.STEP else b""
    observation = np.full(sensors, number / 1000, np.float32).tobytes()
    infos = np.ones(1, np.float32).tobytes()
    step = number if step is None else step
    return Moment(number, kind, 1, step, inputs, observation, infos, 1.0, terminated, False, "", 5)


@dataclass
class SyntheticSource:
    """Tells what a test puts into it. Its agents are those of its statuses."""

    told: list[StatusReply] = field(default_factory=lambda: [status()])
    warned: list[Warned] = field(default_factory=list)
    described: AgentDescription = field(default_factory=description)
    watchers: int = 0
    looks: int = 0
    pause: float = 0.01
    """Seconds between two batches of moments."""
    batch: int = 3
    number: int = 0

    def statuses(self) -> list[StatusReply]:
        self.looks += 1
        return self.told

    def warnings(self) -> list[Warned]:
        return self.warned

    @contextmanager
    def watching(self, simulator: str, agent: str) -> Iterator[_Watching]:
        if not any(simulator == s.name and agent in {a.name for a in s.agents} for s in self.statuses()):
            raise AgentNotFound(f"the daemon has no agent {agent!r}")
        self.watchers += 1
        try:
            yield _Watching(self)
        finally:
            self.watchers -= 1


@dataclass
class _Watching:
    source: SyntheticSource

    @property
    def description(self) -> AgentDescription:
        return self.source.described

    async def moments(self) -> Moments:
        source = self.source
        await trio.sleep(source.pause)
        first = source.number + 1
        source.number += source.batch
        sensors, motors = len(self.description.outputs), len(self.description.inputs)
        numbers = range(first, source.number + 1)
        return Moments([moment(number, sensors=sensors, motors=motors) for number in numbers])


@asynccontextmanager
async def opened(
    source: SyntheticSource, *, token: str = "", names: tuple[str, ...] = ()
) -> AsyncIterator[Dashboard]:
    """A dashboard at a free port, that is ended in order."""
    with Dashboard(Endpoint("127.0.0.1", 0), Access(token=token, names=names)) as dashboard:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dashboard.run, source)
            yield dashboard
            nursery.cancel_scope.cancel()
