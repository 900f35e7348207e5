"""A reset, datagram by datagram: the clock around it, what is old, seeds; and resets of whole sessions in memory."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import pytest

from ospbridge.errors import BarrierStuck, StepUncertain
from ospbridge.osp.clock_reading import drop_clock
from ospbridge.osp.codes import SEED, Code
from ospbridge.osp.messages import (
    Message,
    ResetSimulation,
    ResetSimulationAck,
    ResetSimulationCompleted,
    SetValueAck,
    ValueContent,
    ValueIds,
    ValueInfo,
)
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.reset import OWN_SEEDS
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Pair, no_fault
from tests.osp.playing import ASKS_RESET, PROMPT, REQUEST, RESETS, Player
from tests.osp.stage import BOTH, SHORT, Stage, ack, brought, joined

DONE: Final = (ResetSimulationAck(), ResetSimulationCompleted())


def zeroed(stage: Stage, *replies: Message) -> Stage:
    """The reset is acknowledged and completed, and the clock shows 0."""
    stage.clock = 0.0
    return stage.give(*(replies or DONE)).wait(1)


def steps_in(stage: Stage) -> list[bytes]:
    return [bytes(message.encode()) for _, message in stage.sent if message.CODE is REQUEST]


# --- the clock around it -------------------------------------------------------------------------------------------


def test_a_reset_of_a_clock_above_zero_costs_two_looks_at_it() -> None:
    stage = zeroed(Stage(steps=2).begin_reset())
    assert stage.machine.result() is True
    assert [code.name for _, code in stage.timeline] == [
        "GET_AGENT_OVERVIEW",
        "AGENT_OVERVIEW_ACK",
        "GET_VALUE",
        "RESET_SIMULATION",
        "RESET_SIMULATION_COMPLETED_ACK",
        "GET_VALUE",
        "GET_AGENT_OVERVIEW",
        "AGENT_OVERVIEW_ACK",
    ]
    assert (stage.machine.clock.base, stage.machine.clock.count) == (0.0, 0)
    assert list(stage.machine.learned.reset_times) == [0.0]


def test_a_clock_that_shows_zero_is_set_to_one_before_a_reset_and_read_back() -> None:
    stage = Stage(steps=0).begin_reset()
    assert [message.content for _, message in stage.sent if message.CODE is Code.SET_VALUE] == ["1"]  # type: ignore[attr-defined]
    assert len(stage.took(Code.GET_VALUE)) == 2
    assert zeroed(stage).machine.result() is True


def test_a_clock_is_not_set_while_others_play_nor_where_it_was_refused() -> None:
    stage = Stage(steps=0)
    stage.foreign = True
    assert Code.SET_VALUE not in stage.begin_reset().codes
    stage = Stage(steps=0)
    stage.status = 0
    zeroed(stage.begin_reset())
    assert stage.machine.result() is True
    assert not stage.machine.learned.clock_can_be_set
    stage.begin_step(0.5).give(ack(), brought(0.5))
    stage.begin_reset()
    assert Code.SET_VALUE not in stage.codes


def test_a_clock_that_stands_where_it_stood_is_one_that_resets_leave_alone() -> None:
    stage = Stage(steps=2).begin_reset().give(*DONE).wait(1)
    assert stage.machine.result() is True
    assert not stage.machine.learned.resets_zero_clock
    assert stage.machine.clock.base == 0.02


@pytest.mark.parametrize("behind", [0.01, 0.03])
def test_a_clock_that_stands_elsewhere_behind_a_reset_tells_of_an_old_request(behind: float) -> None:
    stage = Stage(steps=2).begin_reset()
    stage.clock = behind
    stage.give(*DONE).wait(1)
    with pytest.raises(StepUncertain, match=f"the clock shows {behind} s behind a reset"):
        stage.machine.result()


def test_a_clock_that_runs_by_itself_is_done_without() -> None:
    stage = Stage(steps=2).begin_reset()
    stage.clock = 0.01
    stage.give(*DONE).wait(0.05)
    stage.clock = 0.013
    stage.wait(0.1)
    stage.clock = 0.016
    stage.wait(1)
    assert stage.machine.result() is True
    assert stage.machine.clock.missing
    assert any("does not advance evenly" in text for text in stage.anomalies)


# --- resets that follow resets, and completions that come late -----------------------------------------------------


def test_one_neutral_step_lies_between_two_resets() -> None:
    stage = zeroed(Stage(steps=2).begin_reset())
    stage.machine.controlled[1] = stage.requests[0].agent
    stage.begin_reset()
    assert steps_in(stage) == [b"\x50\1\0\0\0\1\0\0\0" + np.float32(0).tobytes()]
    stage.clock = 0.01
    stage.give(ack(), brought(0.5))
    assert stage.codes[-1] is ASKS_RESET
    assert zeroed(stage).machine.result() is True


def test_no_step_lies_between_two_resets_while_others_play() -> None:
    stage = Stage(steps=2)
    stage.foreign = True
    zeroed(stage.begin_reset())
    assert not steps_in(stage.begin_reset())


def test_a_late_completion_before_the_first_step_is_acknowledged_and_a_later_one_is_a_reset_by_others() -> (
    None
):
    stage = zeroed(Stage(steps=2).begin_reset())
    stage.sent.clear()
    stage.give(ResetSimulationCompleted())
    assert stage.codes == [Code.RESET_SIMULATION_COMPLETED_ACK]
    assert not any(isinstance(notice, WorldReset) for notice in stage.machine.notices)
    stage.begin_step(0.5).give(ResetSimulationCompleted(), ack(), brought(0.5))
    stage.machine.result()
    stage.give(ResetSimulationCompleted())
    assert stage.codes.count(Code.RESET_SIMULATION_COMPLETED_ACK) == 2
    assert any(isinstance(notice, WorldReset) for notice in stage.machine.notices)


def test_two_completions_in_a_row_are_one_and_missing_acknowledgements_are_given_up_after_a_silence() -> None:
    stage = zeroed(Stage(DOCUMENT, 3, steps=2).begin_reset(), DONE[1], DONE[0], DONE[1])
    assert stage.machine.result() is True
    assert stage.codes.count(ASKS_RESET) == 3
    assert stage.timeline[-3] == (250, Code.GET_VALUE)


def test_requests_of_a_reset_go_one_by_one_where_the_server_wants_it_so() -> None:
    stage = Stage(NERD, 3, steps=2).begin_reset()
    for count in (1, 2, 3, 3):
        assert stage.codes.count(ASKS_RESET) == count
        stage.give(ResetSimulationAck())


@BOTH
def test_a_reset_that_was_given_up_is_not_asked_for_again_by_its_session(profile: Profile) -> None:
    """A second request would stand for the other client's."""
    pair = Pair(SyntheticWorld(1, 2, names=["mine", "theirs"]), profile)
    mine, theirs = joined(pair, "mine", limits=SHORT), joined(pair, "theirs")
    with pytest.raises(BarrierStuck, match=r"within 4 s .*theirs"):
        mine.do(mine.conversation.reset(1))
    for _ in range(3):
        with pytest.raises(StepUncertain, match="an earlier reset was interrupted") as caught:
            mine.do(mine.conversation.reset(1))
        assert caught.value.interrupted
    assert not pair.ledger
    theirs.do(theirs.conversation.reset(1))
    assert [entry["kind"] for entry in pair.ledger] == ["reset"]


