"""Networks that repeat datagrams: what that costs, and what it must not hide.

A vote that comes twice may be counted twice: a step then runs too early, or one too many does.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import OspBridgeError, StepUncertain
from ospbridge.osp.client.clock import SIMULATION_TIME
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, Profile
from tests.osp.pair import Datagram, no_fault
from tests.osp.playing import BOTH, COUNTED, DONE, LOST, PROMPT, RESETS, VOTE, Player, thinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ASKED, TAKEN = Code.RESET_SIMULATION, Code.RESET_SIMULATION_ACK
Fates = tuple[tuple[bytes, tuple[float, ...]], ...]


def told_of_a_reset(player: Player) -> bool:
    return any(isinstance(notice, WorldReset) for notice in player.talk.take_notices())


# --- votes of steps ------------------------------------------------------------------------------------------------


def vote(agent: int, *delays: float) -> Fates:
    return ((bytes((VOTE, agent)), delays),)


def answer(agent: int, *delays: float) -> Fates:
    return ((bytes((COUNTED, agent)), delays),)


def happenings() -> Iterable[tuple[float, int, Fates]]:
    """Seconds that a step takes, agents, and what happens to the datagrams of one step."""
    # A last vote's copy that takes the place of the next one's is another matter (``test_echo``).
    for agent, behind in [(1, at * 2.5e-5) for at in range(20)] + [(2, at * 1e-4) for at in range(12)]:
        yield 0.0, 3, vote(agent, 0.0, behind)
    yield from ((0.0, 3, vote(3, 0.0, behind)) for behind in (0.0, 5e-5))
    for behind in [0.02, 0.06, *[0.0985 + at * 4e-4 for at in range(8)], 0.11]:
        # It comes once more while the last one is held back.
        yield from ((0.0, 3, vote(at, 0.0, behind) + answer(at, 0.0, 0.0)) for at in (1, 2))
    for behind in (0.02, 0.1, 0.2, 0.24, 0.3, 0.5):
        # The copy counts for the next step, and its answer is taken for the vote's own.
        yield from ((0.0, of, vote(of, 0.0, behind) + answer(of)) for of in (2, 3))
    for seconds in (0.01, 0.2, 0.6, 1.2):
        for agent, behind in [(1, 0.0), (2, 0.0), (2, 1.5e-4), (3, 0.0), (3, 0.1)]:
            yield seconds, 3, vote(agent, 0.0, behind)
        for agents in (1, 3):
            yield from ((seconds, agents, answer(agent)) for agent in range(1, agents + 1))
            yield from ((seconds, agents, vote(agent)) for agent in range(1, agents + 1))
        for behind in (0.0, 1e-4, 0.005, 0.1, 0.21):
            yield seconds, 1, vote(1, 0.0, behind)
        # What the step before left behind would run the next one before its last vote is in.
        yield seconds, 2, answer(2) + answer(1)
        yield from ((seconds, 2, vote(2) + answer(1, late)) for late in (0.5, 1.2, 2.0))


CASES = [(at, *case) for case in happenings() for at in ((4,) if case[0] else (1, 2, 5))]
"""In which step it happens, and the rest."""


@pytest.mark.sampled(80)
@BOTH
@pytest.mark.parametrize("at, seconds, agents, fates", CASES)
def test_a_vote_that_comes_twice_or_again_is_told_or_did_no_harm(
    profile: Profile, at: int, agents: int, *, seconds: float, fates: Fates
) -> None:
    player = Player(profile, agents)
    if seconds:
        thinks(player, lambda _: seconds)
    # Inputs that rise evenly look the same a step later, but for their scale.
    player.shape = lambda number: number % 7 / 8
    player.begin(at - 1)
    left = player.meets(*fates)
    # Whatever is told is right; what is not told must be true.
    reason = player.told(4)
    assert not left or reason
    # A vote that was lost is given again, and costs no episode.
    assert not reason or at == 1 or fates not in [vote(agent) for agent in (1, 2, 3)]


def repeating(probability: float, seed: int, late: float = 0.0) -> Callable[[Datagram], Iterable[float]]:
    """So many of the simulator's datagrams come twice."""
    draw = random.Random(seed)

    def fault(datagram: Datagram) -> Iterable[float]:
        if datagram.to_server or draw.random() >= probability:
            return PROMPT
        return (0.0, draw.random() * late)

    return fault


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("probability, late", [(0.1, 0.0), (1.0, 0.0), (0.2, 0.01)])
def test_a_network_that_repeats_answers_costs_no_step(
    profile: Profile, agents: int, probability: float, late: float
) -> None:
    player = Player(profile, agents)
    for seed in range(2):
        player.pair.fault = repeating(probability, seed, late)
        player.reset()
        player.steps(20)
        if late:
            # What comes twice behind the last step leaves that in doubt.
            player.pair.fault = no_fault
            player.pair.settle(0.1)
        assert player.told(1) == ""


