"""Every datagram of a whole session lost, doubled, or delayed, one at a time, in both profiles.

What must hold for each: nothing hangs; a step that the session believes ran exactly once, with its inputs and its
outputs; where that cannot be said, the session says so; and at the end no agent is left taken.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import OutputsIncomplete, SessionLost, StepUncertain
from ospbridge.osp.client import asking
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Fault, Pair, no_fault
from tests.osp.playing import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ospbridge.osp.client.machine import Exchange
    from ospbridge.osp.profile import Profile

STEPS = 3
PAST_THE_NEXT = 120e-6
PAST_PATIENCE = 0.4
FAULTS: dict[str, tuple[float, ...]] = {
    "lost": (),
    "doubled": (0.0, 0.0),
    "delayed past the next": (PAST_THE_NEXT,),
    "delayed past the patience": (PAST_PATIENCE,),
}


LATE_DOUBLES: dict[str, tuple[float, ...]] = {
    "doubled past the next": (0.0, PAST_THE_NEXT),
    "doubled past the patience": (0.0, PAST_PATIENCE),
}


@dataclass
class Story:
    """What a whole session brought."""

    believed: list[dict[str, tuple[np.ndarray, np.ndarray]]] = field(default_factory=list)
    """For each step the session believes: inputs and outputs by agent."""
    noticed: str = ""
    datagrams: list[Datagram] = field(default_factory=list)
    pair: Pair | None = None


def tell(profile: Profile, agents: int, fault: Fault = no_fault) -> Story:
    """Connect, register, reset, step, leave."""
    story = Story()
    pair = Pair(SyntheticWorld(2, 3, 1, agents=agents), profile, fault=fault)
    story.pair, story.datagrams = pair, pair.sent
    client = pair.client(profile).connect()
    talk = client.conversation
    names = client.do(talk.matching(()))
    client.do(talk.register(names))
    client.do(talk.get("/Simulation/TimeStepSize"))
    client.do(talk.set("/Simulation/TimeStepSize", "0.02"))
    try:
        client.do(talk.reset(7))
        for number in range(STEPS):
            actions = {name: np.array([number, at], np.float32) / 8 for at, name in enumerate(names)}
            outcome = client.do(talk.step(actions))
            story.believed.append({n: (actions[n], outcome[n].outputs) for n in names})
        pair.settle()
        story.noticed = client.do(talk.audit())
    except (StepUncertain, SessionLost, OutputsIncomplete) as error:
        story.noticed = error.message
    pair.settle()
    try:
        client.do(talk.leave())
    except SessionLost as error:
        story.noticed = story.noticed or error.message
    pair.settle()
    return story


def count(profile: Profile, agents: int) -> int:
    return len(tell(profile, agents).datagrams)


@BOTH
@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("kind", [*FAULTS, *LATE_DOUBLES])
def test_each_single_fault_is_survived_or_told(
    profile: Profile, agents: int, kind: str, sample: Callable[[Iterable[int], int], list[int]]
) -> None:
    delays = {**FAULTS, **LATE_DOUBLES}[kind]
    for number in sample(range(len(tell(profile, agents).datagrams)), 6):
        story = tell(profile, agents, lambda d, n=number: delays if d.number == n else (0.0,))  # type: ignore[misc]
        assert story.pair is not None
        assert story.pair.server.controlled == 0, f"{number}: an agent is left taken"
        if story.noticed:
            # Told at the latest when the episode ended: what ran is then not claimed to be known.
            assert len(story.believed) <= STEPS
            assert kind != "lost", f"{number} is repaired: {story.noticed}"
            continue
        ran = [entry for entry in story.pair.ledger if entry["kind"] == "step"]
        assert len(ran) == len(story.believed) == STEPS, number
        # A request that arrives again exactly between two steps replaces the next one, and no datagram tells: OSP
        # numbers nothing. What can be told is the number of steps.
        for at, (entry, step) in enumerate(zip(ran, story.believed, strict=True)):
            for name, (inputs, outputs) in step.items():
                if kind in FAULTS:
                    assert entry["agents"][name]["inputs"] == inputs.tolist(), number
                    np.testing.assert_array_equal(outputs, expected(inputs, at + 1, 3, seed=7))


# --- exchanges beside reset and step, which are harmless to repeat: each comes to its result -----------------------

EVENT = "/Synthetic/Mark"


def listing(client: Client) -> None:
    values = client.do(client.conversation.values("/Synthetic/.*"))
    assert [value.name for value in values] == [f"/Synthetic/Value/{n:05d}" for n in range(5)]


def description(client: Client) -> None:
    agent = client.do(client.conversation.describe("agent2"))
    assert (len(agent.inputs), len(agent.outputs), len(agent.infos)) == (2, 3, 1)
    assert [value.name for value in agent.outputs] == ["/sensor/0", "/sensor/1", "/sensor/2"]


def registration(client: Client) -> None:
    talk = client.conversation
    client.do(talk.register(["agent1", "agent2"]))
    client.do(talk.deregister("agent1"))
    assert list(talk.votes) == ["agent2"]
    assert client.pair.server.controlled == 1


def events(client: Client) -> None:
    talk = client.conversation
    assert client.do(talk.register_event(EVENT))
    assert not client.do(talk.register_event("/No/Such"))
    assert list(talk.machine.events.values()) == [EVENT]
    client.do(talk.deregister_event(EVENT))
    assert not talk.machine.events


def variables(client: Client) -> None:
    talk = client.conversation
    client.do(talk.set("/Synthetic/Value/00003", "7.5"))
    assert client.do(talk.get("/Synthetic/Value/00003")).value == "7.5"
    client.do(talk.watch(["/Synthetic/Value/00003", "/Synthetic/Value/00004"]))
    if talk.machine.profile.values_are_pushed:
        ids = tuple(talk.machine.observed)
        assert len(ids) == 2
        client.do(asking.unobserve(talk.machine, ids))
        assert not talk.machine.observed


def restart(client: Client) -> None:
    exchange: Exchange[bool] = client.conversation.restart_communication()
    with suppress(SessionLost):
        client.do(exchange)
    client.pair.settle()
    assert client.pair.server.handlers == 0


STORIES: dict[str, Callable[[Client], None]] = {
    story.__name__: story for story in (listing, description, registration, events, variables, restart)
}


@BOTH
@pytest.mark.parametrize("kind", [*FAULTS, *LATE_DOUBLES])
@pytest.mark.parametrize("story", STORIES)
def test_each_single_fault_of_a_question_is_survived(
    profile: Profile, kind: str, story: str, sample: Callable[[Iterable[int], int], list[int]]
) -> None:
    delays = {**FAULTS, **LATE_DOUBLES}[kind]

    def ask(fault: Fault) -> int:
        """How many datagrams it takes."""
        pair = Pair(SyntheticWorld(2, 3, 1, agents=2, values=5), profile)
        client = pair.client(profile).connect()
        pair.settle(0.2)
        pair.count = 0
        pair.fault = fault
        STORIES[story](client)
        pair.fault = no_fault
        pair.settle()
        return pair.count

    for number in sample(range(ask(no_fault)), 5):
        ask(lambda datagram, number=number: delays if datagram.number == number else (0.0,))  # type: ignore[misc]
