"""What is read from the repository in place of a lost or cut completion: when, how often, whose values these are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from ospbridge.errors import OspBridgeError, OutputsIncomplete, StepUncertain
from ospbridge.interface import AgentInterface, InterfaceValue, ValueEntry
from ospbridge.osp import repository as server_repository
from ospbridge.osp.client import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import StepCompleted, Truncated, ValueContent
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.restore import complete_from_repository, find_interface_values, restore
from ospbridge.osp.step import LAST_WORD
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import MARK, SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair
from tests.osp.playing import COUNTED, DONE, LOST, PROMPT, REQUEST, Player, thinks
from tests.osp.stage import BOTH, Stage, ack, brought

ASKS: Final = Code.GET_VALUE
LONG: Final = Limits()


def lost(stage: Stage) -> Stage:
    """The step ran, and its completion is lost."""
    stage.begin_step(*[0.5] * len(stage.requests)).give(
        *(ack(request.agent_id) for request in stage.requests)
    )
    stage.clock = (stage.machine.clock.count + 1) / 100
    return stage


# --- how it is read ------------------------------------------------------------------------------------------------


def test_values_are_read_in_one_burst_and_twice() -> None:
    stage = Stage(outputs=37)
    stage.shows(*["0.25"] * 37)
    lost(stage).wait(0.48)
    reads = [at for at, code in stage.timeline if code is ASKS]
    assert reads == [350] + [470] * 74
    assert stage.machine.result().completions[1].outputs.tolist() == [0.25] * 37


def test_a_burst_has_128_questions_and_those_without_an_answer_are_asked_again() -> None:
    stage = Stage(DOCUMENT, outputs=130, limits=LONG)
    stage.shows(*["0.25"] * 130)
    silent = {12, 13}
    stage.reads = lambda value_id: [] if value_id in silent else None
    lost(stage).wait(0.38)
    assert len(stage.took(ASKS)) == 1 + 128
    stage.wait(0.25)
    # The two that stayed unanswered first, with those that there was no room for.
    assert len(stage.took(ASKS)) == 1 + 128 + 4
    assert stage.timeline[-5] == (620, Code.NEXT_SIMULATION_STEP_COMPLETED_ACK)
    silent.clear()
    stage.wait(3)
    assert stage.machine.result().completions[1].outputs.tolist() == [0.25] * 130


def test_readings_that_differ_are_read_again_until_two_agree_at_most_five_times() -> None:
    def reading(*texts: str) -> tuple[Stage, list[str]]:
        stage, left = Stage(), list(texts)
        stage.shows("0.25")
        stage.reads = lambda value_id: [ValueContent(10, left.pop(0))] if value_id == 10 else None
        return lost(stage).wait(1), left

    stage, _ = reading("0.125", "0.25", "0.5", "0.5", "0.75")
    assert stage.machine.result().completions[1].outputs.tolist() == [0.5]
    stage, left = reading(*(f"{at / 8}" for at in range(9)))
    assert len(left) == 4
    with pytest.raises(StepUncertain, match="changes from reading to reading"):
        stage.machine.result()


def test_readings_equal_to_the_last_observation_are_believed_two_seconds_behind_the_request() -> None:
    """Some clocks move when a step begins, and the values when it ends."""
    stage = Stage(limits=LONG)
    stage.begin_step(0.5).give(ack(), brought(0.25))
    stage.clock = 0.02
    stage.shows("0.25")
    lost(stage).wait(1.99)
    assert not stage.machine.finished
    stage.wait(0.1)
    assert stage.machine.result().restored == {1}
    assert stage.machine.now == pytest.approx(2.0)


@BOTH
@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("seconds", [0.3, 0.9, 1.4])
def test_values_that_change_behind_the_clock_are_not_read_too_early(
    profile: Profile, at: int, seconds: float
) -> None:
    player = Player(profile, limits=LONG)
    thinks(player, lambda step: seconds * (step == at), clock_first=True)
    player.begin(at)
    player.lose([DONE, 1])
    assert player.told(3) == ""


def test_what_is_not_all_there_or_no_number_ends_the_episode() -> None:
    for texts, told in (
        (["0.25"], "1 of its values cannot be read back"),
        (["0.25", "much"], "reads 'much'"),
    ):
        stage = Stage(outputs=2)
        stage.shows(*texts)
        lost(stage).wait(1)
        with pytest.raises(StepUncertain, match=told):
            stage.machine.result()


def test_a_value_whose_id_is_unknown_by_now_ends_the_episode_and_is_looked_for_the_next_time() -> None:
    stage = Stage()
    stage.shows("0.25")
    stage.reads = lambda value_id: [ValueContent(-1, "")] if value_id == 10 else None
    lost(stage).wait(1)
    with pytest.raises(StepUncertain, match="cannot be read back"):
        stage.machine.result()
    assert not stage.machine.values.listed
    assert not stage.machine.values.entries


@pytest.mark.parametrize("text", ["-0.25", "-0,25"])
def test_a_decimal_comma_is_read_and_arrays_cannot_be_written(text: str) -> None:
    stage = Stage()
    stage.shows(text)
    result = lost(stage).wait(1).machine.result()
    assert result.completions[1].outputs.tolist() == [-0.25]
    assert not result.completions[1].outputs.flags.writeable


def test_several_agents_are_restored_together_or_the_one_that_is_missing() -> None:
    for missing in ((1, 3), (2,)):
        stage = Stage(DOCUMENT, 3)
        for agent_id in (1, 2, 3):
            stage.shows(f"{agent_id / 8}", agent_id=agent_id)
        came = [brought(at / 8, agent_id=at) for at in (1, 2, 3) if at not in missing]
        result = lost(stage).give(*came).wait(1).machine.result()
        assert result.restored == set(missing)
        assert [result.completions[at].outputs.tolist() for at in (1, 2, 3)] == [[0.125], [0.25], [0.375]]


def test_a_completion_that_comes_while_it_is_restored_is_taken() -> None:
    stage = Stage()
    stage.shows("0.25")
    came = [brought(0.5)]
    stage.reads = lambda value_id: [came.pop()] if value_id == 10 and came else None
    lost(stage).wait(9)
    assert stage.machine.result().restored == frozenset()
    assert stage.machine.result().completions[1].outputs.tolist() == [0.5]


CUT: Final = replace(NERD, datagram_limit=34)
"""A server whose datagrams have 33 bytes at most: the head of a completion, and three values."""


def cut(*outputs: float, events: int = 0) -> bytes:
    """A completion as such a server sends it."""
    whole = StepCompleted(
        1, np.array(outputs, np.float32), np.empty(0, np.float32), tuple(range(1, events + 1))
    )
    return whole.encode()[:33] + b"x"


@pytest.mark.parametrize("events", [0, 2])
def test_a_cut_completion_is_completed_from_the_repository_but_for_its_events(events: int) -> None:
    stage = Stage(CUT, outputs=4)
    stage.shows("0.9", "0.9", "0.9", "0.5")
    stage.begin_step(0.5).give(ack(), cut(0.125, 0.25, 0.375, 0.5, events=events))
    result = stage.machine.result()
    assert result.completions[1].outputs.tolist() == [0.125, 0.25, 0.375, 0.5]
    assert result.restored == ({1} if events else frozenset())
    assert stage.took(ASKS) == [0.0]


def test_a_cut_completion_that_cannot_be_completed_is_refused_and_the_episode_in_doubt() -> None:
    stage = Stage(CUT, outputs=4)
    stage.shows("0.9", "0.9", "0.9")
    stage.begin_step(0.5).give(ack(), cut(0.125, 0.25, 0.375, 0.5))
    with pytest.raises(OutputsIncomplete, match="1 of its values cannot be read back"):
        stage.machine.result()
    assert "cannot be read back" in stage.machine.episode.doubt


# --- whole episodes ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("lost", [COUNTED, DONE], ids=lambda code: code.name)
def test_a_loss_costs_one_step_half_a_second_and_leaves_no_trace(
    profile: Profile, lost: Code, agents: int
) -> None:
    player = Player(profile, agents)
    assert player.episode(12) == ""
    player.reset()
    took = player.steps(3)
    left = player.lose([lost, 1])
    took += player.steps(1)
    before = len(player.pair.sent)
    took += player.steps(8)
    assert not left
    assert 0.2 < took[3] < 1.2
    assert max(took[4:]) < 0.01
    assert player.restored[3] is (lost is DONE)
    assert {d.data[0] for d in player.pair.sent[before:] if d.to_server} == {
        REQUEST,
        Code.NEXT_SIMULATION_STEP_COMPLETED_ACK,
    }
    assert player.told(0) == ""


@BOTH
@pytest.mark.parametrize("form", ["{:.6g}", "{:.3f}"])
def test_a_repository_of_fewer_digits_costs_digits_and_no_step(
    profile: Profile, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_repository, "format_double", form.format)
    player = Player(profile)
    player.begin(5)
    player.lose([DONE, 1])
    player.steps(3)
    assert player.restored == [False] * 5 + [True, False, False]
    assert player.audit() == ""
    for given, outcome in zip(player.given, player.brought, strict=True):
        assert len(given["agent0"]) == 1
        assert len(outcome["agent0"]) == 3
    assert player.wrong in ([], [5])


@pytest.mark.parametrize("agent", [1, 2, 4])
@pytest.mark.parametrize("hole", [0.3, 1.5, 2.8])
def test_a_network_that_is_away_for_seconds_costs_no_episode_of_several_agents(
    hole: float, agent: int
) -> None:
    """One request at most is in doubt, where requests go one by one. Nothing arrives from when one was sent."""
    player = Player(NERD, 4, limits=LONG)
    player.begin(3)
    back = 0.0

    def fault(datagram: Datagram) -> Iterable[float]:
        nonlocal back
        if not back and datagram.data.startswith(bytes((REQUEST, agent))):
            back = player.pair.now + hole
        return LOST if player.pair.now < back else PROMPT

    player.pair.fault = fault
    assert hole < player.step() < hole + 4.0
    assert player.told(3) == ""


@BOTH
def test_where_values_cannot_be_read_back_a_lost_completion_ends_the_episode(profile: Profile) -> None:
    player = Player(profile)
    player.pair.hide(clock=False, values=True)
    player.begin(2)
    player.lose([DONE, 1])
    began = player.pair.now
    with pytest.raises(StepUncertain, match="3 of its values cannot be read back"):
        player.step()
    assert player.pair.now - began < 1.0
    assert player.succeed().episode(5) == ""


@BOTH
def test_reading_back_many_values_ends_with_the_time_of_the_step(profile: Profile) -> None:
    limits = Limits(step=5.0)
    player = Player(profile, outputs=300, limits=limits)
    player.begin(2)
    values: list[Datagram] = []

    def fault(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] == Code.VALUE:
            values.append(datagram)
        return LOST if datagram.data[0] == DONE or len(values) > 40 else PROMPT

    player.pair.fault = fault
    began = player.pair.now
    with pytest.raises(OspBridgeError):
        player.step()
    assert player.pair.now - began <= limits.step + LAST_WORD + 0.1


# --- whose values these are, and which events are lost -------------------------------------------------------------

KNEE = ["/Knee/Angle"]


def of(*paths: str, name: str = "/Knee/Angle") -> list[ValueEntry]:
    return [ValueEntry(number, f"{path}{name}", name) for number, path in enumerate(paths, 1)]


@pytest.mark.parametrize(
    "values, agent, names, others, found",
    [
        (of("/Sim/Model"), "A", KNEE, {"B"}, 1),  # alone
        (of("/Sim/A"), "A", KNEE, set(), 1),
        (of("/Sim/B"), "A", KNEE, {"B"}, None),
        (of("/Sim/B", "/Sim/A"), "A", KNEE, {"B"}, 2),
        (of("/Sim/A", "/Other/A"), "A", KNEE, {"B"}, None),  # which?
        (of("/Sim/left/arm", "/Sim/right/arm"), "right/arm", KNEE, {"left/arm"}, 2),
        (of("/Sim/", "/Sim/arm"), "", KNEE, {"arm"}, 1),
        (of("/Sim/a", "/Sim/b/c d [e]"), "b/c d [e]", KNEE, {"a"}, 2),
        (of("/Sim/A/", "/Sim/B/", name="Angle"), "A", ["Angle"], {"B"}, 1),  # no slash in front
        (of("/Sim//", name="Angle"), "", ["Angle"], {"B"}, 1),
        (of("/Robots/A/Knee", "/Robots/B/Knee", name=""), "A", ["/Robots/A/Knee"], {"B"}, 1),
        (of("/Robots/A/Knee", "/Robots/B/Knee", name=""), "A", ["/Robots/B/Knee"], {"B"}, None),
        (of("Knee", name=""), "A", ["Knee"], {"B"}, 1),
        (of("/Sim/A/Knee/Angle", "/Sim/B/Knee/Angle", name=""), "A", ["Knee/Angle"], {"B"}, 1),
        (of("/Sim/A/Knee/Angle", name=""), "A", ["Angle"], set(), None),  # further below
        (of("/Sim/A/" + "x" * 1024, name="/Knee/Angle"), "A", KNEE, set(), 1),  # of that type
        (of("/Sim/A/" + "x" * 1024 + "/Knee/Angle", name=""), "A", KNEE, set(), None),  # too long a path
    ],
)
def test_a_value_is_an_agents_only_where_it_can_be_nobody_else_s(
    values: list[ValueEntry], agent: str, names: list[str], others: set[str], found: int | None
) -> None:
    assert find_interface_values(values, agent, names, others=others) == [found]


def equal_agents() -> tuple[Pair, Client, Any]:
    """Nothing is known of A's values yet."""
    pair = Pair(SyntheticWorld(1, 1, names=["A", "B"]), NERD)
    client = pair.client(NERD).connect()
    talk: Any = client.conversation
    client.do(talk.register(("A", "B")))
    client.do(talk.reset(7))
    client.do(talk.get("/Sim/B/sensor/0"))
    assert "/Sim/A/sensor/0" not in talk.machine.values.entries
    return pair, client, talk


