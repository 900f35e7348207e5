"""Every datagram of every exchange lost, doubled, or delayed past the next one, one at a time; and each two lost.

What must hold for each: nothing hangs; what a session believes of a step is what ran, once; where that cannot be said,
the session says so, at the latest in the audit at the end of its episode; the session that comes next plays as if
nothing had been; and at the end no agent is left taken. Where a loss is repaired the episode goes on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.timing import Limits
from tests.osp.environment import TOLD, Environment
from tests.osp.playing import COUNTED, REQUEST, Player, thinks
from tests.osp.stage import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ospbridge.osp.profile import Profile
    from tests.osp.pair import Datagram

LOST: Final = ()
PROMPT: Final = (0.0,)
FAULTS: Final[dict[str, tuple[float, ...]]] = {
    "lost": LOST,
    "doubled": (0.0, 0.0),
    "delayed past the next": (120e-6,),
    "doubled, the copy past the next": (0.0, 120e-6),
    "doubled, the copy 80 ms later": (0.0, 0.08),
    "doubled, the copy past the silence": (0.0, 0.4),
}
EVENT: Final = "/Synthetic/Mark"
VARIABLE: Final = "/Synthetic/Value/00002"
STEPS: Final = 3
"""Of an episode, beside the neutral one behind its reset."""

# --- exchanges -----------------------------------------------------------------------------------------------------


def nothing(_: Environment) -> None:
    """An exchange that needs nothing before it."""


def overview(env: Environment) -> None:
    assert [agent.name for agent in env.client.do(env.talk.overview())] == env.names


def info(env: Environment) -> None:
    agent = env.client.do(env.talk.describe(env.names[-1]))
    assert [value.name for value in agent.outputs] == ["/sensor/0", "/sensor/1", "/sensor/2"]
    assert (len(agent.inputs), len(agent.infos)) == (2, 1)


def get_and_set(env: Environment) -> None:
    env.client.do(env.talk.set(VARIABLE, "7.5"))
    assert env.client.do(env.talk.get(VARIABLE)).value == "7.5"


def listing(env: Environment) -> None:
    names = [value.name for value in env.client.do(env.talk.values("/Synthetic/Value/.*"))]
    assert names == [f"/Synthetic/Value/{number:05d}" for number in range(3)]


def events(env: Environment) -> None:
    assert env.client.do(env.talk.register_event(EVENT))
    assert not env.client.do(env.talk.register_event("/No/Such"))
    env.client.do(env.talk.deregister_event(EVENT))


def honest(exchange: Callable[[Environment], None]) -> Callable[[Environment], None]:
    """What is told ends the session."""

    def run(env: Environment) -> None:
        with env.honest():
            exchange(env)

    return run


def reset_before(env: Environment) -> None:
    env.ready()
    env.reset()


def step_before(env: Environment) -> None:
    env.begin()
    env.step()


@dataclass(frozen=True)
class Exchange:
    before: Callable[[Environment], None]
    run: Callable[[Environment], None]
    may_end: bool = False
    """A fault may be one that no session can repair: it is a step's, a reset's or an audit's."""


EXCHANGES: Final = {
    "join": Exchange(nothing, Environment.join),
    "overview": Exchange(Environment.join, overview),
    "info": Exchange(Environment.join, info),
    "register": Exchange(Environment.join, Environment.register),
    "events": Exchange(Environment.ready, events),
    "variables": Exchange(Environment.ready, get_and_set),
    "listing": Exchange(Environment.ready, listing),
    "reset": Exchange(Environment.ready, honest(Environment.reset), may_end=True),
    "first step": Exchange(reset_before, honest(Environment.first_step), may_end=True),
    "later step": Exchange(step_before, honest(Environment.step), may_end=True),
    "audit": Exchange(step_before, honest(Environment.audit), may_end=True),
    "leave": Exchange(Environment.ready, Environment.leave),
}

EACH: Final = pytest.mark.parametrize("exchange", EXCHANGES)
CREWS: Final = pytest.mark.parametrize("agents", [1, 2, 3])


def live(
    profile: Profile,
    agents: int,
    exchange: str,
    fate: Callable[[int], Iterable[float]],
    *,
    replaced: bool = False,
) -> Environment:
    """What comes of an environment whose exchange meets this, and which plays on to the end of two episodes.

    ``replaced``: the copy of a request may take the place of a later one, with the inputs that it has.
    """
    env = Environment(profile, agents, probes=exchange == "join")
    case = EXCHANGES[exchange]
    case.before(env)
    env.meets(fate)
    case.run(env)
    env.calm()
    if exchange == "reset" and not env.ends:
        honest(Environment.first_step)(env)
    env.play(STEPS)
    untruths = [untruth for untruth in env.untruths() if not replaced or untruth.brought or untruth.surplus]
    assert [str(untruth) for untruth in untruths] == []
    # Whatever became of it, the next one is as it should be.
    ends = list(env.ends)
    env.play(STEPS)
    assert [
        str(untruth) for untruth in env.untruths() if untruth.episode >= len(env.lives[0].episodes) - 1
    ] == []
    assert env.ends == ends, "an episode without a fault was ended"
    env.leave()
    env.pair.settle()
    assert env.pair.server.controlled == 0, "an agent is left taken"
    return env


