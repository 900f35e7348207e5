"""Whole episodes over networks that lose, double, reorder and delay at random, replayable by their seed.

What must hold: nothing hangs; nothing is raised but errors of ours; and each step that a session believes ran exactly
once, with its inputs, its outputs and its infos, unless the session was told otherwise, at the latest by the audit at
the end of its episode.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import OspBridgeError
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import LATENCY, Client, Datagram, Pair
from tests.osp.playing import BOTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.osp.client.machine import Exchange

STEPS = 50
SEED = 7
LATEST = 3.0
LIMITS = Limits(connect=10, query=4, listing=8, step=8, reset=12)
BOUND = 60.0
"""Virtual seconds in which any exchange of these limits must be over."""


@dataclass(frozen=True)
class Weather:
    """How often what happens to a datagram; each is drawn by itself."""

    name: str
    drop: float = 0.0
    double: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    late_doubles: bool = False
    """Whether a double may be reordered or delayed, or comes right behind."""

    def copies(self, draw: random.Random) -> Iterable[float]:
        """Extra delays of the copies of one datagram that arrive."""
        drop, double = draw.random() < self.drop, draw.random() < self.double
        first, second = self._late(draw), self._late(draw)
        if drop:
            return ()
        return (first, second if self.late_doubles else first) if double else (first,)

    def _late(self, draw: random.Random) -> float:
        reorder, delay, by = draw.random() < self.reorder, draw.random() < self.delay, draw.random()
        if delay:
            return by * LATEST
        return by * 8 * LATENCY if reorder else 0.0


@dataclass
class Player:
    """One session with some agents, what it believes, and what it was told."""

    client: Client
    names: tuple[str, ...]
    believed: list[dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]] = field(default_factory=list)
    """Inputs, outputs and infos by agent, for each step."""
    told: str = ""
    ledger: list[dict[str, Any]] = field(default_factory=list)
    """What the simulator had done when this session's audit was over."""

    def actions(self, number: int) -> dict[str, np.ndarray]:
        """Inputs that no other step and no other agent has."""
        return {name: np.array([number - STEPS, int(name[5:])], np.float32) / 64 for name in self.names}


@dataclass
class Episode:
    """What came of one seed."""

    pair: Pair
    players: list[Player]


def side_by_side(pair: Pair, tasks: Sequence[tuple[Player, Exchange[Any]]]) -> dict[int, Any]:
    """One exchange per player; results by the player's place. Errors of ours are what the player was told."""
    for player, exchange in tasks:
        try:
            player.client.begin(exchange)
        except OspBridgeError as error:
            player.told = player.told or f"{type(error).__name__}: {error.message}"
    busy = [player for player, _ in tasks if not player.told]
    until = pair.now + BOUND
    while not all(player.client.finished for player in busy):
        pair.advance(until=until)
    results = {}
    for at, (player, _) in enumerate(tasks):
        if player in busy:
            try:
                results[at] = player.client.outcome()
            except OspBridgeError as error:
                player.told = f"{type(error).__name__}: {error.message}"
    return results


def play(
    profile: Profile, seed: int, weather: Weather, *, agents: int, clients: int, steps: int = STEPS
) -> Episode:
    """Join in fine weather, then one episode of all clients in this weather."""
    draw = random.Random(f"{profile.name}/{seed}/{weather.name}/{agents}/{clients}")
    out = False

    def fault(_: Datagram) -> Iterable[float]:
        return weather.copies(draw) if out else (0.0,)

    world = SyntheticWorld(2, 3, 1, names=[f"agent{at}" for at in range(agents)])
    pair = Pair(world, profile, fault=fault)
    players = []
    for at in range(clients):
        names = tuple(f"agent{number}" for number in range(at, agents, clients))
        player = Player(pair.client(profile, limits=LIMITS, draw=seed).connect(), names)
        player.client.do(player.client.conversation.register(names))
        players.append(player)
    for player in players:
        player.client.do(player.client.conversation.overview())
    out = True
    side_by_side(pair, [(p, p.client.conversation.reset(SEED)) for p in players])
    for player in players:
        player.client.conversation.take_notices()
    for number in range(steps):
        if any(player.told for player in players):
            break
        pair.settle(draw.random() * 10 * LATENCY)
        actions = [player.actions(number) for player in players]
        tasks = [
            (player, player.client.conversation.step(inputs))
            for player, inputs in zip(players, actions, strict=True)
        ]
        for at, outcome in side_by_side(pair, tasks).items():
            players[at].believed.append(
                {n: (actions[at][n], outcome[n].outputs, outcome[n].infos) for n in players[at].names}
            )
    for player in players:
        conclude(pair, player)
    return Episode(pair, players)