def test_what_is_known_of_one_agent_is_never_taken_for_another_ones() -> None:
    pair, client, talk = equal_agents()
    outcome = client.do(talk.step({"A": [0.25], "B": [0.5]}))
    agent = talk.requests["A"].agent
    whole = client.do(restore(talk.machine, [agent], 0.0))[agent.id]
    assert outcome["A"].outputs.tolist() != outcome["B"].outputs.tolist()
    assert whole.outputs.tolist() == outcome["A"].outputs.tolist()
    # Nor the number of one value for that of another one of its name.
    twice = replace(agent, infos=agent.outputs)
    with pytest.raises(StepUncertain, match="found for more than one agent or value"):
        client.do(restore(talk.machine, [twice], 0.0))
    pair, client, talk = equal_agents()
    del pair.server.simulation.repository.variables["/Sim/A/sensor/0"]
    with pytest.raises(StepUncertain, match="1 of its values cannot be read back"):
        client.do(restore(talk.machine, [agent], 0.0))


def test_what_was_cut_in_front_of_its_events_says_that_they_are_lost() -> None:
    player = Player(NERD, outputs=300)
    player.client.do(player.talk.register_event(MARK))
    player.reset()
    player.steps(20)
    assert [number for number, restored in enumerate(player.restored, 1) if restored] == [10, 20]
    assert player.wrong == []


def test_events_that_came_with_what_was_cut_are_kept() -> None:
    values = tuple(InterfaceValue(f"/{name}", -1.0, 1.0) for name in "ab")
    agent = AgentInterface(1, "agent", (), values, ())
    message = StepCompleted(
        1, np.array([0.25, 0.5], np.float32), np.empty(0, np.float32), (3, 5), announced=(2, 0, 3)
    )
    exchange = complete_from_repository(ClientMachine(NERD), agent, Truncated(message, 4, 5))
    with pytest.raises(StopIteration) as done:
        next(exchange)
    whole, events_lost = done.value.value
    assert whole.outputs.tolist() == [0.25, 0.5]
    assert whole.events == (3, 5)
    assert events_lost