def datagrams(profile: Profile, agents: int, exchange: str) -> list[Datagram]:
    """All that the exchange consists of, where nothing goes wrong."""
    env = Environment(profile, agents, probes=exchange == "join")
    case = EXCHANGES[exchange]
    case.before(env)
    came = env.meets(lambda _: PROMPT)
    case.run(env)
    env.calm()
    assert not env.ends
    return came


@pytest.mark.sampled(160)
@BOTH
@CREWS
@EACH
@pytest.mark.parametrize("kind", FAULTS)
def test_each_single_fault_is_survived_or_told(
    profile: Profile,
    agents: int,
    exchange: str,
    kind: str,
    sample: Callable[[Iterable[int], int], list[int]],
) -> None:
    """But for what no datagram tells: the late copy of a request is counted for the next one, which is lost."""
    came = datagrams(profile, agents, exchange)
    for number in sample(range(len(came)), 6):
        env = live(
            profile,
            agents,
            exchange,
            lambda n, at=number: FAULTS[kind] if n == at else PROMPT,  # type: ignore[misc]
            replaced="copy" in kind and came[number].data[0] == REQUEST,
        )
        assert EXCHANGES[exchange].may_end or not env.ends, f"{number}: {env.ends}"


BEYOND: Final = 6
"""Datagrams of what repairs the first loss, of which each may be the second."""


@pytest.mark.sampled(40)
@BOTH
@CREWS
@EACH
def test_each_two_losses_are_survived_or_told(
    profile: Profile,
    agents: int,
    exchange: str,
    sample: Callable[[Iterable[tuple[int, int]], int], list[tuple[int, int]]],
) -> None:
    count = len(datagrams(profile, agents, exchange))
    for pair in sample(combinations(range(count + BEYOND), 2), 8):
        env = live(profile, agents, exchange, lambda n, lost=pair: LOST if n in lost else PROMPT)  # type: ignore[misc]
        assert EXCHANGES[exchange].may_end or not env.ends, f"{pair}: {env.ends}"


# --- one loss that is repaired: the episode goes on ------------------------------------------------------------------


@BOTH
@CREWS
@pytest.mark.parametrize("exchange", ["reset", "first step", "later step", "audit"])
def test_each_single_loss_of_a_sole_client_is_repaired(profile: Profile, agents: int, exchange: str) -> None:
    for number, lost in enumerate(datagrams(profile, agents, exchange)):
        env = live(profile, agents, exchange, lambda n, at=number: LOST if n == at else PROMPT)  # type: ignore[misc]
        assert not env.ends, f"{number}, {Code(lost.data[0]).name}: {env.ends}"


# --- a request that comes twice --------------------------------------------------------------------------------------


@pytest.mark.sampled(24)
@BOTH
@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("twice", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("lost", ["first", "second"])
def test_a_doubled_request_one_of_whose_acknowledgements_is_lost_is_survived_or_told(
    profile: Profile, agents: int, twice: int, at: int, lost: str
) -> None:
    """All counts are right, and the world may have stepped before an agent was heard."""
    player = Player(profile, agents)
    player.begin(at)
    agent = min(twice, agents)
    answer = bytes((COUNTED, agent))
    fates = [(answer, LOST), (answer, PROMPT)] if lost == "first" else [(answer, PROMPT), (answer, LOST)]
    player.meets((bytes((REQUEST, agent)), (0.0, 0.0)), *fates)
    if profile.eats_awaited_acks and agents > 1:
        # A request is taken for the acknowledgement that a handler awaits: here the promise ends, with one step.
        with suppress(*TOLD):
            player.steps(4)
        assert len(set(player.wrong)) <= 1
        return
    reason = player.told(4)
    assert reason or (player.ran == player.given and not player.wrong)


# --- steps that take their time --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("takes", [0.3, 0.6, 1.2, 1.8])
@pytest.mark.parametrize("clock_first", [False, True], ids=["", "the clock moves at the beginning"])
def test_steps_that_take_longer_than_a_silence_are_waited_for(
    profile: Profile, agents: int, takes: float, *, clock_first: bool
) -> None:
    player = Player(profile, agents, limits=Limits())
    thinks(player, lambda _: takes, clock_first=clock_first)
    assert player.episode(6) == ""
    assert player.sent(REQUEST) == 6 * agents