# --- requests of an earlier session --------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("old", [*itertools.chain(*(itertools.combinations((1, 2, 3), n) for n in range(3)))])
def test_requests_that_outlived_a_session_step_no_world_of_the_next(
    profile: Profile, old: tuple[int, ...]
) -> None:
    """Which of three agents have sent one, when their session is given up."""
    player = Player(profile, 3)
    player.begin(2)
    for agent in old:
        request = player.talk.requests[player.names[agent - 1]]
        player.pair.to_handler(bytes(request.datagram), player.talk.handler.port, player.client.address)
    player.pair.settle(0.1)
    assert len(player.pair.server.step_requests) == len(old)
    player.machine.episode.request_outstanding = True
    with pytest.raises(StepUncertain):
        player.step()
    player.succeed()
    assert player.machine.episode.barrier_unknown
    assert player.episode(4) == ""
    assert not player.machine.episode.barrier_unknown
    before = player.sent(REQUEST)
    player.steps(1)
    assert player.sent(REQUEST) == before + 3


def test_old_requests_are_looked_for_one_request_at_a_time_with_neutral_inputs_until_the_clock_moves() -> (
    None
):
    stage = Stage(NERD, 2, steps=2, limits=Limits())
    stage.machine.episode.barrier_unknown = True
    zeroed(stage.begin_reset(), DONE[0], *DONE)
    stage.wait(0.1)
    assert [data[1] for data in steps_in(stage)] == [1, 2, 1, 2, 1]
    assert stage.machine.episode.request_outstanding
    first, second = stage.took(REQUEST)[:2]
    assert second - first == pytest.approx(0.25)
    stage.clock = 0.01
    stage.give(ack(1), brought(0.5, agent_id=1)).wait(0.3)
    assert stage.codes[-1] is ASKS_RESET
    assert stage.machine.episode.stepped is False
    zeroed(stage, DONE[0], *DONE)
    assert stage.machine.result() is True
    assert stage.codes.count(Code.NEXT_SIMULATION_STEP_COMPLETED_ACK) == 1


@pytest.mark.parametrize("agents", [2, 30])
def test_a_barrier_that_cannot_be_emptied_is_given_up_once_each_agent_had_its_turn(agents: int) -> None:
    stage = Stage(DOCUMENT, agents, steps=2, limits=Limits())
    stage.machine.episode.barrier_unknown = True
    zeroed(stage.begin_reset(), *[DONE[0]] * agents, DONE[1])
    stage.wait(30)
    with pytest.raises(StepUncertain, match="requests of an earlier session may still be counted"):
        stage.machine.result()
    assert len(steps_in(stage)) == agents + 20


