"""One driver and several simulators, in memory: one policy, one batch, and nobody waits for who is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.relay.relay import Relay
from ospbridge.daemon.relay.settings import WhileAway
from ospbridge.errors import SessionLost, UsageError
from ospbridge.rllink.cutting import BatchMode
from ospbridge.task.plain import PlainTask
from tests.daemon.relay import test_driving
from tests.daemon.relay.learner import TinyLearner
from tests.daemon.relay.test_driving import WITHIN, away, back, until, upstream, world
from tests.daemon.stage import FakeSession, agent, attach, conductor_of, inputs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.settings import Upstream
    from ospbridge.rllink.fragments import EpisodeFragment

impatient = test_driving.impatient
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
@pytest.mark.parametrize("thinks", [(0.0, 0.0), (0.0, 0.002, 0.005)], ids=["equal", "unequal"])
async def test_every_batch_of_several_simulators_comes_from_the_weights_before_it(
    mode: BatchMode, thinks: tuple[float, ...]
) -> None:
    learner = TinyLearner()
    sessions, conductors = worlds(*thinks)
    async with learner.listening() as port, driven(conductors, upstream(port, batch_mode=mode)):
        await until(lambda: len(learner.batches) >= 15)
    assert learner.wrong == []
    assert all(session.steps for session in sessions)
    assert any(len({fragment.id for fragment in batch}) > 1 for batch in learner.batches)
    for batch in learner.batches:
        assert steps(batch) >= 20
        if mode is BatchMode.COMPLETE_EPISODES:
            assert all(fragment.terminated and fragment.steps == 7 for fragment in batch)


async def test_a_batch_has_no_more_than_it_needs_and_a_step_of_each_that_was_under_way() -> None:
    learner = TinyLearner()
    _, conductors = worlds(0.0, 0.001, 0.002)
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: len(learner.batches) >= 10)
    assert all(20 <= steps(batch) <= 22 for batch in learner.batches)


async def test_a_fast_simulator_does_not_wait_for_a_slow_one() -> None:
    learner = TinyLearner()
    (fast, slow), conductors = worlds(0.0, 0.05, length=1000)
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: len(learner.batches) >= 5)
    assert len(fast.steps) > 5 * len(slow.steps)
    assert learner.wrong == []


async def test_pieces_of_each_simulators_episodes_follow_each_other_without_a_gap() -> None:
    learner = TinyLearner()
    _, conductors = worlds(0.0, 0.001, length=33)
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await until(lambda: len(learner.batches) >= 10)
    pieces: dict[str, list[EpisodeFragment]] = {}
    for batch in learner.batches:
        for fragment in batch:
            pieces.setdefault(fragment.id, []).append(fragment)
    assert any(len(parts) > 1 for parts in pieces.values())
    for parts in pieces.values():
        assert parts[0].t_started == 0
        for before, after in pairwise(parts):
            assert after.t_started == before.t
            assert after.observations[0].tolist() == before.observations[-1].tolist()


async def test_each_simulators_first_reset_has_a_seed_of_its_own() -> None:
    learner = TinyLearner()
    sessions, conductors = worlds(0.0, 0.0, 0.0)
    async with learner.listening() as port, driven(conductors, upstream(port, seed=2**31 - 1)):
        await until(lambda: all(session.seeds for session in sessions))
    assert [session.seeds[0] for session in sessions] == [2**31 - 1, 1, 2]


# --- holding the worlds ------------------------------------------------------------------------------------------


class Gated(TinyLearner):
    """Learns once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = trio.Event()
        self.asked = 0

    async def _answer(self, machine: Any, event: Any, *rest: Any) -> bool:
        if event.learned:
            self.asked += 1
            await self.gate.wait()
        return await super()._answer(machine, event, *rest)


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
    learner = TinyLearner()
    _, conductors = worlds(0.0, 0.0, length=1000)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductors, upstream(port, hold=0.1)):
            await until(lambda: len(learner.batches) >= 2)
            learner.thinks = 0.6
            await until(
                lambda: all(
                    a.state is State.ATTACHED for each in conductors for a in each.lockstep.attachments
                )
            )
            learner.thinks = 0.0
            done = len(learner.batches)
            await until(lambda: len(learner.batches) >= done + 3)
    rested = [line["reason"] for line in logs if line["event"] == "the driver's agents rest"]
    assert len(rested) == 2
    assert all("gave no new weights within 0.1 s" in reason for reason in rested)
    assert learner.wrong == []