def conclude(pair: Pair, player: Player) -> None:
    """The end of a player's episode: its audit, and what else it has been told."""
    talk = player.client.conversation
    if not player.told:
        ((_, reason),) = side_by_side(pair, [(player, talk.audit())]).items() or ((0, ""),)
        player.told = reason
    player.told = player.told or talk.machine.suspect
    if any(isinstance(notice, WorldReset) for notice in talk.take_notices()):
        player.told = player.told or "the world was reset"
    player.ledger = list(pair.ledger)


def untrue(player: Player) -> str:
    """What a player believes although it did not happen; empty where all is true or it was told."""
    if player.told:
        return ""
    last_reset = max(at for at, entry in enumerate(player.ledger) if entry["kind"] == "reset")
    ran = player.ledger[last_reset + 1 :]
    if len(ran) != len(player.believed):
        return f"count: {len(player.believed)} steps believed, {len(ran)} ran"
    for at, (entry, step) in enumerate(zip(ran, player.believed, strict=True)):
        for name, (inputs, outputs, infos) in step.items():
            used = entry["agents"][name]["inputs"]
            if used != inputs.tolist():
                return f"inputs: step {at} of {name} was given {inputs.tolist()}, ran with {used}"
            values = np.concatenate([outputs, infos])
            if not np.array_equal(values, expected(np.array(used, np.float32), at + 1, 4, seed=SEED)):
                return f"outputs: step {at} of {name} brought {values.tolist()}"
    return ""


CREWS = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (3, 3), (4, 3)]
"""Numbers of agents and of clients."""
PROMPT = [
    Weather("loses 2 %", drop=0.02),
    Weather("loses 10 %", drop=0.1),
    Weather("loses 30 %", drop=0.3),
    Weather("reorders 10 %", reorder=0.1),
    Weather("reorders 40 %", reorder=0.4),
    Weather("doubles 5 %", double=0.05),
    Weather("doubles and loses 5 %", double=0.05, drop=0.05),
]
"""Nothing comes later than a round trip, and a double comes right behind."""
LATE = [
    Weather("delays 2 %", delay=0.02),
    Weather("delays 10 %", delay=0.1),
    Weather("loses, reorders, delays 5 %", drop=0.05, reorder=0.05, delay=0.05),
    Weather("loses, reorders, delays, doubles 10 %", drop=0.1, reorder=0.1, delay=0.1, double=0.1),
    Weather("all 2 %, doubles late", 0.02, 0.02, 0.02, 0.02, late_doubles=True),
    Weather("all 10 %, doubles late", 0.1, 0.1, 0.1, 0.1, late_doubles=True),
]
"""Copies may come up to 3 s late: a request among them may take the place of one of a later step."""


def weathers(kinds: list[Weather]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("weather", kinds, ids=lambda w: w.name.replace(" ", "_"))


crews = pytest.mark.parametrize("agents, clients", CREWS, ids=[f"{a}_of_{c}" for a, c in CREWS])


@pytest.mark.sampled(60)
@BOTH
@weathers([*PROMPT, *LATE])
@crews
@pytest.mark.parametrize("seed", range(4))
def test_what_is_believed_is_true_or_told(
    profile: Profile, weather: Weather, agents: int, clients: int, seed: int
) -> None:
    episode = play(profile, seed, weather, agents=agents, clients=clients)
    assert [untrue(player) for player in episode.players] == [""] * clients


@BOTH
@pytest.mark.parametrize("agents", [1, 2])
def test_a_sole_session_on_a_network_that_loses_2_percent_ends_less_than_one_episode_in_100_steps(
    profile: Profile, agents: int
) -> None:
    episodes = [play(profile, seed, PROMPT[0], agents=agents, clients=1) for seed in range(6)]
    told = sum(bool(episode.players[0].told) for episode in episodes)
    steps = sum(len(episode.players[0].believed) for episode in episodes)
    assert told <= steps / 100


@BOTH
def test_reordering_alone_costs_a_sole_session_nothing(profile: Profile) -> None:
    for seed in range(3):
        (player,) = play(profile, seed, PROMPT[4], agents=1, clients=1).players
        assert not player.told
        assert len(player.believed) == STEPS


@BOTH
def test_the_same_seed_tells_the_same_story(profile: Profile) -> None:
    once, again = (play(profile, 3, LATE[3], agents=2, clients=1) for _ in range(2))
    assert [d.data for d in once.pair.sent] == [d.data for d in again.pair.sent]
