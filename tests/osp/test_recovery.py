"""What follows a silence: both decision tables, complete, and each row of them tried by a script of datagrams."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from ospbridge.errors import BarrierStuck, SessionLost, StepUncertain
from ospbridge.osp.client import DOUBLED, RESET_COMPLETED
from ospbridge.osp.clock import Moved
from ospbridge.osp.clock_reading import drop_clock
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ResetSimulationAck, ResetSimulationCompleted, ResetSimulationCompletedAck
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.reset import RESET_TABLE
from ospbridge.osp.step import FIRST_STEP, SENT_AGAIN_AT_MOST, STEP_TABLE, Action, decide
from ospbridge.osp.timing import Limits
from tests.osp.stage import BOTH, Stage, ack, brought

REQUEST: Final = Code.NEXT_SIMULATION_STEP
FREES: Final = Code.NEXT_SIMULATION_STEP_COMPLETED_ACK
ASKS: Final = Code.GET_VALUE
LONG: Final = Limits()

FOUND_OUT: Final = [
    (moved, count, alone, overdue)
    for moved, count, alone, overdue in itertools.product(Moved, range(4), (False, True), (False, True))
]


# --- the tables ----------------------------------------------------------------------------------------------------


def test_all_that_can_be_found_out_in_a_step_has_a_row_and_every_row_is_reached() -> None:
    reached = {
        id(decide(STEP_TABLE, moved, count, alone=alone, overdue=overdue))
        for moved, count, alone, overdue in FOUND_OUT
    }
    assert reached == {id(row) for row in STEP_TABLE}


def test_all_that_can_be_found_out_in_a_reset_has_a_row_and_every_row_is_reached() -> None:
    reached = set()
    for zeroed, count, alone, overdue in itertools.product(
        (False, True), range(3), (False, True), (False, True)
    ):
        row = decide(RESET_TABLE, zeroed, count, alone=alone, overdue=overdue)
        reached.add(id(row))
        if row.action is Action.SEND_AGAIN:
            assert count
            assert (alone, overdue, zeroed) == (True, True, False)
    assert reached == {id(row) for row in RESET_TABLE}


def test_a_request_is_sent_again_only_where_it_alone_is_unacknowledged_and_nobody_else_plays() -> None:
    for moved, count, alone, overdue in FOUND_OUT:
        if decide(STEP_TABLE, moved, count, alone=alone, overdue=overdue).action is Action.SEND_AGAIN:
            assert (moved, count, alone, overdue) == (Moved.NO, 1, True, True)


# --- a step: what is asked, when, and what is done -----------------------------------------------------------------


def test_a_lost_request_is_sent_again_once_the_clock_said_so_twice_and_nobody_else_plays() -> None:
    stage = Stage().begin_step(0.5).wait(0.5)
    assert stage.timeline == [
        (0, REQUEST),
        (250, FREES),
        (350, ASKS),
        (450, ASKS),
        (450, Code.GET_AGENT_OVERVIEW),
        (450, Code.AGENT_OVERVIEW_ACK),
        (450, REQUEST),
    ]
    stage.give(ack(), brought(0.25))
    assert stage.machine.result().completions[1].outputs.tolist() == [0.25]
    stage.begin_step(0.75).give(ack(), brought(0.5))
    assert stage.timeline == [(0, REQUEST), (0, FREES)], "a repair leaves no trace"


def test_a_request_is_sent_again_three_times_at_most_and_never_once_it_is_acknowledged() -> None:
    assert SENT_AGAIN_AT_MOST == 3
    stage = Stage(limits=LONG).begin_step(0.5).wait(30)
    assert [at for at, code in stage.timeline if code is REQUEST] == [0, 450, 1150, 2350]
    with pytest.raises(StepUncertain, match="sent four times and never acknowledged"):
        stage.machine.result()
    stage = Stage(limits=LONG).begin_step(0.5).wait(1.0).give(ack()).wait(40)
    assert [at for at, code in stage.timeline if code is REQUEST] == [0, 450]
    with pytest.raises(BarrierStuck, match="the completion is missing"):
        stage.machine.result()


def test_a_request_is_not_sent_again_whose_step_is_completed_during_the_look_at_the_agents() -> None:
    stage = Stage()
    stage.silent = True
    stage.begin_step(0.5).wait(0.46)
    assert stage.timeline[-1] == (450, Code.GET_AGENT_OVERVIEW)
    stage.give(ack(), brought(0.25))
    stage.silent = False
    stage.wait(1)
    assert stage.machine.result().completions[1].outputs.tolist() == [0.25]
    assert stage.codes.count(REQUEST) == 1


@pytest.mark.parametrize("seen", ["at the last reset", "by the fresh overview"])
def test_a_request_is_never_sent_again_while_others_control_agents(seen: str) -> None:
    stage = Stage()
    stage.foreign = True
    if seen == "at the last reset":
        stage.machine.foreign = frozenset({"agent9"})
    stage.begin_step(0.5).wait(3)
    assert stage.codes.count(REQUEST) == 1
    with pytest.raises(StepUncertain, match=r"could count for another client.*the world of agent9"):
        stage.machine.result()
    assert round(1000 * stage.machine.now) == 450


def test_several_requests_that_may_be_lost_end_the_episode() -> None:
    stage = Stage(DOCUMENT, 3).begin_step(0.1, 0.2, 0.3)
    assert stage.codes == [REQUEST] * 3
    stage.give(ack(2)).wait(4)
    with pytest.raises(StepUncertain, match="which of them were counted cannot be told"):
        stage.machine.result()
    assert stage.codes.count(REQUEST) == 3


def test_where_requests_go_one_by_one_a_lost_one_is_sent_again_behind_the_others() -> None:
    """It is the only one that is not acknowledged then."""
    stage = Stage(NERD, 3).begin_step(0.1, 0.2, 0.3).wait(0.35).give(ack(2)).wait(0.7).give(ack(3)).wait(0.6)
    requests = [message.encode()[1] for _, message in stage.sent if message.CODE is REQUEST]
    assert requests == [1, 2, 3, 1]
    stage.give(ack(1), *(brought(0.5, agent_id=at) for at in (1, 2, 3)))
    assert sorted(stage.machine.result().completions) == [1, 2, 3]


def test_a_server_that_answers_only_when_all_requests_are_in_gets_them_after_three_seconds() -> None:
    stage = Stage(NERD, 2, limits=LONG)
    stage.clock = None
    stage.begin_step(0.1, 0.2).wait(2.99)
    assert stage.codes.count(REQUEST) == 1
    stage.wait(1.0)
    assert stage.codes.count(REQUEST) == 2
    stage.clock = 0.02
    stage.give(ack(1), ack(2), brought(0.5, agent_id=1), brought(0.5, agent_id=2)).wait(1)
    assert stage.machine.result().restored == frozenset()


def test_a_lost_completion_is_read_from_the_repository_behind_120_ms_without_a_question() -> None:
    stage = Stage()
    stage.shows("0.25")
    stage.begin_step(0.5).give(ack())
    stage.clock = 0.02
    stage.wait(3)
    assert stage.timeline == [(0, REQUEST), (250, FREES), (350, ASKS), (470, ASKS), (470, ASKS), (470, FREES)]
    result = stage.machine.result()
    assert (result.completions[1].outputs.tolist(), result.restored) == ([0.25], {1})


@pytest.mark.parametrize("late", [0.26, 0.36, 0.46])
def test_a_completion_that_was_only_stalled_is_not_restored(late: float) -> None:
    stage = Stage()
    stage.begin_step(0.5).give(ack())
    stage.clock = 0.02
    stage.wait(late).give(brought(0.25)).wait(1)
    assert stage.machine.result().restored == frozenset()
    assert stage.codes.count(REQUEST) == 1


@pytest.mark.parametrize(
    "steps, longest, restored_at",
    [(0, 0.0, FIRST_STEP + 1.07), (1, 0.0, 0.47), (99, 0.4, 1.19), (100, 0.4, 0.47)],
    ids=["the first", "the second", "one was slow", "that was long ago"],
)
def test_a_completion_is_late_behind_twice_the_longest_of_the_latest_hundred_steps(
    steps: int, longest: float, restored_at: float
) -> None:
    stage = Stage(steps=steps, limits=LONG)
    stage.shows("0.25")
    stage.machine.pace.late(1, longest)
    stage.begin_step(0.5).give(ack())
    stage.clock = (steps + 1) / 100
    stage.wait(9)
    assert stage.machine.result().restored == {1}
    assert stage.machine.now == pytest.approx(restored_at)


def test_how_long_a_step_took_counts_unless_it_was_repaired_or_others_play() -> None:
    stage = Stage(limits=LONG).begin_step(0.5).give(ack()).wait(0.7).give(brought(0.25))
    assert stage.machine.pace.longest(3) == pytest.approx(0.7), "its requests were counted"
    assert Stage().machine.pace.longest(3) == 0.0
    repaired = Stage(limits=LONG).begin_step(0.5).wait(0.5).give(ack(), brought(0.25))
    repaired.machine.result()
    assert repaired.machine.pace.longest(3) == 0.0
    for seconds, foreign, kept in [(0.3, (), 0.3), (0.01, (), 0.0), (0.3, ("agent9",), 0.0)]:
        stage = Stage(limits=LONG).begin_step(0.5)
        stage.machine.foreign = frozenset(foreign)
        stage.machine.waited(seconds)
        assert stage.machine.pace.longest(3) == kept
    stage = Stage(limits=LONG)
    stage.machine.waited(0.3)
    assert stage.machine.pace.longest(3) == 0.0, "between steps"


@pytest.mark.parametrize("clock", [0.03, 0.0, 0.005, 1e9, -1.0])
def test_a_clock_that_shows_anything_but_one_step_ends_the_episode(clock: float) -> None:
    stage = Stage().begin_step(0.5).give(ack())
    stage.clock = clock
    stage.wait(1)
    with pytest.raises(StepUncertain, match="the clock shows something other than one step"):
        stage.machine.result()
    assert DOUBLED not in stage.anomalies, "the network may be innocent"


def test_a_step_that_may_have_run_without_a_request_ends_where_others_play_or_came_since_the_last_reset() -> (
    None
):
    for foreign, known in ((True, True), (True, False), (False, False)):
        stage = Stage()
        stage.foreign, stage.machine.foreign = foreign, frozenset({"agent9"} if known else ())
        stage.shows("0.25")
        stage.begin_step(0.5)
        stage.clock = 0.02
        stage.wait(1)
        assert len(stage.took(Code.GET_AGENT_OVERVIEW)) == (not known)
        if foreign:
            with pytest.raises(StepUncertain, match="may have run without a request of ours"):
                stage.machine.result()
        else:
            assert stage.machine.result().restored == {1}


def test_a_step_that_ran_before_all_requests_were_sent_ends_the_episode() -> None:
    """On a NERD server a request of a session that ended may have taken the place of one of ours."""
    stage = Stage(NERD, 2).begin_step(0.1, 0.2).give(brought(0.5))
    with pytest.raises(StepUncertain, match="before all requests were sent"):
        stage.machine.result()
    stage = Stage(NERD, 2).begin_step(0.1, 0.2)
    stage.clock = 0.02
    stage.wait(1)
    with pytest.raises(StepUncertain, match="may have run without a request of ours"):
        stage.machine.result()


@pytest.mark.parametrize("acknowledged", [True, False])
def test_without_a_clock_a_step_is_awaited_to_its_limit(*, acknowledged: bool) -> None:
    stage = Stage()
    drop_clock(stage.machine)
    stage.begin_step(0.5).give(*[ack()] * acknowledged).wait(9)
    assert stage.machine.now == pytest.approx(3.0)
    assert ASKS not in stage.codes
    assert stage.codes.count(REQUEST) == 1
    with pytest.raises(BarrierStuck if acknowledged else StepUncertain):
        stage.machine.result()
    assert stage.machine.episode.request_outstanding


@pytest.mark.parametrize("profile, frees", [(NERD, 250), (DOCUMENT, 750)])
def test_a_handler_that_may_wait_is_freed_before_a_question_at_once_or_after_two_without_an_answer(
    profile: Profile, frees: int
) -> None:
    stage = Stage(profile, limits=LONG)
    stage.clock, stage.silent = None, True
    stage.begin_step(0.5).give(ack()).wait(29)
    assert next(at for at, code in stage.timeline if code is FREES) == frees
    # The silences grow to a second, and no further.
    assert max(b - a for a, b in itertools.pairwise(stage.took(ASKS))) < 1.2
    assert len(stage.took(ASKS)) < 90
    stage.wait(2)
    with pytest.raises(SessionLost, match=r"fell silent in the middle of a step, for 3[01]\.0 s"):
        stage.machine.result()


def test_a_question_that_the_limit_cut_short_is_no_silence_of_the_simulator() -> None:
    stage = Stage(limits=Limits(step=2.3, query=2)).begin_step(0.5).give(ack()).wait(2.2)
    stage.clock = None
    stage.wait(2)
    assert stage.took(ASKS)[-1] == pytest.approx(2.25)
    with pytest.raises(BarrierStuck):
        stage.machine.result()


def test_the_completion_that_is_missing_is_the_one_that_is_acknowledged_unasked() -> None:
    stage = Stage(NERD, 3)
    stage.begin_step(0.1, 0.2, 0.3).give(ack(1), ack(2), ack(3), brought(0.5, agent_id=1))
    stage.sent.clear()
    stage.wait(0.25)
    assert [message.encode()[:2] for _, message in stage.sent] == [bytes((FREES, 2))]


# --- a reset -------------------------------------------------------------------------------------------------------

RESETS: Final = Code.RESET_SIMULATION


def test_a_lost_reset_is_sent_again_and_a_silence_lies_before_the_first_step() -> None:
    stage = Stage(limits=LONG, steps=2).begin_reset().wait(6.5)
    assert stage.codes.count(RESETS) == 2
    assert stage.took(RESETS)[1] > 5.0
    stage.give(ResetSimulationAck(), ResetSimulationCompleted())
    done = stage.machine.now
    stage.clock = 0.0
    stage.wait(2)
    assert stage.machine.result() is True
    assert stage.took(ASKS)[-1] == pytest.approx(done + 0.25)


def test_resets_are_sent_again_three_times_at_most_and_only_while_nobody_else_plays() -> None:
    stage = Stage(limits=LONG, steps=2).begin_reset().wait(70)
    assert stage.codes.count(RESETS) == 4
    with pytest.raises(BarrierStuck):
        stage.machine.result()
    for acknowledged in (True, False):
        stage = Stage(limits=LONG, steps=2)
        stage.foreign = not acknowledged
        stage.begin_reset().give(*[ResetSimulationAck()] * acknowledged).wait(70)
        assert stage.codes.count(RESETS) == 1
        with pytest.raises(BarrierStuck):
            stage.machine.result()


@pytest.mark.parametrize("times, done", [((), 5.0), ((0.1,), 0.25), ((0.3, 1.0, 0.2), 2.0)])
def test_a_reset_whose_completion_is_lost_is_done_when_the_clock_shows_zero_and_it_is_late(
    times: tuple[float, ...], done: float
) -> None:
    stage = Stage(limits=LONG, steps=2)
    stage.machine.learned.reset_times.extend(times)
    stage.begin_reset().give(ResetSimulationAck())
    stage.clock = 0.0
    stage.wait(9)
    assert stage.machine.result() is False
    assert done < stage.machine.now < done + 1.5
    assert not stage.machine.episode.reset_outstanding
    assert list(stage.machine.learned.reset_times) == list(times)


def test_a_clock_that_resets_leave_alone_says_nothing_of_them() -> None:
    stage = Stage(limits=LONG, steps=2)
    stage.machine.learned.resets_zero_clock = False
    stage.begin_reset().give(ResetSimulationAck())
    stage.clock = 0.0
    stage.wait(30).give(ResetSimulationCompletedAck()).wait(1)
    assert stage.machine.result() is True


@BOTH
def test_a_handler_in_a_reset_is_freed_by_the_code_that_answers_its_own(profile: Profile) -> None:
    stage = Stage(profile, limits=LONG, steps=2)
    answer = RESET_COMPLETED[profile.reset_completed]
    stage.begin_reset().give(ResetSimulationAck())
    stage.clock, stage.silent = None, True
    stage.wait(59.5)
    first = next(at for at, code in stage.timeline if code is answer)
    assert first == (250 if profile is NERD else 1000)
    stage.wait(2)
    with pytest.raises(SessionLost, match="fell silent in the middle of a reset"):
        stage.machine.result()