async def test_agents_rest_when_another_simulator_does_not_finish_its_episode() -> None:
    learner = TinyLearner()
    (_, slow), conductors = worlds(0.0, 0.0)
    slow.ending = {"a": 10_000}
    slow.think = 0.02
    with capture_logs() as logs:
        async with learner.listening() as port:
            to = upstream(port, batch_mode=BatchMode.COMPLETE_EPISODES, hold=0.05)
            async with driven(conductors, to):
                await until(lambda: [line for line in logs if line["event"] == "the driver's agents rest"])
                lose(slow)
                await until(lambda: len(learner.batches) >= 3)
    (line,) = [line for line in logs if line["event"] == "the driver's agents rest"][:1]
    assert "another simulator did not finish" in line["reason"]
    assert learner.wrong == []


async def test_an_environment_beside_the_driver_loses_no_time_in_any_of_the_worlds() -> None:
    learner = TinyLearner()
    learner.thinks = 0.3
    _, beside = world("a", "b", length=1000)
    beside.settings = replace(beside.settings, limits=replace(beside.settings.limits, step=0.1))
    _, other = world(length=1000)
    b = attach(beside, "b", Driver("env", 2))
    beside.lockstep.quorum = 2
    async with learner.listening() as port, driven([beside, other], upstream(port, agents=("a",))):
        await beside.reset([b], 0, 2)
        for _ in range(50):
            await beside.step([(b, inputs(0.5))])
            assert b.feedback is not None
            assert not b.feedback.truncated
    assert learner.wrong == []


# --- a simulator in trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BatchMode)
async def test_a_lost_simulator_drops_out_and_comes_back_in(mode: BatchMode) -> None:
    learner = TinyLearner()
    (_, second), conductors = worlds(0.0, 0.001)
    async with learner.listening() as port, driven(conductors, upstream(port, batch_mode=mode)):
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


async def test_a_driver_without_any_simulator_waits_for_one() -> None:
    learner = TinyLearner()
    (_, late), conductors = worlds(0.0, 0.0)
    for conductor in conductors:
        conductor._keeper.session = None
    async with learner.listening() as port, driven(conductors, upstream(port)):
        await trio.sleep(0.1)
        conductors[1]._keeper.session = late  # type: ignore[assignment]  # it speaks as one
        await until(lambda: len(learner.batches) >= 3)
    assert learner.wrong == []


async def test_acting_goes_on_in_all_simulators_while_the_upstream_is_away_if_so_asked() -> None:
    learner = TinyLearner()
    sessions, conductors = worlds(0.0, 0.0)
    async with (
        learner.listening() as port,
        driven(conductors, upstream(port, away=WhileAway.CONTINUE)) as relay,
    ):
        await until(lambda: len(learner.batches) >= 2)
        away(relay)
        before = [len(session.steps) for session in sessions]
        await until(lambda: all(len(s.steps) > were + 100 for s, were in zip(sessions, before, strict=True)))
        assert relay.driving.learner.discarded >= 100
        back(relay, port)
        done = len(learner.batches)
        await until(lambda: len(learner.batches) >= done + 2)
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


async def test_one_bad_number_costs_its_episode_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = TinyLearner()
    _, conductors = worlds(0.0, 0.0)
    task: Any = conductors[0].lockstep.held["a"].task
    judged = 0

    def judge(outcome: Any) -> tuple[float, bool, bool]:
        nonlocal judged
        judged += 1
        return (float("nan") if judged == 10 else 1.0), judged % 7 == 0, False

    monkeypatch.setattr(task, "judge", judge)
    async with learner.listening() as port, driven(conductors, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 4)
        assert 0 < relay.driving.dropped < 20
    assert all(np.isfinite(f.rewards).all() for batch in learner.batches for f in batch)
    assert all(steps(batch) >= 20 for batch in learner.batches)