@BOTH
@pytest.mark.parametrize("seconds", [0.01, 0.2, 1.2])
@pytest.mark.parametrize("behind", [0.0, 0.005])
def test_the_copy_of_a_last_vote_of_a_single_agent_is_told_at_the_end_of_the_episode(
    profile: Profile, seconds: float, behind: float
) -> None:
    player = Player(profile)
    thinks(player, lambda _: seconds)
    player.begin(3)
    player.once(VOTE, 1, behind=behind)
    player.step()
    reason = player.audit()
    player.pair.settle()
    if not reason:
        player.verify()


# --- completions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock, lost", [(True, DONE), (False, VOTE), (False, DONE)])
@pytest.mark.parametrize("before", [1, 2, 100])
def test_an_older_completion_that_comes_twice_is_never_this_step_s(
    before: int, lost: Code, *, clock: bool
) -> None:
    """It arrives before the acknowledgement of this vote, and one datagram of this step is lost."""
    player = Player(DOCUMENT)
    player.pair.hide(clock=not clock, values=True)
    player.begin(before + 3)
    kept = [d.data for d in player.pair.sent if d.data[0] == DONE]
    player.pair.fault = lambda datagram: LOST if datagram.data[0] == lost else PROMPT
    player.begin_step()
    player.pair.answer(player.client, kept[-1 - before])
    while not player.client.finished:
        player.pair.advance(until=player.pair.now + 100.0)
    with pytest.raises(OspBridgeError):
        player.client.outcome()


# --- resets --------------------------------------------------------------------------------------------------------


def twice(player: Player, *codes: Code, behind: float = 0.0) -> None:
    """From here on these datagrams come once more, so many seconds later."""
    player.pair.fault = lambda datagram: (0.0, behind) if datagram.data[0] in codes else PROMPT


@BOTH
@pytest.mark.parametrize(
    "codes", [(ASKED,), (TAKEN,), RESETS, (ASKED, TAKEN, *RESETS)], ids=["vote", "count", "end", "all"]
)
@pytest.mark.parametrize("behind", [0.0, 2e-4])
def test_a_reset_that_comes_twice_before_the_first_step_is_nobody_else_s(
    profile: Profile, codes: tuple[Code, ...], behind: float
) -> None:
    player = Player(profile)
    for seed in range(1, 4):
        twice(player, *codes, behind=behind)
        player.reset(seed)
        player.pair.settle(0.01)
        player.pair.fault = no_fault
        assert player.told(4) == ""
        assert not told_of_a_reset(player)


def rounded(player: Player) -> None:
    """The clock prints two decimals, as few as a step needs."""
    variables, clock = player.pair.server.repository.variables, player.pair.server.clock
    variables[SIMULATION_TIME] = replace(variables[SIMULATION_TIME], read=lambda: f"{clock.time:.2f}")


def going_on(player: Player) -> None:
    """The clock goes on through resets, and stands at 0 before the first one."""
    player.pair.server.clock.restart = lambda: None  # type: ignore[method-assign]


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


@pytest.mark.sampled(14)
@BOTH
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize(
    "kind, episodes, then",
    [
        (usual, 2, usual),
        (rounded, 2, usual),
        (going_on, 1, usual),
        (going_on, 2, usual),
        (usual, 2, numbered_anew),
        (usual, 2, set_since),
    ],
)
def test_a_reset_by_others_is_told_whatever_becomes_of_the_clock(
    profile: Profile,
    kind: Callable[[Player], None],
    episodes: int,
    then: Callable[[Player], None],
    steps: int,
) -> None:
    player = Player(profile)
    kind(player)
    for _ in range(episodes):
        player.begin(5)
    player.pair.server._run_reset(player.pair.now)
    player.pair.flush_server()
    player.pair.settle(0.1)
    then(player)
    player.steps(steps)
    assert player.audit() == ""
    assert told_of_a_reset(player)


@pytest.mark.sampled(20)
@BOTH
@pytest.mark.parametrize("behind", [at / 10 for at in range(3, 60)])
def test_no_copy_of_a_reset_undoes_a_first_step_unnoticed_that_is_read_back(
    profile: Profile, behind: float
) -> None:
    """The step's completion is lost, answers are slow, and the copy comes while values are read in its place."""
    player, lost = Player(profile), [1]

    def fault(datagram: Datagram) -> Iterable[float]:
        code = datagram.data[0]
        if code == DONE and lost:
            lost.clear()
            return LOST
        if code == Code.VALUE:
            return (0.2,)
        return (0.0, behind) if code == ASKED else PROMPT

    player.pair.fault = fault
    player.reset()
    with suppress(StepUncertain):
        player.steps(4)
        if not player.audit() and not told_of_a_reset(player):
            player.verify()
