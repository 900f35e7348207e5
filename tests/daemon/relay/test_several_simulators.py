"""One driver and several simulators, in memory: one policy, one batch, and nobody waits for who is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon.attachment import State
from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.relay.relay import Relay
from ospbridge.errors import SessionLost, UsageError
from ospbridge.rllink.cutting import BatchMode
from ospbridge.task.plain import PlainTask
from tests.daemon.relay.driving import WITHIN, until, upstream, world
from tests.daemon.relay.learner import Gated, TinyLearner
from tests.daemon.stage import FakeSession, agent
from tests.daemon.test_conductor import conductor_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.settings import Upstream
    from ospbridge.rllink.fragments import EpisodeFragment

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


@asynccontextmanager
async def driven(conductors: Sequence[Conductor], to: Upstream) -> AsyncIterator[Relay]:
    relay = Relay(to, conductors)
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay.run)
            yield relay
            nursery.cancel_scope.cancel()


def worlds(*thinks: float, length: int = 7) -> tuple[list[FakeSession], list[Conductor]]:
    """One agent each; their steps take so many seconds."""
    made = [world(length=length) for _ in thinks]
    for (session, _), think in zip(made, thinks, strict=True):
        session.think = think
    return [session for session, _ in made], [conductor for _, conductor in made]


def steps(batch: Sequence[EpisodeFragment]) -> int:
    return sum(fragment.steps for fragment in batch)


def lose(session: FakeSession) -> None:
    """Its next step fails, and so does every reset until it has ``come_back``."""
    session.step_errors = [SessionLost("the simulator is gone")]


def come_back(conductor: Conductor) -> None:
    conductor._keeper.broken = ""
    conductor._changed()


# --- one batch from all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BatchMode)
async def test_every_batch_of_several_simulators_comes_from_the_weights_before_it(mode: BatchMode) -> None:
    learner = TinyLearner()
    sessions, conductors = worlds(0.0, 0.002, 0.005)
    async with learner.listening() as port, driven(conductors, upstream(port, batch_mode=mode)):
        await until(lambda: len(learner.batches) >= 10)
    assert learner.wrong == []
    assert all(session.steps for session in sessions)
    assert any(len({fragment.id for fragment in batch}) > 1 for batch in learner.batches)
    for batch in learner.batches:
        if mode is BatchMode.COMPLETE_EPISODES:
            assert all(fragment.terminated and fragment.steps == 7 for fragment in batch)
            assert steps(batch) >= 20
        else:
            # No more than it needs, and a step of each that was under way.
            assert 20 <= steps(batch) <= 22


async def test_a_fast_simulator_does_not_wait_for_a_slow_one() -> None:
    learner = TinyLearner()
    (fast, slow), conductors = worlds(0.0, 30.0, length=1000)
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: len(learner.batches) >= 1 and len(fast.steps) >= 20)
        assert slow.steps == []
    assert learner.wrong == []


async def test_each_simulators_first_reset_has_a_seed_of_its_own() -> None:
    learner = TinyLearner()
    sessions, conductors = worlds(0.0, 0.0, 0.0)
    async with learner.listening() as port, driven(conductors, upstream(port, seed=2**31 - 1)):
        await until(lambda: all(session.seeds for session in sessions))
    assert [session.seeds[0] for session in sessions] == [2**31 - 1, 1, 2]


# --- holding the worlds ------------------------------------------------------------------------------------------


async def test_all_worlds_stand_still_while_weights_are_learned() -> None:
    learner = Gated()
    sessions, conductors = worlds(0.0, 0.001, length=1000)
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: learner.asked)
        await until(lambda: all(conductor._holds.left(trio.current_time()) > 0 for conductor in conductors))
        before = [len(session.steps) for session in sessions]
        await trio.sleep(0.1)
        assert [len(session.steps) for session in sessions] == before
        learner.gate.set()
        await until(lambda: len(learner.batches) >= 3)
    assert learner.wrong == []


async def test_agents_of_all_simulators_rest_when_weights_take_too_long() -> None:
    learner = Gated()
    _, conductors = worlds(0.0, 0.0, length=1000)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductors, upstream(port, hold=0.05)):
            await until(lambda: learner.asked)
            attachments = [a for each in conductors for a in each.lockstep.attachments]
            await until(lambda: all(a.state is State.ATTACHED for a in attachments))
            learner.gate.set()
            await until(lambda: len(learner.batches) >= 3)
    rested = [line["reason"] for line in logs if line["event"] == "the driver's agents rest"]
    assert len(rested) >= 2
    assert all("gave no new weights within 0.05 s" in reason for reason in rested[:2])
    assert learner.wrong == []


async def test_agents_rest_when_another_simulator_does_not_finish_its_episode() -> None:
    learner = TinyLearner()
    (_, slow), conductors = worlds(0.0, 0.0)
    slow.ending = {"a": 10**6}
    slow.think = 0.02
    with capture_logs() as logs:

        def rested() -> bool:
            reasons = [line["reason"] for line in logs if line["event"] == "the driver's agents rest"]
            return any("another simulator did not finish" in reason for reason in reasons)

        async with learner.listening() as port:
            to = upstream(port, batch_mode=BatchMode.COMPLETE_EPISODES, hold=0.05)
            async with driven(conductors, to):
                await until(rested)
                lose(slow)
                await until(lambda: len(learner.batches) >= 3)
    assert learner.wrong == []


# --- a simulator in trouble --------------------------------------------------------------------------------------


async def test_a_lost_simulator_drops_out_and_comes_back_in() -> None:
    learner = TinyLearner()
    (_, second), conductors = worlds(0.0, 0.001)
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: len(learner.batches) >= 3)
        lose(second)
        await until(lambda: not conductors[1].ready)
        done, lived = len(learner.batches), len(second.steps)
        await until(lambda: len(learner.batches) >= done + 5)
        assert len(second.steps) == lived
        come_back(conductors[1])
        await until(lambda: len(second.steps) > lived + 20)
        done = len(learner.batches)
        await until(lambda: len(learner.batches) >= done + 3)
    assert learner.wrong == []


async def test_an_absent_simulator_keeps_nobody_from_working_and_joins_in_later() -> None:
    learner = TinyLearner()
    (_, late), conductors = worlds(0.0, 0.0)
    conductors[1]._keeper.session = None
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: len(learner.batches) >= 3)
        assert not late.steps
        conductors[1]._keeper.session = late  # type: ignore[assignment]  # it speaks as one
        await until(lambda: len(late.steps) > 20)
        done = len(learner.batches)
        await until(lambda: len(learner.batches) >= done + 3)
    assert learner.wrong == []


# --- agents of several kinds -------------------------------------------------------------------------------------


def other_kind() -> Conductor:
    conductor = conductor_of(FakeSession("b"))
    conductor.lockstep.take_agents([PlainTask(agent("b", low=-3.0), bounded=True)])
    return conductor


async def test_simulators_whose_agents_need_different_policies_are_refused_by_name() -> None:
    learner = TinyLearner()
    _, (first,) = worlds(0.01)
    async with learner.listening() as port:
        with pytest.raises(ExceptionGroup) as caught, trio.fail_after(WITHIN):
            await Relay(upstream(port), [first, other_kind()]).run()
    # Their numbers are equal: only bounds tell them apart.
    for bounds in ("-3 to 1", "-1 to 1"):
        told = rf"agents of several kinds: .*1 observation, 1 input \({bounds}\)"
        assert caught.group_contains(UsageError, match=told)


async def test_a_simulator_of_another_kind_that_comes_late_does_not_end_what_the_others_do() -> None:
    learner = TinyLearner()
    _, (first,) = worlds(0.0)
    late = other_kind()
    session, late._keeper.session = late._keeper.session, None
    with capture_logs() as logs:
        async with learner.listening() as port, driven([first, late], upstream(port)):
            await until(lambda: len(learner.batches) >= 3)
            late._keeper.session = session
            await until(lambda: [line for line in logs if line["event"] == "a simulator is not driven"])
            done = len(learner.batches)
            await until(lambda: len(learner.batches) >= done + 3)
    assert late.lockstep.attachments == []
    assert learner.wrong == []


# --- leaving -----------------------------------------------------------------------------------------------------


async def test_episodes_that_the_end_of_the_daemon_cuts_say_so() -> None:
    learner = TinyLearner()
    _, conductors = worlds(0.0, 0.0, length=100_000)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductors, upstream(port)):
            await until(lambda: len(learner.batches) >= 3)
    ended = [line for line in logs if line["event"] == "episode"]
    assert [(line["ended"], line["reason"]) for line in ended] == [("detached", STOPPED)] * 2
    assert all(conductor.lockstep.attachments == [] for conductor in conductors)
