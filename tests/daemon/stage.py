"""Agents, outcomes, a session and the conductor of it that exist only in memory."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import trio
import trio.testing

from ospbridge.daemon.attachment import Attachment, Driver, State
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.recording import Recording
from ospbridge.daemon.settings import Settings
from ospbridge.interface import AgentInterface, Endpoint, Feedback, InterfaceValue, StepOutcome
from ospbridge.osp.clock import StepClock
from ospbridge.osp.timing import Limits
from ospbridge.record.reading import read_recording
from ospbridge.task.plain import PlainTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.errors import OspBridgeError
    from ospbridge.record.episode import RecordedEpisode
    from ospbridge.session.trio_session import TrioSession

ONE = Driver("one.py", 11)
TWO = Driver("two.py", 22)


def agent(name: str, low: float = -1.0, *, outputs: int = 1) -> AgentInterface:
    """One input, one output, and the infos of an agent that scores its episodes."""
    return AgentInterface(
        1,
        name,
        (InterfaceValue("/in", low, 1.0),),
        tuple(InterfaceValue(f"/out{at or ''}", -1.0, 1.0) for at in range(outputs)),
        (InterfaceValue("/episode/reward", 0.0, 1.0), InterfaceValue("/episode/terminated", 0.0, 1.0)),
    )


def outcome(value: float, *, outputs: int = 1, reward: float = 0.0, ended: bool = False) -> StepOutcome:
    return StepOutcome(np.full(outputs, value, np.float32), np.array([reward, ended], np.float32))


def inputs(value: float) -> bytes:
    return np.array([value], "<f4").tobytes()


class FakeMachine:
    """What the conductor looks at of a session's machine."""

    def __init__(self) -> None:
        self.notices: list[Any] = []
        self.foreign: frozenset[str] = frozenset()
        self.vote_outstanding = False
        self.retries = 0
        self.lost: OspBridgeError | None = None
        self.may_say_goodbye = True
        self.clock = StepClock()


class FakeSession:
    """Every agent's output is its input; a step takes ``think`` seconds. ``errors`` are raised, one a call."""

    def __init__(self, *names: str, think: float = 0.0) -> None:
        self.names = names
        self.think = think
        self.outputs = 1
        self.machine = FakeMachine()
        self.over = False
        self.clock = trio.current_time
        self.requests: tuple[Any, ...] = ()
        self.steps: list[dict[str, float]] = []
        self.seeds: list[int] = []
        self.ending: dict[str, int] = {}
        """Agents whose episode ends with that step since the reset."""
        self.step_errors: list[OspBridgeError] = []
        self.errors_behind = 0
        """So many steps go well before."""
        self.reset_errors: list[OspBridgeError] = []
        self.audit_says = ""
        self.audits = 0
        self.told: list[Any] = []
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
        actions = {name: np.frombuffer(inputs, "<f4") for name, inputs in given.items()}
        assert not self._busy, "two steps at once"
        assert set(actions) == set(self.names)
        self._busy = True
        try:
            await trio.sleep(self.think)
        finally:
            self._busy = False
        if self.step_errors and len(self.steps) >= self.errors_behind:
            raise self.step_errors.pop(0)
        return self.taken(given)

    def taken(self, given: Mapping[str, NDArray[np.float32] | bytes]) -> dict[str, StepOutcome]:
        """The step has run."""
        actions = {name: np.frombuffer(inputs, "<f4") for name, inputs in given.items()}
        self._count += 1
        self.steps.append({name: float(values[0]) for name, values in actions.items()})
        return {
            name: outcome(
                float(values[0]),
                outputs=self.outputs,
                reward=1.0,
                ended=self.ending.get(name) == self._count,
            )
            for name, values in actions.items()
        }

    async def audit(self) -> str:
        await trio.lowlevel.checkpoint()
        self.audits += 1
        return self.audit_says

    async def audit_previous(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.audit_says

    def pop_notices(self) -> list[Any]:
        notices, self.machine.notices = self.machine.notices, []
        return notices


# --- at a conductor --------------------------------------------------------------------------------------------------


def conductor_of(session: FakeSession, **changes: Any) -> Conductor:
    settings = Settings(
        hub=Path("hub"), simulator=Endpoint("sim", 1), limits=Limits(step=30.0, reset=60.0), **changes
    )
    conductor = Conductor(settings)
    conductor._keeper.session = cast("TrioSession", session)
    conductor.lockstep.take_agents([PlainTask(agent(name), bounded=True) for name in session.names])
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


async def both_playing(conductor: Conductor) -> tuple[Attachment, Attachment]:
    a, b = attach(conductor, "a", ONE), attach(conductor, "b", TWO)
    conductor.lockstep.quorum = 2
    await together(lambda: conductor.reset([a], 1, 1), lambda: conductor.reset([b], 0, 2))
    assert a.state is b.state is State.PLAYING
    return a, b


class Absent:
    """Acts for an agent, and has no task that waits, as a connection of the hub."""

    def __init__(self, conductor: Conductor, attachment: Attachment) -> None:
        self.conductor = conductor
        self.attachment = attachment
        self.acting: Sequence[Attachment] = ()
        self.asked = self.spent = 0.0
        self.told: list[float | None] = []
        """The observations that it was told of; None: there is none, but an error."""
        self.called = trio.Event()

    def act(self, value: float) -> bool:
        self.acting = self.conductor.barrier.act([(self.attachment, inputs(value))])
        return self.conductor.barrier.leave(self, trio.current_time())

    def stepped(self) -> None:
        """Who was called is told with the others, and again by its own task."""
        if self.acting:
            feedback = self.attachment.feedback
            self.told.append(None if feedback is None else feedback.observation.item())
        self.acting = ()

    def call(self) -> None:
        self.called.set()

    async def wait(self) -> None:
        await self.conductor.barrier.wait(self.acting, self.asked, self.spent)
        self.stepped()


@contextmanager
def recorded(conductor: Conductor, directory: Path) -> Iterator[Recording]:
    """All that ended is on disk behind this."""
    with Recording(directory) as recording:
        conductor.chronicle.listeners.append(recording)
        yield recording
        conductor.chronicle.close()


def episodes(directory: Path, name: str = "a") -> list[RecordedEpisode]:
    return [episode for episode in read_recording(directory) if episode.agent == name]
