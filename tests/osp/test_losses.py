"""Networks that lose datagrams of steps, or carry nothing for a while: what that costs, and what is read back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from tests.osp.playing import BOTH, COUNTED, DONE, LOST, PROMPT, SEEN, VOTE, Player

if TYPE_CHECKING:
    from collections.abc import Iterable


@BOTH
@pytest.mark.parametrize("lost", [COUNTED, DONE], ids=lambda code: code.name)
def test_what_is_lost_in_an_episode_that_is_the_one_before_once_more_costs_one_step(
    profile: Profile, lost: Code
) -> None:
    """As where a policy without chance plays with the same seed again: every completion is one that came before."""
    player = Player(profile)
    assert player.episode(12) == ""
    player.reset()
    took = player.steps(3)
    left = player.lose([lost, 1])
    took += player.steps(9)
    assert not left
    assert 0.2 < took[3] == max(took) < 1.0
    assert max(took[4:]) < profile.patience
    assert player.restored[3] or lost is COUNTED
    assert player.told(0) == ""


@pytest.mark.parametrize("agent", [1, 2, 4])
@pytest.mark.parametrize("hole", [0.3, 2.0, 4.0])
def test_a_network_that_is_away_for_seconds_costs_no_episode_of_several_agents(
    hole: float, agent: int
) -> None:
    """One vote at most is in doubt, where votes go one by one. Nothing arrives from when one was sent."""
    player = Player(NERD, 4, limits=Limits())
    player.begin(3)
    back = 0.0

    def fault(datagram: Datagram) -> Iterable[float]:
        nonlocal back
        if not back and datagram.data.startswith(bytes((VOTE, agent))):
            back = player.pair.now + hole
        return LOST if player.pair.now < back else PROMPT

    player.pair.fault = fault
    assert hole < player.step() < hole + 3.0
    assert player.told(3) == ""


def test_a_server_that_answers_nothing_before_all_votes_are_in_gets_them() -> None:
    player = Player(NERD, 4, limits=Limits())
    player.begin(1)
    left = [1]

    def fault(datagram: Datagram) -> Iterable[float]:
        waiting = len(player.pair.server.step_votes) % len(player.names)
        if datagram.to_server and datagram.data[0] == Code.GET_VALUE and waiting:
            return LOST
        return LOST if left and datagram.data.startswith(bytes((COUNTED, 1))) and left.pop() else PROMPT

    player.pair.fault = fault
    assert player.step() < 10.0
    assert not left
    assert player.told(0) == ""


@BOTH
def test_where_values_cannot_be_read_back_a_lost_completion_is_awaited_until_the_limit_of_the_step(
    profile: Profile,
) -> None:
    player = Player(profile)
    player.pair.hide(clock=False, values=True)
    player.reset()
    player.lose([DONE, 1])
    began = player.pair.now
    with pytest.raises(
        OutputsIncomplete, match="was lost, and 3 of its values cannot be read back"
    ) as caught:
        player.step()
    assert "split" not in caught.value.hint
    assert player.pair.now - began == pytest.approx(player.machine.limits.step, abs=1.0)
    assert player.episode(5) == ""


@BOTH
@pytest.mark.parametrize("values, fits", [(20, True), (300, False)])
def test_reading_back_many_values_over_a_long_way_ends_with_the_time_of_the_step(
    profile: Profile, values: int, *, fits: bool
) -> None:
    limits = Limits(step=10.0)
    player = Player(profile, outputs=values, limits=limits, fault=lambda _: (0.05,))
    player.begin(1)
    player.pair.fault = lambda datagram: LOST if datagram.data[0] == DONE else (0.05,)
    began = player.pair.now
    if fits:
        player.step()
        assert player.restored[-1]
        assert player.wrong == []
    else:
        with pytest.raises(OutputsIncomplete, match=r"reading its 300 values back took longer than the 10 s"):
            player.step()
    assert player.pair.now - began <= limits.step + LAST_WORD + 0.5


@pytest.mark.parametrize("agents, clock", [(1, True), (1, False), (2, True)])
@pytest.mark.parametrize("again", [0.3, 1.0])
@pytest.mark.parametrize("at", [0, 3])
def test_a_lost_completion_is_awaited_until_it_is_sent_again(
    at: int, again: float, agents: int, *, clock: bool
) -> None:
    """By a server that shows no interface values, and sends it until it is acknowledged: nobody does that unseen."""
    player = Player(DOCUMENT, agents, limits=Limits())
    player.pair.hide(clock=not clock, values=True)
    player.begin(at)
    lost: list[bytes] = []

    def fault(datagram: Datagram) -> Iterable[float]:
        code, agent = datagram.data[0], datagram.data[1]
        if code == SEEN and agent == 1:
            assert player.pair.now >= sent_again
        if code != DONE or agent != 1 or lost:
            return PROMPT
        lost.append(datagram.data)
        player.pair.at(sent_again, lambda: player.pair.answer(player.client, lost[0]))
        return LOST

    sent_again = player.pair.now + again
    player.pair.fault = fault
    assert player.step() < again + 0.5
    assert player.told(4) == ""


# --- what is read back: whose values these are, and which events are lost ------------------------------------------

KNEE = ["/Knee/Angle"]


def of(*paths: str, name: str = "/Knee/Angle") -> list[ValueEntry]:
    return [ValueEntry(number, f"{path}{name}", name) for number, path in enumerate(paths, 1)]


@pytest.mark.parametrize(
    "values, agent, names, others, certain, found",
    [
        (of("/Sim/Model"), "A", KNEE, {"B"}, False, 1),  # alone
        (of("/Sim/Model"), "A", KNEE, set(), True, None),
        (of("/Sim/A"), "A", KNEE, set(), True, 1),
        (of("/Sim/B"), "A", KNEE, {"B"}, False, None),
        (of("/Sim/B", "/Sim/A"), "A", KNEE, {"B"}, False, 2),
        (of("/Sim/A", "/Other/A"), "A", KNEE, {"B"}, False, None),  # which?
        (of("/Sim/left/arm", "/Sim/right/arm"), "right/arm", KNEE, {"left/arm"}, False, 2),
        (of("/Sim/", "/Sim/arm"), "", KNEE, {"arm"}, False, 1),
        (of("/Sim/a", "/Sim/b/c d [e]"), "b/c d [e]", KNEE, {"a"}, False, 2),
        (of("/Sim/A/", "/Sim/B/", name="Angle"), "A", ["Angle"], {"B"}, False, 1),  # no slash in front
        (of("/Sim//", name="Angle"), "", ["Angle"], {"B"}, False, 1),
        (of("/Robots/A/Knee", "/Robots/B/Knee", name=""), "A", ["/Robots/A/Knee"], {"B"}, True, 1),
        (of("/Robots/A/Knee", "/Robots/B/Knee", name=""), "A", ["/Robots/B/Knee"], {"B"}, False, None),
        (of("Knee", name=""), "A", ["Knee"], {"B"}, False, 1),
        (of("Knee", name=""), "A", ["Knee"], set(), True, None),
        (of("/Sim/A/Knee/Angle", "/Sim/B/Knee/Angle", name=""), "A", ["Knee/Angle"], {"B"}, False, 1),
        (of("/Sim/A/Knee/Angle", name=""), "A", ["Angle"], set(), False, None),  # further below
    ],
)
def test_a_value_is_an_agents_only_where_it_can_be_nobody_else_s(
    values: list[ValueEntry],
    agent: str,
    names: list[str],
    others: set[str],
    found: int | None,
    *,
    certain: bool,
) -> None:
    assert find_interface_values(values, agent, names, others=others, certain=certain) == [found]


def equal_agents() -> tuple[Pair, Client, Any]:
    """Nothing is known of A's values yet."""
    pair = Pair(SyntheticWorld(1, 1, names=["A", "B"]), NERD)
    client = pair.client(NERD).connect()
    talk: Any = client.conversation
    client.do(talk.register(("A", "B")))
    client.do(talk.reset(7))
    client.do(talk.get("/Sim/B/sensor/0"))
    assert "/Sim/A/sensor/0" not in talk.machine.values
    return pair, client, talk


def test_what_is_known_of_one_agent_is_never_taken_for_another_ones() -> None:
    pair, client, talk = equal_agents()
    outcome = client.do(talk.step({"A": [0.25], "B": [0.5]}))
    agent = talk.votes["A"].agent
    whole = client.do(restore(talk.machine, agent, None))
    assert outcome["A"].outputs.tolist() != outcome["B"].outputs.tolist()
    assert whole.outputs.tolist() == outcome["A"].outputs.tolist()
    # Nor the number of one value for that of another one of its name.
    with pytest.raises(OutputsIncomplete, match="/sensor/0"):
        client.do(restore(talk.machine, replace(agent, infos=agent.outputs), None))
    pair, client, talk = equal_agents()
    del pair.server.repository.variables["/Sim/A/sensor/0"]
    with pytest.raises(OutputsIncomplete, match="/sensor/0"):
        client.do(restore(talk.machine, agent, None))


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
    exchange = restore(ClientMachine(NERD), agent, Truncated(message, 4, 5))
    with pytest.raises(StopIteration) as done:
        next(exchange)
    assert done.value.value.outputs.tolist() == [0.25, 0.5]
    assert done.value.value.events == (3, 5)
