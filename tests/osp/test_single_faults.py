"""Every datagram of a whole session lost, doubled, or delayed, one at a time, in both profiles.

What must hold for each: nothing hangs; a step that the session believes ran exactly once, with its inputs and its
outputs; where that cannot be said, the session says so; and at the end no agent is left taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from ospbridge.errors import OspBridgeError, OutputsIncomplete, SessionLost, StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Fault, Pair, no_fault

pytestmark = pytest.mark.exhaustive

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


CASES = [
    pytest.param(
        profile, agents, kind, number, id=f"{profile.name}-{agents}-{kind.replace(' ', '_')}-{number}"
    )
    for profile in (DOCUMENT, NERD)
    for agents in (1, 2, 3)
    for kind in FAULTS
    for number in range(count(profile, agents))
]


@pytest.mark.parametrize("profile, agents, kind, number", CASES)
def test_each_single_fault_is_survived_or_told(profile: Profile, agents: int, kind: str, number: int) -> None:
    def fault(datagram: Datagram) -> tuple[float, ...]:
        return FAULTS[kind] if datagram.number == number else (0.0,)

    story = tell(profile, agents, fault)
    assert story.pair is not None
    ran = [entry for entry in story.pair.ledger if entry["kind"] == "step"]
    if story.noticed:
        # Told at the latest when the episode ended: what ran is then not claimed to be known.
        assert len(story.believed) <= STEPS
    else:
        assert len(ran) == len(story.believed) == STEPS
        for at, (entry, step) in enumerate(zip(ran, story.believed, strict=True)):
            for name, (inputs, outputs) in step.items():
                assert entry["agents"][name]["inputs"] == inputs.tolist()
                np.testing.assert_array_equal(outputs, expected(inputs, at + 1, 3, seed=7))
    assert story.pair.server.controlled == 0, "an agent is left taken"


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("kind", LATE_DOUBLES)
def test_a_late_double_neither_hangs_nor_changes_the_number_of_steps_unnoticed(
    profile: Profile, agents: int, kind: str
) -> None:
    # A request that arrives again exactly between two steps replaces the next one, and no datagram tells: OSP numbers
    # nothing. What can be told is the number of steps.
    for number in range(count(profile, agents)):
        story = tell(profile, agents, lambda d, n=number: LATE_DOUBLES[kind] if d.number == n else (0.0,))  # type: ignore[misc]
        assert story.pair is not None
        ran = sum(entry["kind"] == "step" for entry in story.pair.ledger)
        assert story.noticed or ran == len(story.believed) == STEPS, number
        assert story.pair.server.controlled == 0, number


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("agents", [1, 2, 3])
def test_a_lost_datagram_of_a_solely_controlled_step_costs_no_session(profile: Profile, agents: int) -> None:
    for number in range(count(profile, agents)):
        story = tell(profile, agents, lambda d, n=number: () if d.number == n else (0.0,))  # type: ignore[misc]
        assert not story.noticed, (number, story.datagrams[number].data[:1], story.noticed)
        assert len(story.believed) == STEPS


def test_without_a_fault_no_clock_is_read_between_the_steps_of_an_episode() -> None:
    story = tell(NERD, 1)
    codes = [datagram.data[0] for datagram in story.datagrams if datagram.to_server]
    last_steps = codes[-codes[::-1].index(Code.NEXT_SIMULATION_STEP) - 3 :]
    assert last_steps[:4] == [
        Code.NEXT_SIMULATION_STEP,
        Code.NEXT_SIMULATION_STEP_COMPLETED_ACK,
        Code.NEXT_SIMULATION_STEP,
        Code.NEXT_SIMULATION_STEP_COMPLETED_ACK,
    ]


def test_every_error_of_the_stories_has_a_hint() -> None:
    for kind in (StepUncertain, SessionLost, OutputsIncomplete):
        assert issubclass(kind, OspBridgeError)
        assert kind("x").hint
