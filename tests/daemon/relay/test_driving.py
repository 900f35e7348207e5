"""The driver against a learner that checks it, through faults of both; the world is one in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.relay.relay import Relay
from ospbridge.daemon.relay.settings import WhileAway
from ospbridge.errors import SessionLost, UsageError
from ospbridge.interface import BoxSpace
from ospbridge.rllink.cutting import BatchMode
from ospbridge.task.plain import PlainTask
from tests.daemon.relay.driving import WITHIN, away, back, driven, until, upstream, world
from tests.daemon.relay.learner import Gated, TinyLearner
from tests.daemon.stage import FakeSession, agent, attach, conductor_of, inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.rllink.fragments import EpisodeFragment


pytestmark = [pytest.mark.loopback, pytest.mark.trio]


# --- learning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BatchMode)
@pytest.mark.parametrize("agents", [("a",), ("a", "b", "c")])
async def test_every_batch_comes_from_the_weights_before_it(mode: BatchMode, agents: tuple[str, ...]) -> None:
    learner = TinyLearner()
    _, conductor = world(*agents)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, batch_mode=mode)) as relay:
            await until(lambda: len(learner.batches) >= 12)
            assert relay.driving.weights_seq_no is not None
            assert relay.driving.weights_seq_no >= 11
            assert relay.driving.learner.batches >= 11
    assert learner.wrong == []
    for batch in learner.batches:
        assert sum(fragment.steps for fragment in batch) >= 20
        if mode is BatchMode.COMPLETE_EPISODES:
            assert all(fragment.terminated and fragment.steps == 7 for fragment in batch)
    # Whoever records them can tell them apart.
    told = {(fragment.agent, fragment.simulator) for batch in learner.batches for fragment in batch}
    assert told == {(name, "sim:1") for name in agents}
    episodes = [line for line in logs if line["event"] == "episode" and line["ended"] == "terminated"]
    assert {0, 1, 2} <= {line["weights_seq_no"] for line in episodes}
    assert all(line["driver"].startswith("relay drive 127.0.0.1:") for line in episodes)


async def test_pieces_of_an_episode_follow_each_other_without_a_gap() -> None:
    learner = TinyLearner()
    _, conductor = world(length=33)
    async with learner.listening() as port, driven(conductor, upstream(port)):
        await until(lambda: len(learner.batches) >= 10)
    pieces = [fragment for batch in learner.batches for fragment in batch]
    for before, after in pairwise(pieces):
        if before.done:
            assert after.t_started == 0
            assert before.t == 33
        else:
            assert after.id == before.id
            assert after.t_started == before.t
            assert after.observations[0].tolist() == before.observations[-1].tolist()


async def test_a_stale_answer_is_not_acted_on() -> None:
    learner = TinyLearner()
    learner.stale = [1, 2, 5]
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)):
        await until(lambda: len(learner.batches) >= 8)
    assert learner.wrong == []


async def test_the_same_seed_draws_the_same_actions() -> None:
    async def taken() -> list[Any]:
        learner = TinyLearner(seed=3)
        session, conductor = world()
        async with learner.listening() as port, driven(conductor, upstream(port, seed=11)):
            await until(lambda: len(learner.batches) >= 3)
        assert session.seeds[0] == 11
        return [fragment.actions.tolist() for batch in learner.batches[:3] for fragment in batch]

    assert await taken() == await taken()


async def test_a_greedy_policy_takes_its_means() -> None:
    learner = TinyLearner()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port, explore=False)):
        await until(lambda: len(learner.batches) >= 1)
    for fragment in learner.batches[0]:
        assert fragment.action_dist_inputs is not None
        assert np.array_equal(fragment.actions, fragment.action_dist_inputs[:, :1])


@pytest.mark.parametrize("said, stretched", [(None, True), (True, True), (False, False)])
async def test_actions_are_stretched_unless_that_is_denied_and_doubt_is_told(
    said: bool | None, stretched: bool
) -> None:
    learner = TinyLearner()
    session, conductor = world()
    wide = BoxSpace(np.full(1, -8, np.float32), np.full(1, 8, np.float32))
    with capture_logs() as logs:
        conductor.lockstep.held["a"].task.action_space = wide
        async with learner.listening() as port, driven(conductor, upstream(port, normalize_actions=said)):
            await until(lambda: len(learner.batches) >= 1)
    told = [line for line in logs if "RLlib's defaults are assumed" in line["event"]]
    assert [line.get("normalize_actions") for line in told] == ([True] if said is None else [])
    given = np.array([step["a"] for step in session.steps])
    drawn = np.concatenate([f.actions[:, 0] for batch in learner.batches for f in batch])
    expected = np.clip(8 * drawn, -8, 8) if stretched else drawn
    assert np.abs(given[:, None] - expected).min(axis=0).max() < 1e-5
    assert learner.wrong == []


# --- an upstream in trouble --------------------------------------------------------------------------------------


async def test_a_batch_whose_answer_was_lost_is_sent_again_to_who_has_the_same_weights() -> None:
    learner = TinyLearner()
    learner.hang_up_in = [2]
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 5)
        assert relay.driving.learner.discarded == 0
    assert learner.connections == 2
    assert learner.wrong == []


@pytest.mark.parametrize(
    "spoilt",
    [
        {"pi.net.mlp.0.weight": np.full((2, 4), np.nan, np.float32)},
        {"pi.net.mlp.0.weight": np.zeros((5, 4), np.float32)},
        {"encoder.encoder.net.mlp.0.weight": np.zeros((4, 9), np.float32)},
    ],
)
async def test_weights_that_cannot_work_are_told_in_log_and_status_until_better_ones_come(
    spoilt: dict[str, Any],
) -> None:
    learner = TinyLearner()
    good = learner.weights
    learner.weights = good | spoilt
    learner.spoilt = {2: good | spoilt}
    _, conductor = world()
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
            await until(lambda: "its weights cannot be used: " in relay.status.trouble)
            assert relay.status.dialect
            learner.weights = good
            await until(lambda: len(learner.batches) >= 4)
            assert relay.status.trouble == ""
    told = [line for line in logs if line["event"] == "the upstream's weights cannot be used"]
    assert {line["weights_seq_no"] for line in told} == {0, 2}
    assert all(next(iter(spoilt)).rpartition(".")[0] in line["reason"] for line in told)
    assert learner.wrong == []


async def test_others_wait_without_losing_time_while_weights_are_learned() -> None:
    learner = TinyLearner()
    learner.thinks = 0.3
    _, conductor = world("a", "b", length=1000)
    conductor.settings = replace(conductor.settings, limits=replace(conductor.settings.limits, step=0.1))
    b = attach(conductor, "b", Driver("env", 2))
    conductor.lockstep.quorum = 2
    async with learner.listening() as port, driven(conductor, upstream(port, agents=("a",))):
        await conductor.reset([b], 0, 2)
        while len(learner.batches) < 2:
            await conductor.step([(b, inputs(0.5))])
            assert b.feedback is not None
            assert not b.feedback.truncated
    assert learner.wrong == []


async def test_agents_rest_when_weights_take_too_long_and_play_again_when_they_come() -> None:
    learner = Gated()
    _, conductor = world("a", "b", length=1000)
    b = attach(conductor, "b", Driver("env", 2))
    conductor.lockstep.quorum = 2
    async with learner.listening() as port, driven(conductor, upstream(port, agents=("a",), hold=0.05)):
        await conductor.reset([b], 0, 2)
        (a,) = (each for each in conductor.lockstep.attachments if each.name == "a")
        while a.state is not State.ATTACHED:
            await conductor.step([(b, inputs(0.5))])
        assert learner.asked == 1
        learner.gate.set()
        await until(lambda: a.state is State.WAITING)
        conductor.rest([b], "enough")
        await until(lambda: len(learner.batches) >= 3)
    assert learner.wrong == []


@pytest.mark.parametrize("length", [7, 10**6])
async def test_acting_goes_on_while_the_upstream_is_away_if_so_asked(length: int) -> None:
    learner = TinyLearner()
    session, conductor = world()
    async with (
        learner.listening() as port,
        driven(conductor, upstream(port, away=WhileAway.CONTINUE)) as relay,
    ):
        await until(lambda: len(learner.batches) >= 2)
        away(relay)
        session.ending = {"a": length}
        steps = len(session.steps)
        await until(lambda: len(session.steps) > steps + 200)
        assert relay.driving.learner.discarded >= 100
        back(relay, port)
        done = len(learner.batches)
        await until(lambda: len(learner.batches) >= done + 2)
    assert learner.wrong == []


# --- a simulator in trouble --------------------------------------------------------------------------------------


async def test_an_episode_with_a_number_that_is_none_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = TinyLearner()
    _, conductor = world()
    task = conductor.lockstep.held["a"].task
    judged = 0

    def judge(outcome: Any) -> tuple[float, bool, bool]:
        nonlocal judged
        judged += 1
        return (float("nan") if judged == 10 else 1.0), judged % 7 == 0, False

    # As with not_finite = "pass": else the episode would end there.
    monkeypatch.setattr(task, "_mends", False)
    monkeypatch.setattr(task, "judge", judge)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
            await until(lambda: len(learner.batches) >= 3)
            assert relay.driving.dropped > 0
    assert [line["event"] for line in logs if line["event"] == "an episode is not sent"]
    assert all(np.isfinite(f.rewards).all() for batch in learner.batches for f in batch)


async def test_an_observation_that_is_no_number_cuts_the_episode_and_the_next_one_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = TinyLearner()
    _, conductor = world()
    task = conductor.lockstep.held["a"].task
    seen = 0

    def observe(outcome: Any) -> Any:
        nonlocal seen
        seen += 1
        return np.full(1, np.nan if seen == 10 else 0.25, np.float32)

    monkeypatch.setattr(task, "observe", observe)
    async with learner.listening() as port, driven(conductor, upstream(port)):
        await until(lambda: len(learner.batches) >= 3)
    assert learner.wrong == []


# --- who drives --------------------------------------------------------------------------------------------------


async def test_agents_of_several_kinds_are_refused_by_name() -> None:
    session = FakeSession("a", "b")
    conductor = conductor_of(session)
    conductor.lockstep.take_agents(
        [PlainTask(agent("a"), bounded=True), PlainTask(agent("b", low=-3.0), bounded=True)]
    )
    learner = TinyLearner()
    async with learner.listening() as port:
        with pytest.raises(ExceptionGroup) as caught, trio.fail_after(WITHIN):
            await Relay(upstream(port), [conductor]).run()
    assert caught.group_contains(UsageError, match=r"a: 1 observation,.*b: 1 observation,")


# --- several simulators ------------------------------------------------------------------------------------------


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


def other_kind() -> Conductor:
    conductor = conductor_of(FakeSession("b"))
    conductor.lockstep.take_agents([PlainTask(agent("b", low=-3.0), bounded=True)])
    return conductor


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
