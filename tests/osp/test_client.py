"""The client machine against the server machine in memory: what users rely on beyond the straight path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    BarrierStuck,
    LocalProtocolError,
    QueryTimeout,
    StepUncertain,
    ValueNotFound,
    ValueRejected,
)
from ospbridge.osp.client import RESET_COMPLETED
from ospbridge.osp.codes import SIMULATION_TIME, Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.osp.world import Variable
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair
from tests.osp.stage import BOTH, joined

# --- agents -------------------------------------------------------------------------------------------------


@BOTH
def test_a_misspelt_agent_is_answered_with_a_suggestion_and_a_taken_one_with_a_way_out(
    profile: Profile,
) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["cart", "pole"]), profile)
    first, second = joined(pair, "cart"), joined(pair)
    with pytest.raises(AgentNotFound, match="no agent 'carts'; it offers cart, pole") as unknown:
        second.do(second.conversation.register(["carts"]))
    assert "did you mean 'cart'" in unknown.value.hint
    with pytest.raises(AgentTaken) as taken:
        second.do(second.conversation.register(["pole", "cart"]))
    assert "restart-communication" in taken.value.hint
    assert first.conversation.requests
    assert not second.conversation.requests, "all or none"
    assert pair.server.controlled == 1


@BOTH
def test_an_agent_of_3000_interface_values_is_described_completely(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1000, 1500, 500), profile)
    client = joined(pair)
    agent = client.do(client.conversation.describe("agent"))
    assert [len(agent.inputs), len(agent.outputs), len(agent.infos)] == [1000, 1500, 500]
    assert agent.outputs[1499].name == "/sensor/1499"


def overflowing(size: int) -> tuple[list[int], object]:
    """A receive buffer that holds ``size`` datagrams of one instant and loses the rest of a burst."""
    lost = [0]
    state = {"at": -1.0, "seen": 0}

    def fault(datagram: Datagram) -> tuple[float, ...]:
        if datagram.to_server:
            state["seen"] = 0
            return (0.0,)
        state["seen"] += 1
        if state["seen"] > size:
            lost[0] += 1
            return ()
        return (0.0,)

    return lost, fault


@pytest.mark.sampled(1)
@BOTH
@pytest.mark.parametrize("buffer", [20_000, 700])
def test_a_repository_of_10000_values_is_listed_completely_in_parts_if_need_be(
    profile: Profile, buffer: int
) -> None:
    lost, fault = overflowing(buffer)
    pair = Pair(SyntheticWorld(1, 1, values=10_000), profile, fault=fault)  # type: ignore[arg-type]
    client = joined(pair, profile=profile)
    values = client.do(client.conversation.values())
    assert len({value.name for value in values}) == len(values) > 10_000
    assert (lost[0] > 0) is (buffer < 10_000)


# --- variables ----------------------------------------------------------------------------------------------


@BOTH
def test_variables_are_read_set_and_refused_by_name(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.set("/Simulation/TimeStepSize", "0.5"))
    assert client.do(talk.get("/Simulation/TimeStepSize")).value == "0.5"
    with pytest.raises(ValueRejected, match="could not parse 'much'"):
        client.do(talk.set("/Simulation/TimeStepSize", "much"))
    client.do(talk.values())
    with pytest.raises(ValueNotFound) as caught:
        client.do(talk.get("/Simulation/TimeStepSise"))
    assert "/Simulation/TimeStepSize" in caught.value.hint


@BOTH
def test_watched_variables_come_with_each_step_pushed_or_polled(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.watch(["/Simulation/SimulationTime"]))
    client.do(talk.reset(1))
    times = [
        client.do(talk.step({"agent": [0.0]}))["agent"].values["/Simulation/SimulationTime"] for _ in range(3)
    ]
    assert times == ["0.01", "0.02", "0.03"]
    polls = [d for d in pair.sent if d.to_server and d.data[0] == Code.GET_VALUE]
    # Beside what resets and a first step ask.
    assert (len(polls) > 8) is not profile.values_are_pushed


@BOTH
def test_events_come_by_name_with_the_step_they_occurred_in(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = joined(pair, "agent")
    talk = client.conversation
    assert client.do(talk.register_event("/Synthetic/Mark"))
    assert not client.do(talk.register_event("/No/Such"))
    client.do(talk.reset(1))
    marked = [bool(client.do(talk.step({"agent": [0.0]}))["agent"].events) for _ in range(20)]
    assert [number + 1 for number, mark in enumerate(marked) if mark] == [10, 20]


# --- steps --------------------------------------------------------------------------------------------------


def test_inputs_of_the_wrong_number_or_agent_are_refused() -> None:
    pair = Pair(SyntheticWorld(3, 1), NERD)
    client = joined(pair, "agent")
    with pytest.raises(LocalProtocolError, match="has 3 inputs, got"):
        client.do(client.conversation.step({"agent": [0.0, 1.0]}))
    one: Any
    for one in ([0.5], 0.5, np.full(1, 0.5, np.float32), np.float32(0.5), None, ["a", "b", "c"]):
        with pytest.raises(LocalProtocolError, match="has 3 inputs, got"):
            client.do(client.conversation.step({"agent": one}))
    with pytest.raises(LocalProtocolError, match=r"missing \['agent'\], not controlled \['other'\]"):
        client.do(client.conversation.step({"other": [0.0]}))


@BOTH
def test_one_client_alone_is_stuck_with_names_and_nothing_fires(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["mine", "theirs"]), profile)
    mine, theirs = joined(pair, "mine", limits=Limits(reset=5, step=5)), joined(pair, "theirs")
    pair.run((mine, mine.conversation.reset(1)), (theirs, theirs.conversation.reset(1)))
    pair.run(
        (mine, mine.conversation.step({"mine": [0.5]})),
        (theirs, theirs.conversation.step({"theirs": [0.25]})),
    )
    before = len(pair.ledger)
    with pytest.raises(BarrierStuck, match=r"within 5 s .*theirs") as caught:
        mine.do(mine.conversation.reset(2))
    assert "ospbridge connect" in caught.value.hint
    with pytest.raises(
        BarrierStuck,
        match=r"did not complete.*when this session leaves, its request may step the world of mine",
    ):
        theirs.do(theirs.conversation.step({"theirs": [0.0]}), within=100)
    assert len(pair.ledger) == before
    with pytest.raises(StepUncertain, match="outstanding"):
        theirs.do(theirs.conversation.reset(3))


def test_after_events_were_registered_a_session_leaves_without_end_where_that_kills() -> None:
    for profile in (NERD, DOCUMENT):
        pair = Pair(SyntheticWorld(1, 1), profile)
        client = joined(pair, "agent")
        client.do(client.conversation.register_event("/Synthetic/Mark"))
        assert client.do(client.conversation.leave())
        codes = {d.data[0] for d in pair.sent if d.to_server}
        assert (Code.END_COMMUNICATION in codes) is profile.end_after_events_is_safe
        assert pair.server.controlled == 0


@BOTH
def test_stalls_of_the_server_change_nothing(profile: Profile) -> None:
    turn = iter(range(10_000))
    pair = Pair(SyntheticWorld(1, 1), profile, stall=lambda: next(turn) % 3 == 0)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.reset(1))
    for number in range(30):
        outcome = client.do(talk.step({"agent": [0.5]}))["agent"]
        np.testing.assert_array_equal(
            outcome.outputs, expected(np.array([0.5], np.float32), number + 1, 1, seed=1)
        )
    assert sum(entry["kind"] == "step" for entry in pair.ledger) == 30
    assert client.conversation.machine.retries == 0


@BOTH
def test_either_code_tells_a_completed_reset_and_is_answered_with_the_other(profile: Profile) -> None:
    swapped = replace(profile, reset_completed=RESET_COMPLETED[profile.reset_completed])
    pair = Pair(SyntheticWorld(1, 1), swapped)
    client = joined(pair, "agent", profile=profile)
    talk = client.conversation
    assert client.do(talk.reset(1))
    client.do(talk.step({"agent": [0.0]}))
    assert client.do(talk.reset(2))
    client.do(talk.step({"agent": [0.0]}))
    assert talk.machine.retries == 0


@BOTH
def test_a_server_without_a_repository_is_stepped_with_care(profile: Profile) -> None:
    deaf = {Code.GET_VALUE_IDS, Code.GET_VALUE, Code.SET_VALUE}
    pair = Pair(
        SyntheticWorld(1, 1), profile, fault=lambda d: () if d.to_server and d.data[0] in deaf else (0.0,)
    )
    client = joined(pair, "agent", profile=profile, limits=Limits(query=1.0))
    honoured = not profile.seeds_by_variable
    talk = client.conversation
    client.do(talk.reset(1))
    for number in range(3):
        outcome = client.do(talk.step({"agent": [0.5]}))["agent"]
        np.testing.assert_array_equal(
            outcome.outputs, expected(np.array([0.5], np.float32), number + 1, 1, seed=1 if honoured else 0)
        )
    assert client.do(talk.audit()) == ""


# --- where answers are lost or cut --------------------------------------------------------------------------


def test_an_agent_whose_registration_was_never_answered_is_given_back_all_the_same() -> None:
    lost = [False]
    pair = Pair(
        SyntheticWorld(1, 1),
        NERD,
        fault=lambda d: () if lost[0] and d.data[0] == Code.REGISTER_FOR_AGENT_ACK else (0.0,),
    )
    client = joined(pair, limits=Limits(query=1.0))
    talk = client.conversation
    client.do(talk.register_event("/Synthetic/Mark"))
    lost[0] = True
    with pytest.raises(QueryTimeout):
        client.do(talk.register(["agent"]))
    assert pair.server.controlled == 1
    assert client.do(talk.leave())
    assert pair.server.controlled == 0


def test_a_text_that_the_server_cut_is_noticed() -> None:
    world = SyntheticWorld(1, 1)
    world.variables.append(Variable("/Synthetic/Long", "String", lambda: "x" * 3000))
    pair = Pair(world, NERD)
    client = joined(pair)
    assert len(client.do(client.conversation.get("/Synthetic/Long")).value) < 1024
    assert any("cut its answer" in notice.text for notice in client.conversation.machine.notices)


# --- worlds that are built anew in a reset, and know none of the variables' local ids any more ----------------------

MOTOR = "/Sim/agent/motor/0"


def rebuilt(profile: Profile, *, forgotten: str = "") -> tuple[Any, Any]:
    """A client of such a simulator, which forgets that variable altogether; what it does, and its session."""
    pair = Pair(SyntheticWorld(1, 2), profile)
    client = joined(pair, "agent", profile=profile)
    world: Any = pair.server.simulation.world
    reset = world.reset

    def rebuild(seed: int) -> None:
        reset(seed)
        for handler in pair.server._handlers.values():
            values: list[Any] = handler.values
            values[:] = [None] * (len(values) + 10)
            handler.value_ids.clear()
        pair.server.simulation.repository.variables.pop(forgotten, None)

    world.reset = rebuild
    return client, client.conversation


@BOTH
def test_every_reset_gets_its_seed_and_variables_are_watched_from_episode_to_episode(
    profile: Profile,
) -> None:
    client, talk = rebuilt(profile)
    client.do(talk.watch([MOTOR]))
    for seed in (3, 5, 7):
        client.do(talk.reset(seed))
        assert client.do(talk.step({"agent": [seed / 8]}))["agent"].values == {MOTOR: f"{seed / 8}"}
        assert client.do(talk.get(MOTOR)).value == f"{seed / 8}"
    assert [entry["seed"] for entry in client.pair.ledger if entry["kind"] == "reset"] == [3, 5, 7]
    client.do(talk.reset(1))
    client.do(talk.set(MOTOR, "0.75"))
    assert client.do(talk.get(MOTOR)).value == "0.75"


@BOTH
def test_a_clock_that_is_gone_is_done_without(profile: Profile) -> None:
    client, talk = rebuilt(profile, forgotten=SIMULATION_TIME)
    client.do(talk.reset(1))
    client.do(talk.step({"agent": [0.5]}))
    assert talk.machine.clock.missing
