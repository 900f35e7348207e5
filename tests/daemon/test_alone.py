"""Steps of an agent that plays alone: taken with its action, where no other task can have its turn meanwhile."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.daemon import alone as daemon_alone
from ospbridge.daemon.attachment import State
from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.errors import SessionLost
from ospbridge.hub.replies import Feedbacks
from ospbridge.hub.requests import Again, Reset, Step
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.hubs import Line, acting, again, in_thread, observed, play, serving, values, wanted
from tests.daemon.stage import FakeSession, attach, conductor_of, inputs, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.interface import StepOutcome

pytestmark = pytest.mark.trio


class QuickSession(FakeSession):
    """Of one agent; its steps need no other task, unless it ``pauses``."""

    def __init__(self, *names: str, **changes: Any) -> None:
        super().__init__(*(names or ("a",)), **changes)
        self.requests = tuple(SimpleNamespace(name=name) for name in self.names)
        self.pauses = False
        self.at_once = 0
        self._given: dict[str, NDArray[np.float32] | bytes] = {}

    def try_step(self, given: Iterable[NDArray[np.float32] | bytes]) -> dict[str, StepOutcome] | None:
        self._given = dict(zip(self.names, given, strict=True))
        if self.pauses:
            return None
        self.at_once += 1
        return self.taken(self._given)

    async def finish_step(self) -> dict[str, StepOutcome]:
        return await super().step(self._given)


@pytest.fixture
def session() -> QuickSession:
    return QuickSession()


class Alone:
    """Acts for the only agent, and has whatever is left of the step run, as who leads at a hub does."""

    def __init__(self, conductor: Conductor, attachment: Attachment) -> None:
        self.conductor = conductor
        self.attachment = attachment
        self.movers = [attachment]
        self.acting: Sequence[Attachment] = ()
        self.asked = self.spent = 0.0
        self.told = 0

    @classmethod
    async def playing(cls, session: FakeSession, **changes: Any) -> Alone:
        conductor = conductor_of(session, **changes)
        attachment = attach(conductor, session.names[0])
        await conductor.reset([attachment], 7, 1)
        return cls(conductor, attachment)

    @property
    def may(self) -> bool:
        return self.conductor.barrier.alone.may(self.movers)

    async def act(self, value: float) -> bool:
        """Whether the step was over at once."""
        barrier = self.conductor.barrier
        assert self.may
        if barrier.alone.step([(self.attachment, inputs(value))], None):
            return True
        self.acting = self.movers
        barrier.leave(self, trio.current_time())
        assert barrier.alone.begun or barrier.due
        await barrier.run()
        assert not barrier.alone.begun
        return False

    def stepped(self) -> None:
        self.told += 1
        self.acting = ()

    def call(self) -> None:
        raise AssertionError("nobody else runs the step")


async def test_a_step_at_once_tells_and_counts_what_any_other_does(session: QuickSession) -> None:
    alone = await Alone.playing(session)
    a, conductor = alone.attachment, alone.conductor
    before = conductor.steps
    for value in (0.25, -0.5):
        assert await alone.act(value)
        assert told(a).observation.tolist() == [value]
        assert session.steps[-1] == {"a": value}
    assert session.at_once == 2
    assert (a.steps, a.reward, conductor.steps - before) == (2, 2.0, 2)
    assert sum(conductor.measures.step_times.counts) == 2


async def test_a_step_that_takes_longer_is_run_to_its_end_and_given_once(session: QuickSession) -> None:
    alone = await Alone.playing(session)
    session.pauses = True
    given = len(session.steps)
    assert not await alone.act(0.25)
    assert alone.told == 1
    assert told(alone.attachment).observation.tolist() == [0.25]
    assert len(session.steps) == given + 1
    assert alone.attachment.steps == 1
    assert not alone.conductor._keeper.busy
    session.pauses = False
    assert await alone.act(0.5)


async def test_a_step_that_ends_the_episode_is_audited_and_judged_once(session: QuickSession) -> None:
    session.ending = {"a": 2}
    alone = await Alone.playing(session)
    a = alone.attachment
    assert await alone.act(0.25)
    assert not await alone.act(0.5)
    assert alone.told == 1
    assert session.audits == 1
    assert told(a).terminated
    assert (a.state, a.steps, a.reward) == (State.DONE, 2, 2.0)
    assert not alone.may


async def test_a_reset_by_others_truncates_it(session: QuickSession) -> None:
    alone = await Alone.playing(session)
    session.machine.notices = [WorldReset("somebody reset the world")]
    assert not await alone.act(0.25)
    assert told(alone.attachment).truncated
    assert alone.told == 1
    assert session.at_once == 1


async def test_a_session_that_is_lost_on_the_way_cuts_the_episode(session: QuickSession) -> None:
    alone = await Alone.playing(session)
    session.pauses = True
    session.step_errors.append(SessionLost("the handler is gone"))
    await alone.act(0.25)
    assert told(alone.attachment).reason == "the handler is gone"
    assert alone.conductor._keeper.broken == "the handler is gone"


# --- at a hub, over real sockets ----------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Steps that were over at once, and those that were only begun so."""
    # However slow this machine is, who leads goes on leading.
    monkeypatch.setattr(hub_watch, "LINGER", 0.3)
    found: Counter[bool] = Counter()
    step = daemon_alone.Alone.step

    def spy(alone: daemon_alone.Alone, moves: Any, inputs: Any) -> bool:
        over = step(alone, moves, inputs)
        found[over] += 1
        return over

    monkeypatch.setattr(daemon_alone.Alone, "step", spy)
    return found


@pytest.mark.loopback
async def test_one_that_hangs_up_in_such_a_step_leaves_the_agent_to_the_next(
    tmp_path: Path, taken: Counter[bool]
) -> None:
    path = tmp_path / "hub"
    world = SyntheticWorld(2, 3, agents=1, think=0.02)
    with UdpSimulator(world, port=0, profile=DOCUMENT) as simulator:
        async with serving(simulator, path, spin=True) as conductor:
            for _ in range(3):
                with closing(await in_thread(Line.playing, path, "agent")) as line:
                    for request in (*acting(0.5, agent="agent"), *again(0.25)):
                        await in_thread(line.ask, request)
                    line.say(*again(0.75))
                    await trio.sleep(0.01)
            while conductor.lockstep.attachments:
                await trio.sleep(0.01)
            await in_thread(play, path, "agent", 5)
            assert conductor.rebuilds == 0


@pytest.mark.loopback
async def test_who_drives_all_agents_has_their_steps_taken_at_once(
    document: UdpSimulator, tmp_path: Path, taken: Counter[bool]
) -> None:
    path = tmp_path / "hub"
    named = Step([("agent1", values(0.25).tobytes()), ("agent2", values(0.5).tobytes())])
    more = Again(values(0.5).tobytes() + values(0.75).tobytes())
    async with serving(document, path, spin=True) as conductor:
        with closing(await in_thread(Line.playing, path, "*")) as line:

            def episode() -> None:
                assert isinstance(line.ask(named), Feedbacks)
                for step in range(2, 50):
                    assert observed(line.ask(more)) == [*wanted(0.5, step), *wanted(0.75, step)]
                assert isinstance(line.ask(Reset(5)), Feedbacks)

            for _ in range(3):
                await in_thread(episode)
            assert [a.steps for a in conductor.lockstep.playing] == [0, 0]
        assert [held.lengths[-1] for held in conductor.lockstep.held.values()] == [49, 49]
        assert conductor.steps == 4 + 3 * 49
    assert sum(taken.values()) > 10
