"""Steps and resets that something is wrong with: what is found out, and when no step is believed any more."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import (
    BarrierStuck,
    RemoteProtocolError,
    StepUncertain,
)
from ospbridge.interface import ValueEntry
from ospbridge.osp.client.clock import TIME_STEP_SIZE
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.notices import Notice
from ospbridge.osp.client.seeding import SEED
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentOverview,
    AgentOverviewNext,
    GetValue,
    Message,
    NextSimulationStepAck,
    ResetSimulationAck,
    ResetSimulationCompleted,
    SetValueAck,
    StepCompleted,
    ValueContent,
    ValueIds,
    ValueInfo,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step import barrier
from ospbridge.osp.step.votes import Vote
from tests.osp.stage import brought, give, on_stage

CLOCK = 5
ACK = NextSimulationStepAck(1)
OURS = (AgentOverview(1), AgentOverviewNext(0, 1, "Agent", 0, "agent"))
"""An overview in which nobody but us controls anything."""


def at(seconds: float) -> ValueContent:
    return ValueContent(CLOCK, f"{seconds:g}")


def sent(machine: ClientMachine) -> list[Message]:
    """What was sent since the last look."""
    messages = [decode_request(bytes(data)) for data in machine.outgoing]
    machine.outgoing.clear()
    return messages


def codes(machine: ClientMachine) -> list[Code]:
    return [message.CODE for message in sent(machine)]


def stepping(*, guarded: bool = False, outputs: int = 1) -> tuple[ClientMachine, Vote]:
    """A machine that has sent its vote."""
    machine, vote = on_stage(NERD, outputs=outputs)
    machine.guarded = guarded
    machine.begin(barrier.step(machine, [vote]), 0.0)
    assert codes(machine) == [Code.NEXT_SIMULATION_STEP]
    return machine, vote


def silence(machine: ClientMachine) -> None:
    """Nothing comes until the machine acts."""
    assert machine.deadline is not None
    machine.handle_timer(machine.deadline)


def until_the_end(machine: ClientMachine) -> None:
    while not machine.finished:
        silence(machine)


# --- steps that are not even begun ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state, told",
    [
        ({"suspect": "a dog ate it"}, "cannot be trusted: a dog ate it"),
        (
            {"vote_outstanding": True},
            "an earlier step was interrupted or given up, and its vote may be outstanding",
        ),
        ({"resets_outstanding": 1}, "a reset of this session is still outstanding"),
    ],
    ids=["suspect", "vote", "reset"],
)
def test_no_vote_is_given_while_something_is_left_of_before(state: dict[str, object], told: str) -> None:
    machine, vote = on_stage(NERD)
    for name, value in state.items():
        setattr(machine, name, value)
    machine.begin(barrier.step(machine, [vote]), 0.0)
    with pytest.raises(StepUncertain, match=told):
        machine.result()
    assert not machine.outgoing


def test_no_reset_is_asked_for_while_a_vote_is_outstanding() -> None:
    machine, _ = on_stage(NERD)
    machine.vote_outstanding = True
    machine.begin(barrier.reset(machine, 0), 0.0)
    with pytest.raises(StepUncertain, match="it would fire later"):
        machine.result()
    assert not machine.outgoing


# --- steps that met silence ----------------------------------------------------------------------------------------


def test_a_vote_that_was_lost_is_sent_again_once_the_clock_was_asked_twice_and_nobody_else_votes() -> None:
    machine, _ = stepping()
    silence(machine)
    assert codes(machine) == [Code.NEXT_SIMULATION_STEP_COMPLETED_ACK, Code.GET_VALUE]
    give(machine, at(0))
    assert codes(machine) == [Code.GET_AGENT_OVERVIEW]
    give(machine, *OURS)
    assert codes(machine) == [Code.AGENT_OVERVIEW_ACK, Code.GET_AGENT_OVERVIEW], "the first may be a late one"
    give(machine, *OURS)
    assert codes(machine) == [Code.AGENT_OVERVIEW_ACK, Code.GET_VALUE]
    give(machine, at(0))
    assert codes(machine) == [Code.NEXT_SIMULATION_STEP]
    give(machine, ACK, brought(0.5), at(0.01))
    np.testing.assert_array_equal(machine.result().completions[1].outputs, [0.5])


def test_a_vote_is_not_sent_again_where_its_step_is_completed_during_the_last_look_at_the_agents() -> None:
    machine, _ = stepping()
    silence(machine)
    give(machine, at(0), *OURS)
    assert codes(machine)[-1] is Code.GET_AGENT_OVERVIEW
    give(machine, ACK, brought(0.5), *OURS, at(0.01))
    assert Code.NEXT_SIMULATION_STEP not in codes(machine)
    np.testing.assert_array_equal(machine.result().completions[1].outputs, [0.5])


# --- completions that are not believed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown, size, believed",
    [
        (0.01, "0.01", True),
        (0.02, "0.01", False),
        (0.02, "small", False),
        (0.02, "", False),
        (1.0, None, False),
    ],
)
def test_a_vote_that_was_counted_twice_in_a_first_step_is_believed_where_the_simulator_says_how_long_it_takes(
    shown: float, size: str | None, *, believed: bool
) -> None:
    machine, _ = stepping(guarded=True)
    machine.clock.size = None
    if size is not None:
        machine.values[TIME_STEP_SIZE] = ValueEntry(8, TIME_STEP_SIZE, "Double")
    give(machine, ACK, ACK, brought(0.5), *[at(shown)] * 3, *[ValueContent(8, size or "")] * 2)
    while not machine.finished:
        if Code.GET_VALUE_IDS in codes(machine):
            give(machine, ValueIds(0))
        else:
            silence(machine)
    if believed:
        np.testing.assert_array_equal(machine.result().completions[1].outputs, [0.5])
        return
    with pytest.raises(StepUncertain, match="counted twice, and it is not known how long a step takes"):
        machine.result()


@pytest.mark.parametrize("ago, checked", [(0.0, True), (29.0, True), (31.0, False)])
def test_a_repeated_completion_is_not_believed_right_behind_a_session_to_which_one_came(
    ago: float, checked: bool
) -> None:
    before, _ = on_stage(NERD)
    before.anomaly("a completion came twice", astray=True)
    machine, vote = on_stage(NERD)
    machine.now = before.now + ago
    machine.learn_from(before.lateness)
    machine.begin(barrier.step(machine, [vote]), machine.now)
    give(machine, ACK, brought(0.5), *[at(0.01)] * checked)
    machine.result()
    machine.begin(barrier.step(machine, [vote]), machine.now)
    give(machine, ACK, brought(0.5), *[at(0.02)] * checked)
    assert machine.finished != checked
    assert (codes(machine)[-1] is Code.GET_VALUE_IDS) == checked


def test_completions_and_acknowledgements_of_agents_that_are_not_ours_are_no_part_of_a_step() -> None:
    machine, _ = stepping(guarded=True)
    stranger = StepCompleted(8, np.zeros(1, np.float32), np.empty(0, np.float32))
    give(machine, NextSimulationStepAck(8), stranger, ACK)
    assert not machine.finished
    assert "agent 8 came that belongs to no step" in machine.suspect
    give(machine, brought(0.5), at(0.01))
    assert machine.result().completions.keys() == {1}
    assert not machine.doubles


def test_a_completion_that_no_step_is_known_of_leaves_those_before_in_doubt() -> None:
    machine, _ = stepping()
    give(machine, brought(0.7), ACK, brought(0.5), at(0.01))
    np.testing.assert_array_equal(machine.result().completions[1].outputs, [0.5])
    assert machine.suspect == "the completion of an earlier step of agent 1 came during a later one"
    assert machine.notices[-1].text == machine.suspect


# --- resets --------------------------------------------------------------------------------------------------------


def resetting(before: float, seed: int = 0, *, profile: Profile = NERD) -> ClientMachine:
    """A machine that has asked for a reset; the clock showed ``before``."""
    machine, _ = on_stage(profile)
    machine.seedless = not seed
    machine.begin(barrier.reset(machine, seed), 0.0)
    if not seed:
        give(machine, at(before))
    return machine


def test_a_seed_that_the_simulator_has_no_variable_for_is_told_once_and_never_asked_for_again() -> None:
    machine = resetting(0, seed=7)
    give(machine, ValueIds(0))
    assert machine.seedless
    assert [notice.text for notice in machine.notices] == [
        f"the simulator has no variable {SEED}: seeds have no effect"
    ]
    machine.interrupt(TimeoutError())
    sent(machine)
    machine.begin(barrier.reset(machine, 8), 0.0)
    (question,) = sent(machine)
    assert isinstance(question, GetValue)
    assert question.value_id == CLOCK, "the clock, as without a seed"


OWN_SEEDS = "/Simulation/RandomizeSeedAtReset"


@pytest.mark.parametrize(
    "content, told", [("T", True), ("true", True), ("1", True), ("F", False), ("", False)]
)
def test_a_simulator_that_is_set_to_draw_its_own_seeds_is_told_of_once(content: str, told: bool) -> None:
    machine = resetting(0, seed=7)
    give(machine, ValueIds(1), ValueInfo(0, 3, "Int", SEED), SetValueAck(3, 1))
    give(machine, ValueIds(1), ValueInfo(0, 4, "Bool", OWN_SEEDS), ValueContent(4, content))
    found = [notice.text for notice in machine.notices if OWN_SEEDS in notice.text]
    assert len(found) == told
    assert all(f"given seeds have no effect ({OWN_SEEDS} is {content}; false under" in text for text in found)
    machine.interrupt(TimeoutError())
    sent(machine)
    machine.begin(barrier.reset(machine, 8), 0.0)
    give(machine, *[SetValueAck(3, 1)] * 2)
    *_, question = sent(machine)
    assert isinstance(question, GetValue)
    assert question.value_id == CLOCK, "it was asked once"


def test_nothing_waits_for_whether_a_simulator_draws_its_own_seeds() -> None:
    machine = resetting(0, seed=7)
    give(machine, ValueIds(1), ValueInfo(0, 3, "Int", SEED), SetValueAck(3, 1))
    began = machine.now
    while Code.RESET_SIMULATION not in codes(machine):
        silence(machine)
        give(machine, at(0))
    assert machine.now - began < machine.limits.query + 1.0
    assert not machine.finished


def test_a_seed_that_is_refused_does_not_hinder_the_reset() -> None:
    machine = resetting(0, seed=7)
    give(machine, ValueIds(1), ValueInfo(0, 3, "Int", SEED), SetValueAck(3, 0))
    assert Notice(f"{machine.peer} refused the seed 7") in machine.notices
    machine.notices.remark(f"{machine.peer} refused the seed 8", about=SEED)
    assert not any("seed 8" in notice.text for notice in machine.notices), "said once"
    while Code.RESET_SIMULATION not in codes(machine):
        give(machine, at(0))
    give(machine, ResetSimulationAck(), ResetSimulationCompleted(), at(0))
    assert machine.result() is True


def test_a_seed_travels_with_the_reset_where_the_server_takes_it_there() -> None:
    machine, _ = on_stage(DOCUMENT)
    machine.begin(barrier.reset(machine, 7), 0.0)
    give(machine, at(0))
    assert sent(machine)[-1].encode() == b"\x46\x07\0\0\0"


def test_a_lost_reset_is_voted_for_again_where_nobody_else_controls_an_agent() -> None:
    machine = resetting(0.5)
    sent(machine)
    silence(machine)
    give(machine, at(0.5), *OURS, *OURS)
    assert codes(machine).count(Code.RESET_SIMULATION) == 1
    give(machine, ResetSimulationAck(), ResetSimulationCompleted(), at(0), at(0))
    assert machine.result() is True


@pytest.mark.parametrize("answer", [None, AgentOverview(-1)], ids=["silence", "nonsense"])
def test_a_stuck_barrier_is_told_although_nobody_can_say_who_is_missing(answer: Message | None) -> None:
    machine, _ = stepping()
    machine.clock.value_id = None
    give(machine, ACK)
    while not machine.finished:
        silence(machine)
        if answer is not None and Code.GET_AGENT_OVERVIEW in codes(machine) and not machine.finished:
            give(machine, answer)
    with pytest.raises(BarrierStuck, match="no other client controls an agent"):
        machine.result()
    assert machine.suspect == "a step of this session never completed"


@pytest.mark.parametrize("others", [False, True])
def test_a_step_whose_completion_nobody_can_read_is_not_said_to_be_a_pause(*, others: bool) -> None:
    """A server that sends observed values in the datagram of the completion reads the document so."""
    machine, _ = stepping()
    machine.clock.value_id = None
    if others:
        machine.foreign = frozenset({"other"})
    give(machine, ACK)
    completed = StepCompleted(1, np.zeros(1, np.float32), np.zeros(0, np.float32), (), 1)
    with pytest.raises(RemoteProtocolError):
        machine.receive(completed.encode() + ValueContent(1, "0.5").encode(), machine.now)
    while not machine.finished:
        silence(machine)
    with pytest.raises(BarrierStuck, match="other clients" if others else "is not of OSP 1.1") as stuck:
        machine.result()
    assert ("its author" in stuck.value.hint) is not others


def test_an_agent_that_the_simulator_took_away_is_told_instead_of_clients_that_do_not_vote() -> None:
    machine, _ = stepping()
    machine.clock.value_id = None
    give(machine, ACK)
    while not machine.finished:
        silence(machine)
        if Code.GET_AGENT_OVERVIEW in codes(machine) and not machine.finished:
            give(machine, AgentOverview(0))
    with pytest.raises(BarrierStuck, match="does not offer agent 'agent' any more") as stuck:
        machine.result()
    assert "ospbridge agents" in stuck.value.hint