@pytest.mark.parametrize("why", ["others play", "no clock", "one agent"])
def test_old_requests_are_not_looked_for_where_that_cannot_be_done(why: str) -> None:
    stage = Stage(NERD, 1 if why == "one agent" else 2, steps=2)
    stage.machine.episode.barrier_unknown = True
    if why == "no clock":
        drop_clock(stage.machine)
    stage.foreign = why == "others play"
    replies = [DONE[0]] * len(stage.requests)
    assert zeroed(stage.begin_reset(), *replies, DONE[1]).machine.result() is True
    assert not steps_in(stage)


# --- seeds ---------------------------------------------------------------------------------------------------------


def seeded(*answers: Message) -> Stage:
    """A NERD server is asked for the variable of the seed."""
    return Stage(steps=2).begin_reset(7).give(*answers)


KNOWN: Final = (ValueIds(1), ValueInfo(0, 3, "Int", SEED))


def test_a_seed_that_the_simulator_has_no_variable_for_is_told_once_and_never_asked_for_again() -> None:
    stage = seeded(ValueIds(0))
    assert stage.anomalies == [f"the simulator has no variable {SEED}: seeds have no effect"]
    zeroed(stage)
    stage.begin_step(0.5).give(ack(), brought(0.5))
    stage.clock = 0.01
    assert stage.begin_reset(8).codes == [ASKS_RESET]


@pytest.mark.parametrize(
    "content, told", [("T", True), ("true", True), ("1", True), ("F", False), ("", False)]
)
def test_a_simulator_that_is_set_to_draw_its_own_seeds_is_told_of_once(content: str, *, told: bool) -> None:
    stage = seeded(*KNOWN, SetValueAck(3, 1))
    stage.give(ValueIds(1), ValueInfo(0, 4, "Bool", OWN_SEEDS), ValueContent(4, content))
    found = [text for text in stage.anomalies if OWN_SEEDS in text]
    assert len(found) == told
    assert all(f"given seeds have no effect ({OWN_SEEDS} is {content}; false under" in text for text in found)
    zeroed(stage)
    stage.begin_step(0.5).give(ack(), brought(0.5))
    stage.clock = 0.01
    assert stage.begin_reset(8).give(SetValueAck(3, 1)).codes == [Code.SET_VALUE, ASKS_RESET], (
        "it was asked once"
    )


def test_nothing_waits_for_whether_a_simulator_draws_its_own_seeds() -> None:
    assert ASKS_RESET in seeded(*KNOWN, SetValueAck(3, 1)).wait(SHORT.query + 1.0).codes


@pytest.mark.parametrize("answer", [SetValueAck(3, 0), SetValueAck(3, 2)])
def test_a_seed_that_is_refused_does_not_hinder_the_reset(answer: Message) -> None:
    stage = seeded(*KNOWN, answer)
    assert "the simulator refused the seed 7" in stage.anomalies
    assert zeroed(stage).machine.result() is True


def test_a_seed_that_nobody_answers_about_is_told_and_the_reset_goes_on() -> None:
    stage = seeded().wait(SHORT.query + 0.1)
    assert f"the simulator did not answer about {SEED}: it has not got the seed 7" in stage.anomalies
    assert ASKS_RESET in stage.codes


def test_a_seed_travels_with_the_reset_where_the_server_takes_it_there() -> None:
    stage = Stage(DOCUMENT, steps=2).begin_reset(7)
    assert stage.sent[-1][1] == ResetSimulation(7)


# --- on networks that repeat, and worlds that take their time ------------------------------------------------------


def told_of_a_reset(player: Player) -> bool:
    return any(isinstance(notice, WorldReset) for notice in player.talk.pop_notices())


@BOTH
@pytest.mark.parametrize("behind", [0.0, 2e-4])
def test_completions_that_come_twice_before_the_first_step_are_nobody_else_s(
    profile: Profile, behind: float
) -> None:
    player = Player(profile, 3)
    for seed in range(1, 4):
        player.pair.fault = lambda d: (0.0, behind) if not d.to_server and d.data[0] in RESETS else PROMPT
        player.reset(seed)
        player.pair.settle(0.01)
        player.pair.fault = no_fault
        assert player.told(4) == ""
        assert not told_of_a_reset(player)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_reset_that_takes_its_time_is_waited_for_and_not_asked_for_again(*, acknowledged: bool) -> None:
    stage = Stage(limits=Limits(), steps=2)
    if not acknowledged:
        stage.machine.learned.reset_times.append(30.0)
    stage.begin_reset().give(*[DONE[0]] * acknowledged).wait(40.0)
    assert not stage.machine.finished
    stage.clock = 0.0
    stage.give(*DONE[acknowledged:]).wait(1)
    assert stage.machine.result() is True
    assert stage.codes.count(ASKS_RESET) == 1
    assert max(stage.machine.learned.reset_times) == pytest.approx(40.0)
