"""Reading back what a completion held: whose values these are, and which events are lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import OutputsIncomplete
from ospbridge.interface import AgentInterface, InterfaceValue, ValueEntry
from ospbridge.osp.client.asking import LAST_WORD
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import StepCompleted, Truncated
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.restore import find_interface_values, restore
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import MARK, SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair
from tests.osp.test_client import joined

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
ONE = ["/Knee/Angle"]


def of(*paths: str) -> list[ValueEntry]:
    return [ValueEntry(number, f"{path}/Knee/Angle", "/Knee/Angle") for number, path in enumerate(paths, 1)]


def test_a_value_that_stands_alone_is_the_agents_unless_another_agent_stands_there() -> None:
    assert find_interface_values(of("/Sim/Model"), "A", ONE, others={"B"}) == [1]
    assert find_interface_values(of("/Sim/B"), "A", ONE, others={"B"}) == [None]
    assert find_interface_values(of("/Sim/B", "/Sim/A"), "A", ONE, others={"B"}) == [2]
    assert find_interface_values(of("/Sim/A", "/Other/A"), "A", ONE, others={"B"}) == [None]


def test_where_little_is_known_only_what_stands_at_the_agent_is_certain() -> None:
    assert find_interface_values(of("/Sim/Model"), "A", ONE, certain=True) == [None]
    assert find_interface_values(of("/Sim/A"), "A", ONE, certain=True) == [1]


@pytest.mark.parametrize("names", [("left/arm", "right/arm"), ("", "arm"), ("a", "b/c d [e]")], ids=repr)
def test_agents_of_equal_interface_are_told_apart_whatever_they_are_called(names: tuple[str, str]) -> None:
    values = of(*(f"/Sim/{name}" for name in names))
    for number, name in enumerate(names):
        others = {*names} - {name}
        assert find_interface_values(values, name, ONE, others=others) == [number + 1]
        assert find_interface_values(values[number : number + 1], name, ONE, certain=True) == [number + 1]
        assert find_interface_values(values[1 - number :][:1], name, ONE, others=others) == [None], (
            "another's"
        )


@pytest.mark.parametrize("agent", ["A", ""])
def test_names_without_a_slash_in_front_stand_at_their_agent_too(agent: str) -> None:
    values = [ValueEntry(1, f"/Sim/{agent}/Angle", "Angle"), ValueEntry(2, "/Sim/B/Angle", "Angle")]
    assert find_interface_values(values, agent, ["Angle"], others={"B"}) == [1]


def test_a_variable_may_be_called_just_as_the_interface_value() -> None:
    values = [ValueEntry(1, "/Robots/A/Knee", "NormalizedDouble"), ValueEntry(2, "/Robots/B/Knee", "Double")]
    assert find_interface_values(values, "A", ["/Robots/A/Knee"], others={"B"}, certain=True) == [1]
    assert find_interface_values(values, "A", ["/Robots/B/Knee"], others={"B"}) == [None], "another's"
    alone = [ValueEntry(3, "Knee", "Double")]
    assert find_interface_values(alone, "A", ["Knee"], others={"B"}) == [3]
    assert find_interface_values(alone, "A", ["Knee"], certain=True) == [None]


def test_a_name_without_a_slash_is_found_right_behind_its_agent_whatever_its_type() -> None:
    values = [ValueEntry(1, "/Sim/A/Knee/Angle", "Double"), ValueEntry(2, "/Sim/B/Knee/Angle", "Double")]
    assert find_interface_values(values, "A", ["Knee/Angle"], others={"B"}) == [1]
    assert find_interface_values(values, "A", ["Angle"], others={"B"}) == [None], "further below"
    assert find_interface_values(values[:1], "A", ["Angle"]) == [None], "further below"
    assert find_interface_values([ValueEntry(1, "/Sim/A/", "Double")], "A", [""]) == [None]


def equal_agents() -> tuple[Pair, Client]:
    pair = Pair(SyntheticWorld(1, 1, names=["A", "B"]), NERD)
    client = joined(pair)
    talk = client.conversation
    client.do(talk.register(("A", "B")))
    client.do(talk.reset(7))
    client.do(talk.step({"A": [0.25], "B": [0.5]}))
    # Nothing of A is known yet.
    client.do(talk.get("/Sim/B/sensor/0"))
    assert set(talk.machine.values) >= {"/Sim/B/sensor/0"}
    assert "/Sim/A/sensor/0" not in talk.machine.values
    return pair, client


def test_what_is_known_of_one_agent_is_never_taken_for_another_ones() -> None:
    _, client = equal_agents()
    talk = client.conversation
    outcome = client.do(talk.step({"A": [0.25], "B": [0.5]}))
    whole = client.do(restore(talk.machine, talk.votes["A"].agent, None))
    assert outcome["A"].outputs.tolist() != outcome["B"].outputs.tolist()
    assert whole.outputs.tolist() == outcome["A"].outputs.tolist()


def test_nor_where_the_repository_has_the_other_one_alone() -> None:
    pair, client = equal_agents()
    del pair.server.repository.variables["/Sim/A/sensor/0"]
    with pytest.raises(OutputsIncomplete, match="/sensor/0"):
        client.do(restore(client.conversation.machine, client.conversation.votes["A"].agent, None))


@pytest.mark.parametrize("where", ["inputs", "outputs", "infos"])
def test_nor_is_the_number_of_one_value_taken_for_that_of_another_one_of_its_name(where: str) -> None:
    _, client = equal_agents()
    agent = client.conversation.votes["A"].agent
    (output,) = agent.outputs
    changed: dict[str, Any] = {where: (*getattr(agent, where), output)}
    twins = replace(agent, **changed)
    # The repository has one of that name.
    with pytest.raises(OutputsIncomplete, match="/sensor/0"):
        client.do(restore(client.conversation.machine, twins, None))


# --- completions that were cut --------------------------------------------------------------------------------------


def test_what_was_cut_in_front_of_its_events_says_that_they_are_lost() -> None:
    pair = Pair(SyntheticWorld(2, 300), NERD)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.register_event(MARK))
    client.do(talk.reset(7))
    outcomes = [client.do(talk.step({"agent": [0.25, 0.5]}))["agent"] for _ in range(20)]
    assert [number for number, outcome in enumerate(outcomes, 1) if outcome.restored] == [10, 20]
    assert not any(outcome.events for outcome in outcomes)


def test_events_that_came_with_what_was_cut_are_kept() -> None:
    values = tuple(InterfaceValue(f"/{name}", -1.0, 1.0) for name in "ab")
    agent = AgentInterface(1, "agent", (), values, ())
    message = StepCompleted(
        1, np.array([0.25, 0.5], np.float32), np.empty(0, np.float32), (3, 5), announced=(2, 0, 3)
    )
    exchange = restore(ClientMachine(NERD), agent, Truncated(message, 4, 5))
    with pytest.raises(StopIteration) as done:
        next(exchange)
    assert done.value.value.outputs.tolist() == [0.25, 0.5]
    assert done.value.value.events == (3, 5)


@BOTH
@pytest.mark.parametrize("values, fits", [(20, True), (300, False)])
def test_reading_back_many_values_over_a_long_way_ends_with_the_time_of_the_step(
    profile: Profile, values: int, *, fits: bool
) -> None:
    limits = Limits(step=10.0)
    pair = Pair(SyntheticWorld(1, values), profile, fault=lambda _: (0.05,))
    client = pair.client(profile, limits=limits).connect()
    talk = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(1))
    inputs = {"agent": np.zeros(1, np.float32)}
    client.do(talk.step(inputs))
    lost: list[Datagram] = []

    def fault(datagram: Datagram) -> tuple[float, ...]:
        if datagram.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED:
            lost.append(datagram)
            return ()
        return (0.05,)

    pair.fault = fault
    began = pair.now
    if fits:
        assert client.do(talk.step(inputs))["agent"].restored
    else:
        with pytest.raises(OutputsIncomplete, match=r"reading its 300 values back took longer than the 10 s"):
            client.do(talk.step(inputs))
    assert lost
    assert pair.now - began <= limits.step + LAST_WORD + 0.5
