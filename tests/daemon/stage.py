"""Agents, outcomes, a session and the conductor of it that exist only in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import trio
import trio.testing
from numpy.typing import NDArray

from ospbridge.daemon.attachment import Attachment, Driver, State
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.recording import Recording
from ospbridge.daemon.settings import Settings
from ospbridge.errors import OspBridgeError
from ospbridge.interface import AgentInterface, Endpoint, Feedback, InterfaceValue, StepOutcome
from ospbridge.osp.clock import StepClock
from ospbridge.osp.timing import Limits
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.reading import read_recording
from ospbridge.session.trio_session import TrioSession
from ospbridge.task.plain import PlainTask

ONE = Driver("one.py", 11)
TWO = Driver("two.py", 22)


def agent(name: str, low: float = -1.0) -> AgentInterface:
    """One input, one output, and the infos of an agent that scores its episodes."""
    return AgentInterface(
        1,
        name,
        (InterfaceValue("/in", low, 1.0),),
        (InterfaceValue("/out", -1.0, 1.0),),
        (InterfaceValue("/episode/reward", 0.0, 1.0), InterfaceValue("/episode/terminated", 0.0, 1.0)),
    )


def tasks(*agents: AgentInterface) -> list[PlainTask]:
    return [PlainTask(each, bounded=True) for each in agents]


def inputs(value: float) -> bytes:
    return np.array([value], "<f4").tobytes()


class Logs:
    """What is logged in a test."""

    def __init__(self, entries: Sequence[Any]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def of(self, event: str) -> list[Any]:
        return [entry for entry in self if event in entry["event"]]


class FakeSession:
    """Every agent's output is its input; a step takes ``think`` seconds. Errors are raised, one a call; None: none."""

    over = False
    audit_says = ""
    pauses = False
    """No step is over at once."""

    def __init__(self, *names: str, think: float = 0.0) -> None:
        self.names = names
        self.think = think
        self.machine = SimpleNamespace(
            notices=[],
            foreign=frozenset(),
            vote_outstanding=False,
            retries=0,
            lost=None,
            may_say_goodbye=True,
            clock=StepClock(),
        )
        self.clock = trio.current_time
        self.requests = tuple(SimpleNamespace(name=name) for name in names)
        self.steps: list[dict[str, float]] = []
        self.seeds: list[int] = []
        self.ending: dict[str, int] = {}
        """Agents whose episode ends with that step since the reset."""
        self.step_errors: list[OspBridgeError | None] = []
        self.reset_errors: list[OspBridgeError] = []
        self.audits = 0
        self._count = 0
        self._busy = False

    async def reset(self, seed: int) -> bool:
        await trio.lowlevel.checkpoint()
        if self.reset_errors:
            raise self.reset_errors.pop(0)
        self.seeds.append(seed)
        self._count = -1
        return True

    async def step(self, given: Mapping[str, NDArray[np.float32] | bytes]) -> dict[str, StepOutcome]:
        assert not self._busy, "two steps at once"
        assert set(given) == set(self.names)
        self._busy = True
        try:
            await trio.sleep(self.think)
        finally:
            self._busy = False
        error = self.step_errors.pop(0) if self.step_errors else None
        if error is not None:
            raise error
        return self._taken(given)

    def try_step(self, given: Iterable[NDArray[np.float32] | bytes]) -> dict[str, StepOutcome] | None:
        self._given = dict(zip(self.names, given, strict=True))
        return None if self.pauses else self._taken(self._given)

    async def finish_step(self) -> dict[str, StepOutcome]:
        return await self.step(self._given)

    def _taken(self, given: Mapping[str, NDArray[np.float32] | bytes]) -> dict[str, StepOutcome]:
        """The step has run."""
        self._count += 1
        values = {name: np.frombuffer(data, "<f4") for name, data in given.items()}
        self.steps.append({name: float(value[0]) for name, value in values.items()})
        return {
            name: StepOutcome(value.copy(), np.array([1.0, self.ending.get(name) == self._count], np.float32))
            for name, value in values.items()
        }

    async def audit(self) -> str:
        await trio.lowlevel.checkpoint()
        self.audits += 1
        return self.audit_says

    async def audit_previous(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.audit_says

    def pop_notices(self) -> list[Any]:
        notices: list[Any] = self.machine.notices
        self.machine.notices = []
        return notices


# --- at a conductor --------------------------------------------------------------------------------------------------


def conductor_of(session: FakeSession, **changes: Any) -> Conductor:
    settings = Settings(
        hub=Path("hub"), simulator=Endpoint("sim", 1), limits=Limits(step=30.0, reset=60.0), **changes
    )
    conductor = Conductor(settings)
    conductor.supervisor.session = cast("TrioSession", session)
    conductor.lockstep.take_agents(tasks(*map(agent, session.names)))
    return conductor


def attach(conductor: Conductor, name: str, driver: Driver = ONE) -> Attachment:
    (attachment,) = conductor.attach([name], driver)
    return attachment


def told(attachment: Attachment) -> Feedback:
    assert attachment.feedback is not None
    return attachment.feedback


async def play(conductor: Conductor, attachment: Attachment, value: float) -> Feedback:
    await conductor.step([(attachment, inputs(value))])
    return told(attachment)


async def together(*calls: Callable[[], Awaitable[Any]]) -> None:
    async def run(call: Callable[[], Awaitable[Any]]) -> None:
        await call()

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(run, call)
            await trio.testing.wait_all_tasks_blocked()


async def alone(session: FakeSession, **changes: Any) -> tuple[Conductor, Attachment]:
    """A conductor at which agent ``a`` plays, of seed 7."""
    conductor = conductor_of(session, **changes)
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    return conductor, a


async def both(session: FakeSession, **changes: Any) -> tuple[Conductor, Attachment, Attachment]:
    """A conductor at which agents ``a`` and ``b`` play, of two processes and seed 1."""
    conductor = conductor_of(session, quorum=2, **changes)
    a, b = attach(conductor, "a"), attach(conductor, "b", TWO)
    await together(lambda: conductor.reset([a], 1, 1), lambda: conductor.reset([b], 0, 2))
    assert a.state is b.state is State.PLAYING
    return conductor, a, b


async def act(conductor: Conductor, **values: float) -> None:
    """Those agents act, each by a task of its own."""
    found = {attachment.name: attachment for attachment in conductor.lockstep.attachments}
    await together(*(partial(play, conductor, found[name], value) for name, value in values.items()))


class Absent:
    """Acts for an agent, and has no task that waits, as a connection of the hub."""

    def __init__(self, conductor: Conductor, attachment: Attachment) -> None:
        self.conductor = conductor
        self.attachment = attachment
        self.acting: Sequence[Attachment] = ()
        self.told: list[float | None] = []
        """The observations that it was told of; None: there is none, but an error."""
        self.called = trio.Event()

    def act(self, value: float) -> bool:
        self.acting = self.conductor.barrier.act([(self.attachment, inputs(value))])
        return self.conductor.barrier.leave(self, trio.current_time())

    async def act_alone(self, value: float) -> bool:
        """Whether the step was over at once; whatever is left of it is run, as by who leads at a hub."""
        barrier = self.conductor.barrier
        assert barrier.may_step_at_once([self.attachment])
        if barrier.step_at_once([(self.attachment, inputs(value))], None, trio.current_time()):
            return True
        self.acting = [self.attachment]
        barrier.leave(self, trio.current_time())
        await barrier.run()
        return False

    def stepped(self) -> None:
        """Who was called is told with the others, and again by its own task."""
        if self.acting:
            feedback = self.attachment.feedback
            self.told.append(None if feedback is None else feedback.observation.item())
        self.acting = ()

    def call(self) -> None:
        self.called.set()

    async def wait(self) -> None:
        await self.conductor.barrier.wait(self.acting)
        self.stepped()


@contextmanager
def recorded(conductor: Conductor, directory: Path) -> Iterator[Recording]:
    """All that ended is on disk behind this."""
    with Recording(directory) as recording:
        conductor.tracker.listeners.append(recording)
        yield recording
        conductor.tracker.close()


def episodes(directory: Path, name: str = "a") -> list[RecordedEpisode]:
    return [episode for episode in read_recording(directory) if episode.agent == name]
