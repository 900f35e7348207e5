"""Steps of an agent that plays alone: taken with its action, where no other task can have its turn meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.daemon.attachment import State
from ospbridge.errors import LocalProtocolError, SessionLost
from ospbridge.osp.client.notices import WorldReset
from tests.daemon.stage import ONE, FakeSession, attach, conductor_of, inputs, play, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.interface import StepOutcome

pytestmark = pytest.mark.trio


class QuickSession(FakeSession):
    """Of one agent; its steps need no other task, unless it ``pauses``."""

    def __init__(self, *names: str, **changes: Any) -> None:
        super().__init__(*(names or ("a",)), **changes)
        self.votes_at_once = tuple(SimpleNamespace(name=name) for name in self.names)
        self.pauses = False
        self.at_once = 0
        self._given: dict[str, NDArray[np.float32] | bytes] = {}

    def step_at_once(self, given: Iterable[NDArray[np.float32] | bytes]) -> dict[str, StepOutcome] | None:
        self._given = dict(zip(self.names, given, strict=True))
        for mine in self._given.values():
            if not isinstance(mine, bytes) and len(mine) != 1:
                raise LocalProtocolError("one input")
        if self.pauses:
            return None
        self.at_once += 1
        return self.taken(self._given)

    async def step_on(self) -> dict[str, StepOutcome]:
        return await super().step(self._given)

    async def step(self, given: Mapping[str, NDArray[np.float32] | bytes]) -> dict[str, StepOutcome]:
        for mine in given.values():
            if not isinstance(mine, bytes) and len(mine) != 1:
                raise LocalProtocolError("one input")
        return await super().step(given)


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
    # And steps in between that go the usual way see nothing of it.
    assert (await play(conductor, a, 0.75)).observation.tolist() == [0.75]
    assert alone.may
    assert (a.steps, a.reward) == (3, 3.0)


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


async def test_who_drives_all_agents_is_alone_with_them() -> None:
    session = QuickSession("a", "b")
    session.ending = {"b": 2}
    conductor = conductor_of(session)
    movers = conductor.attach(["*"], ONE)
    assert not conductor.barrier.alone.may(movers)
    await conductor.reset(movers, 7, 1)
    assert conductor.barrier.alone.may(movers)
    assert not conductor.barrier.alone.may(movers[::-1])
    moves = [(mover, inputs(0.25)) for mover in movers]
    given = [data for _, data in moves]
    assert conductor.barrier.alone.step(moves, given)
    assert [mover.steps for mover in movers] == [1, 1]
    # The second one ends with the next step, and the first plays on.
    assert not conductor.barrier.alone.step(moves, given)
    await conductor.barrier.run()
    assert [mover.state for mover in movers] == [State.PLAYING, State.DONE]
    assert [mover.steps for mover in movers] == [2, 2]
    assert session.audits == 1
    assert not conductor.barrier.alone.may(movers)
    assert not conductor.barrier.alone.may(movers[:1])


async def test_nobody_is_alone_before_a_reset_or_where_another_environment_took_the_agent(
    session: QuickSession,
) -> None:
    conductor = conductor_of(session)
    first, second = attach(conductor, "a", ONE), attach(conductor, "a", ONE)
    assert not conductor.barrier.alone.may([first])
    await conductor.reset([first], 1, 1)
    assert conductor.barrier.alone.may([first])
    await conductor.reset([second], 1, 1)
    assert not conductor.barrier.alone.may([first])
    assert conductor.barrier.alone.may([second])
