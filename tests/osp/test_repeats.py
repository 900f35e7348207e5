"""Networks that repeat datagrams: what costs nothing, what ends an episode, and what must not stay hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.client import DOUBLED
from ospbridge.osp.codes import SIMULATION_TIME, Code
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from tests.osp.playing import COUNTED, DONE, PROMPT, REQUEST, SEEN, Player, thinks
from tests.osp.stage import BOTH

CASES: Final = [
    *(
        (agents, agent, behind, 0.0)
        for agents, agent in ((1, 1), (2, 1), (3, 2), (3, 3))
        for behind in (0.0, 1e-4, 0.02)
    ),
    *((agents, agent, behind, 0.6) for agents, agent in ((1, 1), (3, 2)) for behind in (0.0, 0.1)),
    *((3, agent, 0.0, seconds) for agent in (1, 3) for seconds in (0.3, 1.2, 2.5)),
]
"""Agents, the one whose request comes twice, how many seconds later, and how many the world needs for a step."""


@BOTH
@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("agents, agent, behind, seconds", CASES)
def test_a_request_that_comes_twice_is_told_or_did_no_harm(
    profile: Profile, at: int, agents: int, agent: int, *, behind: float, seconds: float
) -> None:
    player = Player(profile, agents)
    if seconds:
        thinks(player, lambda _: seconds)
    player.begin(at - 1)
    player.once(REQUEST, agent, behind=behind)
    # Whatever is told is right; what is not told must be true.
    player.told(4)


@BOTH
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("agents, agent", [(1, 1), (3, 1), (3, 3)])
@pytest.mark.parametrize("lost", [COUNTED, REQUEST, DONE, SEEN])
@pytest.mark.parametrize("seconds", [0.2, 0.3, 0.6, 1.2, 2.5])
def test_a_datagram_that_is_lost_costs_no_step_however_long_steps_take(
    profile: Profile, at: int, agents: int, agent: int, *, lost: Code, seconds: float
) -> None:
    """An acknowledgement that is lost is no reason to ask for a step again that only takes its time."""
    player = Player(profile, agents, limits=Limits())
    thinks(player, lambda _: seconds)
    player.begin(at)
    left = player.lose([lost, agent])
    reason = player.told(4)
    assert not left
    # Requests that are sent together cannot be told apart. One may be taken for what its handler awaits.
    assert not reason or (agents > 1 and profile.pipelining)
    assert player.sent(REQUEST) <= agents * (at + 4) + (lost in {REQUEST, SEEN})


@BOTH
@pytest.mark.parametrize("code", [DONE, Code.VALUE])
@pytest.mark.parametrize("behind", [0.0, 3e-5])
def test_completions_and_answers_to_questions_that_come_twice_cost_no_step(
    profile: Profile, code: Code, behind: float
) -> None:
    player = Player(profile)
    player.pair.fault = lambda datagram: (0.0, behind) if datagram.data[0] == code else PROMPT
    player.reset()
    assert player.told(12) == ""


@BOTH
def test_an_acknowledgement_that_comes_twice_ends_the_episode_and_the_network_is_named_once(
    profile: Profile,
) -> None:
    player = Player(profile)
    for _ in range(2):
        player.begin(1)
        player.once(COUNTED, 1)
        with pytest.raises(StepUncertain, match="was acknowledged that belongs to no step") as caught:
            player.steps(2)
        assert caught.value.by_network
        player.succeed()
    assert player.machine.notices == []
    player.begin(1)
    for _ in range(2):
        player.once(COUNTED, 1)
        player.told(3)
    assert [notice.text for notice in player.machine.notices].count(DOUBLED) == 1


# --- resets by others ----------------------------------------------------------------------------------------------


def rounded(player: Player) -> None:
    """The clock prints two decimals, as few as a step needs."""
    variables, clock = player.pair.server.simulation.repository.variables, player.pair.server.clock
    variables[SIMULATION_TIME] = replace(variables[SIMULATION_TIME], get=lambda: f"{clock.time:.2f}")


def going_on(player: Player) -> None:
    """The clock goes on through resets, and stands at 0 before the first one."""
    player.pair.server.clock.restart = lambda: None  # type: ignore[method-assign]


def without(player: Player) -> None:
    player.pair.hide(clock=True, values=False)


def numbered_anew(player: Player) -> None:
    """The clock's local id is unknown behind a reset."""
    for handler in player.pair.server._handlers.values():
        values: list[Any] = handler.values
        values[:] = [None] * (len(values) + 10)
        handler.value_ids.clear()


def set_since(player: Player) -> None:
    """A variable was set, which may say how long steps take."""
    player.client.do(player.talk.set("/Simulation/RandomizeSeedAtReset", "F"))


def usual(_: Player) -> None:
    pass


@BOTH
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(
    "kind, then",
    [
        (usual, usual),
        (rounded, usual),
        (going_on, usual),
        (without, usual),
        (usual, numbered_anew),
        (usual, set_since),
    ],
)
def test_a_reset_by_others_is_told_whatever_becomes_of_the_clock(
    profile: Profile, kind: Callable[[Player], None], then: Callable[[Player], None], steps: int
) -> None:
    player = Player(profile)
    kind(player)
    player.begin(5)
    player.pair.server._run_reset()
    player.pair.flush_server()
    player.pair.settle(0.1)
    then(player)
    player.steps(steps)
    assert player.audit() == ""
    assert any(isinstance(notice, WorldReset) for notice in player.talk.pop_notices())
