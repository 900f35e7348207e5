"""Steps, resets and ends of episodes among attachments, on a session in memory and a clock that jumps."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
import trio
import trio.testing

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.errors import (
    AgentNotFound,
    AgentsInUse,
    AgentTaken,
    BarrierStuck,
    LocalProtocolError,
    OspBridgeError,
    SessionLost,
    StepUncertain,
    TaskError,
    UsageError,
    ValueNotFound,
    ValueRejected,
)
from ospbridge.interface import DrawnSeed
from ospbridge.osp.notices import Anomaly, Notice, WorldReset
from ospbridge.session.rebuild import BEGINNINGS
from tests.daemon.stage import (
    ONE,
    TWO,
    FakeSession,
    Logs,
    act,
    agent,
    alone,
    attach,
    both,
    conductor_of,
    play,
    tasks,
    together,
    told,
)

pytestmark = pytest.mark.trio


async def test_a_reset_is_followed_by_one_neutral_step_whose_outcome_it_returns(session: FakeSession) -> None:
    _, a = await alone(session)
    assert session.seeds == [7]
    assert session.steps == [{"a": 0.0, "b": 0.0}]
    assert told(a).info["osp_seed"] == 7
    assert told(a).reward == 0.0
    assert not told(a).terminated


async def test_agents_that_nobody_plays_rest_at_neutral(session: FakeSession) -> None:
    conductor, a = await alone(session)
    feedback = await play(conductor, a, 0.5)
    assert session.steps[-1] == {"a": 0.5, "b": 0.0}
    assert feedback.observation.tolist() == [0.5]
    assert feedback.reward == 1.0


# --- the barrier ---------------------------------------------------------------------------------------------------


async def test_a_step_waits_for_all_who_play_and_runs_once(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, a, b = await both(session)
    await act(conductor, a=0.25, b=-0.5)
    assert session.steps[1:] == [{"a": 0.25, "b": -0.5}]
    assert told(a).observation.tolist() == [0.25]
    assert told(b).observation.tolist() == [-0.5]


async def test_the_first_reset_waits_for_the_quorum(session: FakeSession, autojump_clock: object) -> None:
    conductor = conductor_of(session, quorum=2)
    a, b = attach(conductor, "a"), attach(conductor, "b", TWO)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.reset, [a], 5, 1)
        await trio.sleep(20)
        assert session.seeds == []
        await conductor.reset([b], 0, 2)
    assert session.seeds == [5]


async def test_a_quorum_that_is_not_met_in_time_says_so(session: FakeSession, autojump_clock: object) -> None:
    conductor = conductor_of(session, quorum=2)
    with pytest.raises(BarrierStuck, match="quorum is 2"):
        await conductor.reset([attach(conductor, "a")], 5, 1)


async def test_a_reset_is_not_awaited_from_a_simulator_that_is_given_up(
    session: FakeSession, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor = conductor_of(session, quorum=2)
    begun = trio.current_time()

    async def lost() -> None:
        await trio.sleep(5.0)
        conductor.supervisor.session = None
        raise SessionLost("lost too often", hint="start the daemon again when it is mended")

    async def run() -> None:
        with pytest.raises(SessionLost):
            await conductor.run()

    monkeypatch.setattr(conductor.supervisor, "run", lost)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with pytest.raises(BarrierStuck, match="not joined: given up: lost too often"):
            await conductor.reset([attach(conductor, "a")], 1, 1)
    assert trio.current_time() - begun == pytest.approx(5.0)


@pytest.mark.parametrize(
    "seeds, taken",
    [((5, 6), 6), ((5, DrawnSeed(6)), 5), ((DrawnSeed(6), 5), 5), ((DrawnSeed(4), DrawnSeed(5)), 5)],
    ids=["both given", "the first given", "the last given", "both drawn"],
)
async def test_the_last_seed_that_was_asked_for_wins_and_one_that_was_drawn_gives_way(
    session: FakeSession, autojump_clock: object, seeds: tuple[int, int], taken: int
) -> None:
    conductor = conductor_of(session, quorum=2)
    a, b = attach(conductor, "a"), attach(conductor, "b", TWO)
    await together(lambda: conductor.reset([a], seeds[0], 1), lambda: conductor.reset([b], seeds[1], 2))
    assert session.seeds == [taken]
    assert type(session.seeds[0]) is int
    assert told(a).info["osp_seed"] == told(b).info["osp_seed"] == taken


class ResettingSlowly(FakeSession):
    """A reset takes a second."""

    async def reset(self, seed: int) -> bool:
        await trio.sleep(1.0)
        return await super().reset(seed)


async def test_who_follows_one_that_left_in_its_reset_has_its_own_seed(autojump_clock: object) -> None:
    conductor = conductor_of(ResettingSlowly("a"))
    gone = attach(conductor, "a")

    async def left() -> None:
        with pytest.raises(OspBridgeError, match="given back"):
            await conductor.reset([gone], 5, 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(left)
        await trio.sleep(0.5)
        conductor.leave([gone])
        a = attach(conductor, "a", TWO)
        await conductor.reset([a], 6, 2)
    assert told(a).info["osp_seed"] == 6


async def test_too_slow_is_truncated_with_a_reason_and_the_seed_of_its_own_episode_and_rests(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, a, b = await both(session)
    begun = trio.current_time()
    await play(conductor, a, 0.25)
    assert trio.current_time() - begun == pytest.approx(30.0)
    assert session.steps[-1] == {"a": 0.25, "b": 0.0}
    await conductor.reset([a], 9, 1)
    given = len(session.steps)
    feedback = await play(conductor, b, 0.5)
    assert (feedback.truncated, feedback.terminated) == (True, False)
    assert "not acted for within 30 s" in feedback.reason
    assert feedback.info["reason"] == feedback.reason
    assert (told(a).info["osp_seed"], feedback.info["osp_seed"]) == (9, 1)
    assert len(session.steps) == given
    await play(conductor, a, 0.5)
    assert session.steps[-1] == {"a": 0.5, "b": 0.0}


async def test_whoever_leaves_is_not_waited_for(session: FakeSession, autojump_clock: object) -> None:
    conductor, a, b = await both(session)
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, conductor, a, 0.25)
        await trio.sleep(1)
        conductor.leave([b])
    assert trio.current_time() - begun == pytest.approx(1.0)
    assert session.steps[-1] == {"a": 0.25, "b": 0.0}
    assert attach(conductor, "b", ONE).state is State.ATTACHED


async def test_a_reset_after_which_agents_of_other_paces_play_together_says_so_once(
    session: FakeSession, logs: Logs
) -> None:
    conductor = conductor_of(session)
    conductor.lockstep.held["b"].task.action_repeat = 4
    agents = conductor.attach(["*"], ONE)
    # Alone, each goes at its own pace.
    for playing in (agents[:1], agents, agents, agents):
        await conductor.reset(playing, 1, 0)
        conductor.rest(playing, "for now")
    assert [(line["action_repeat"], line["taken"]) for line in logs if line["log_level"] == "warning"] == [
        ({"a": 1, "b": 4}, 4)
    ]


# --- reset policies ------------------------------------------------------------------------------------------------


async def test_all_a_done_agent_rests_until_the_others_are_done(
    session: FakeSession, autojump_clock: object
) -> None:
    session.ending = {"a": 1, "b": 3}
    conductor, a, b = await both(session)
    await act(conductor, a=0.1, b=0.1)
    assert (told(a).terminated, told(b).terminated) == (True, False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.reset, [a], 8, 1)
        await trio.testing.wait_all_tasks_blocked()
        await play(conductor, b, 0.25)
        assert session.steps[-1] == {"a": 0.0, "b": 0.25}
        assert session.seeds == [1]
        assert (await play(conductor, b, 0.25)).terminated
        await conductor.reset([b], 0, 2)
    assert session.seeds == [1, 8]
    assert a.state is b.state is State.PLAYING


async def test_all_a_reset_waits_only_a_moment_for_those_who_could_ask_too(
    session: FakeSession, autojump_clock: object
) -> None:
    session.ending = {"a": 1, "b": 1}
    conductor, a, b = await both(session)
    await act(conductor, a=0.1, b=0.1)
    begun = trio.current_time()
    await conductor.reset([a], 8, 1)
    assert 1.0 < trio.current_time() - begun < 5.0
    assert (a.state, b.state) == (State.PLAYING, State.ATTACHED)


async def test_a_reset_does_not_wait_for_an_agent_of_the_same_thread(
    session: FakeSession, autojump_clock: object
) -> None:
    session.ending = {"a": 1, "b": 1}
    conductor = conductor_of(session)
    a, b = conductor.attach(["*"], ONE)
    await conductor.reset([a, b], 3, 1)
    await act(conductor, a=0.1, b=0.2)
    begun = trio.current_time()
    await conductor.reset([a], 8, 1)
    assert trio.current_time() - begun == pytest.approx(0.0)


async def test_any_the_first_end_truncates_the_others_with_the_reason(
    session: FakeSession, autojump_clock: object
) -> None:
    session.ending = {"a": 1}
    conductor, a, b = await both(session, reset_policy=ResetPolicy.ANY)
    await act(conductor, a=0.1, b=0.1)
    assert told(a).terminated
    assert told(b).truncated
    assert "agent 'a' ended" in told(b).reason
    assert told(b).observation.tolist() == pytest.approx([0.1])
    await together(lambda: conductor.reset([a], 0, 1), lambda: conductor.reset([b], 0, 2))
    assert a.state is b.state is State.PLAYING


@pytest.mark.parametrize("policy", list(ResetPolicy))
async def test_abandoning_an_episode(
    session: FakeSession, autojump_clock: object, policy: ResetPolicy
) -> None:
    conductor, a, b = await both(session, reset_policy=policy)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.reset, [a], 0, 1)
        await trio.testing.wait_all_tasks_blocked()
        feedback = await play(conductor, b, 0.25)
        if policy is ResetPolicy.ALL:
            assert not feedback.truncated
            assert session.steps[-1] == {"a": 0.0, "b": 0.25}
            conductor.leave([b])
        else:
            assert "abandoned" in feedback.reason
    assert a.state is State.PLAYING


async def test_a_reset_that_others_hold_up_says_who(session: FakeSession, autojump_clock: object) -> None:
    conductor, a = await alone(session)
    b = attach(conductor, "b", TWO)
    with pytest.raises(BarrierStuck, match=r"a \(driven by one.py \(pid 11\)\)"):
        await conductor.reset([b], 1, 2)
    assert b.state is State.ATTACHED
    assert not (await play(conductor, a, 0.5)).truncated


@pytest.mark.parametrize("thread", [1, 0], ids=["known thread", "thread of one connection"])
async def test_a_thread_that_waits_for_itself_is_told_so_soon(
    session: FakeSession, thread: int, autojump_clock: object
) -> None:
    conductor = conductor_of(session)
    a, b = attach(conductor, "a"), attach(conductor, "b")
    await conductor.reset([a], 1, thread)
    begun = trio.current_time()
    with pytest.raises(AgentsInUse, match="same thread"):
        await conductor.reset([b], 1, thread)
    assert trio.current_time() - begun < 5.0


# --- attaching -----------------------------------------------------------------------------------------------------


async def test_an_agent_of_another_process_is_refused_with_who_has_it(session: FakeSession) -> None:
    conductor = conductor_of(session)
    attach(conductor, "a", ONE)
    with pytest.raises(AgentTaken, match=r"one.py \(pid 11\)"):
        attach(conductor, "a", TWO)


async def test_environments_of_one_process_share_an_agent_and_the_one_reset_last_drives_it(
    session: FakeSession,
) -> None:
    conductor, first = await alone(session)
    second = attach(conductor, "a")
    await conductor.reset([second], 2, 1)
    await play(conductor, second, 0.5)
    with pytest.raises(LocalProtocolError, match=r"was reset later.*an agent each"):
        await play(conductor, first, 0.5)
    conductor.leave([second])
    await conductor.reset([first], 3, 1)
    await play(conductor, first, 0.5)


async def test_without_a_name_the_only_free_agent_is_taken(session: FakeSession) -> None:
    conductor = conductor_of(session)
    with pytest.raises(UsageError, match="several free agents: a, b"):
        conductor.attach([], ONE)
    attach(conductor, "a", TWO)
    (b,) = conductor.attach([], ONE)
    assert b.name == "b"
    with pytest.raises(AgentTaken):
        conductor.attach([], Driver("three", 33))


async def test_attaching_is_all_or_nothing(session: FakeSession) -> None:
    conductor = conductor_of(session)
    attach(conductor, "b", TWO)
    with pytest.raises(AgentTaken):
        conductor.attach(["*"], ONE)
    assert attach(conductor, "a", TWO).name == "a"
    with pytest.raises(AgentNotFound, match="it has a, b"):
        conductor.attach(["c*"], ONE)


# --- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SessionLost("it is gone"), StepUncertain("it cannot be told")])
async def test_a_lost_session_truncates_all_who_play_with_the_reason(
    session: FakeSession, autojump_clock: object, error: OspBridgeError
) -> None:
    conductor, a, b = await both(session)
    await act(conductor, a=0.25, b=0.5)
    session.step_errors = [error]
    await act(conductor, a=0.3, b=0.6)
    for attachment, last in ((a, 0.25), (b, 0.5)):
        assert told(attachment).truncated
        assert told(attachment).reason == error.message
        assert told(attachment).observation.tolist() == [last]
        assert set(told(attachment).info["infos"]) == {"/episode/reward", "/episode/terminated"}
        assert np.isnan(attachment.infos).all()
    assert not conductor.ready


@pytest.mark.parametrize(
    "errors",
    [[SessionLost("it is gone")], [StepUncertain("counted twice", by_network=True)] * (BEGINNINGS - 1)],
    ids=["lost", "in doubt since datagrams come twice"],
)
async def test_a_reset_that_finds_the_session_lost_is_tried_again_once_it_is_rebuilt(
    session: FakeSession, autojump_clock: object, errors: list[OspBridgeError]
) -> None:
    conductor = conductor_of(session)
    session.reset_errors = list(errors)
    a = attach(conductor, "a")

    async def rebuilt() -> None:
        while not session.seeds:
            await trio.sleep(0.1)
            conductor.supervisor.loss = None
            conductor._changed()

    with trio.fail_after(60):
        await together(lambda: conductor.reset([a], 9, 1), rebuilt)
    assert session.seeds == [9]


async def test_a_mismatch_at_the_audit_ends_the_episode_truncated(session: FakeSession) -> None:
    session.ending = {"a": 1}
    session.audit_says = "1 steps were given, the clock shows 2"
    conductor, a = await alone(session)
    feedback = await play(conductor, a, 0.5)
    assert (feedback.terminated, feedback.truncated) == (False, True)
    assert feedback.reason == session.audit_says


async def test_who_abandons_an_episode_that_is_in_doubt_is_told_with_the_reset_and_nobody_else(
    session: FakeSession,
) -> None:
    session.ending = {"b": 1}
    conductor, a, b = await both(session)
    await act(conductor, a=0.5, b=0.5)
    for doubt in ("2 steps were given, the clock shows 3", ""):
        session.audit_says = doubt
        await together(lambda: conductor.reset([a], 9, 1), lambda: conductor.reset([b], 9, 2))
        assert doubt in told(a).reason
        assert bool(told(a).reason) is bool(doubt)
        assert told(b).reason == ""


@pytest.mark.parametrize("repeat", [1, 4])
async def test_a_reset_by_somebody_else_ends_the_episodes_and_repeats_no_action(
    session: FakeSession, repeat: int
) -> None:
    conductor = conductor_of(session)
    conductor.lockstep.held["a"].task.action_repeat = repeat
    a = attach(conductor, "a")
    await conductor.reset([a], 9, 1)
    session.machine.notices = [WorldReset("the world was reset")]
    steps = conductor.steps
    feedback = await play(conductor, a, 0.5)
    assert (feedback.truncated, feedback.reason) == (True, "the world was reset")
    assert feedback.reward == 1.0
    assert conductor.steps == steps + 1


async def test_an_action_whose_second_step_is_lost_brings_the_last_observation_again_and_counts_nothing(
    session: FakeSession,
) -> None:
    conductor = conductor_of(session)
    conductor.lockstep.held["a"].task.action_repeat = 4
    a = attach(conductor, "a")
    await conductor.reset([a], 9, 1)
    await play(conductor, a, 0.25)
    session.step_errors = [None, SessionLost("the simulator ended")]
    feedback = await play(conductor, a, 0.5)
    assert (feedback.truncated, feedback.reason) == (True, "the simulator ended")
    assert (feedback.observation.item(), feedback.reward) == (0.25, 0.0)
    assert list(a.held.returns) == [4.0]


async def test_what_to_know_of_the_simulator_is_logged_whenever_it_is_learned(
    session: FakeSession, logs: Logs
) -> None:
    session.machine.notices = [Notice("seeds have no effect")]
    conductor, a = await alone(session)
    session.machine.notices = [Anomaly("it came late"), Notice("its clock is uneven")]
    assert not (await play(conductor, a, 0.5)).truncated
    limits = [
        (line["log_level"], line["reason"]) for line in logs if line["event"] == "the simulator is limited"
    ]
    assert limits == [("warning", "seeds have no effect"), ("warning", "its clock is uneven")]


async def test_an_agent_that_came_back_otherwise_is_refused_to_its_old_environment(
    session: FakeSession,
) -> None:
    conductor = conductor_of(session)
    a, b = attach(conductor, "a"), attach(conductor, "b")
    conductor.lockstep.take_agents(tasks(agent("a"), agent("b", low=-5.0)))
    await conductor.reset([a], 1, 1)
    with pytest.raises(SessionLost, match="another interface"):
        await conductor.reset([b], 1, 1)
    conductor.leave([b])
    attach(conductor, "b", TWO)
    conductor.lockstep.take_agents([])
    with pytest.raises(SessionLost, match="agent 'a' is gone"):
        await conductor.reset([a], 1, 1)


async def test_a_task_that_cannot_act_ends_its_own_episode_and_nobody_waits_for_it(
    session: FakeSession, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor, a, b = await both(session)

    def inputs_of(action: object) -> NoReturn:
        raise TaskError("Mine.inputs failed: no table of torques")

    task = conductor.lockstep.held["a"].task
    monkeypatch.setattr(task, "as_given", None)
    monkeypatch.setattr(task, "inputs", inputs_of)

    async def fails() -> None:
        for _ in range(2):
            with pytest.raises(TaskError, match="no table of torques"):
                await play(conductor, a, 0.1)

    began = trio.current_time()
    await together(lambda: play(conductor, b, 0.2), fails)
    assert trio.current_time() == began
    assert not told(b).truncated
    assert a.state is State.DONE
    assert conductor.lockstep.playing == [b]


@pytest.mark.parametrize(
    "error", [ValueNotFound("no value '/Gravity'"), ValueRejected("it takes no 'heavy'")]
)
async def test_a_start_value_that_the_simulator_does_not_take_is_told_and_costs_no_session(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch, error: OspBridgeError
) -> None:
    conductor = conductor_of(session)
    a = attach(conductor, "a")

    async def refused(_name: str, _text: str) -> NoReturn:
        raise error

    monkeypatch.setattr(session, "set", refused, raising=False)
    with monkeypatch.context() as patched:
        task = conductor.lockstep.held["a"].task
        patched.setattr(task, "start_values", lambda _: {"/Gravity": "heavy"})
        for _ in range(3):
            with pytest.raises(type(error)):
                await conductor.reset([a], 1, 1)
    assert conductor.ready
    await conductor.reset([a], 1, 1)
    assert session.seeds == [1]
