"""Completions that overtake the acknowledgement of the last vote, as they may on a network that changes the order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.client.clock import SIMULATION_TIME
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.lateness import RULE
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
FIRST_OR_LATER = pytest.mark.parametrize("at", [0, 3])
NAMES = ["agent", "other", "third"]
OUTPUTS = 3
BEHIND_ALL = 0.0005


class Session:
    """One client; the acknowledgement of the last vote comes late in step ``at``, from 0."""

    def __init__(
        self, profile: Profile, at: int, *, agents: int = 3, shown: bool = True, clock: bool = True
    ) -> None:
        self.names = NAMES[:agents]
        self.at = at
        self.acknowledged = 0
        self.pair = Pair(SyntheticWorld(1, OUTPUTS, names=self.names), profile, fault=self._fault)
        self.pair.hide(clock=not clock, values=not shown)
        self.client: Client = self.pair.client(profile).connect()
        self.client.do(self.talk.register(self.names))
        self.client.do(self.talk.reset(1))
        self.number = 0

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        code, agent_id = datagram.data[0], datagram.data[1:5]
        last = len(self.names).to_bytes(4, "little")
        if not datagram.to_server and code == Code.NEXT_SIMULATION_STEP_ACK and agent_id == last:
            self.acknowledged += 1
            return (BEHIND_ALL if self.acknowledged == self.at + 1 else 0.0,)
        return (0.0,)

    def step(self) -> float:
        """How long it took. What it brought was the server's own."""
        self.number += 1
        given = np.array([self.number / 64], np.float32)
        began = self.pair.now
        outcome = self.client.do(self.talk.step(dict.fromkeys(self.names, given)))
        true = expected(given, self.number, OUTPUTS, seed=1).tolist()
        assert all(outcome[name].outputs.tolist() == true for name in self.names)
        return self.pair.now - began


@BOTH
@FIRST_OR_LATER
@pytest.mark.parametrize("agents", [1, 2, 3])
def test_what_overtook_an_acknowledgement_is_understood_where_it_can_be_read_back(
    profile: Profile, agents: int, at: int
) -> None:
    session = Session(profile, at, agents=agents)
    took = [session.step() for _ in range(6)]
    assert max(took) == took[at] < 0.6
    assert sum(took) - took[at] < 0.1
    assert session.client.do(session.talk.audit()) == ""


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("lost", [Code.NEXT_SIMULATION_STEP_ACK, Code.NEXT_SIMULATION_STEP_COMPLETED])
def test_what_overtakes_in_every_step_behind_a_loss_makes_none_wait_for_what_has_come(
    profile: Profile, lost: Code, agents: int
) -> None:
    session = Session(profile, -1, agents=agents)
    last = agents.to_bytes(4, "little")

    def fault(datagram: Datagram) -> Iterable[float]:
        if datagram.to_server or datagram.data[1:5] != last:
            return (0.0,)
        if session.number == 1 and datagram.data[0] == lost:
            return ()
        return (BEHIND_ALL if datagram.data[0] == Code.NEXT_SIMULATION_STEP_ACK else 0.0,)

    session.pair.fault = fault
    took = [session.step() for _ in range(8)]
    # The step behind a lost first completion cannot be told from it at once.
    waits = 2 if lost == Code.NEXT_SIMULATION_STEP_ACK else 3
    assert max(took[waits:]) < 0.6
    assert session.talk.machine.lateness.behind == 0.0
    assert session.client.do(session.talk.audit()) == ""


@BOTH
@FIRST_OR_LATER
@pytest.mark.parametrize("shown, clock", [(False, True), (True, False), (False, False)])
def test_where_it_cannot_that_is_said_at_once_and_laid_to_the_network(
    profile: Profile, shown: bool, clock: bool, at: int
) -> None:
    session = Session(profile, at, shown=shown, clock=clock)
    for _ in range(at):
        session.step()
    began = session.pair.now
    with pytest.raises(StepUncertain, match="before the last vote was acknowledged") as caught:
        session.step()
    assert session.pair.now - began < 0.6
    assert caught.value.by_network
    assert ("no clock" in caught.value.message) is not clock


@BOTH
@pytest.mark.parametrize("shown, clock", [(False, True), (True, False), (False, False)])
def test_of_one_agent_alone_it_is_believed(profile: Profile, shown: bool, clock: bool) -> None:
    session = Session(profile, 0, agents=1, shown=shown, clock=clock)
    took = [session.step() for _ in range(3)]
    assert sum(took) < 0.6
    assert session.client.do(session.talk.audit()) == ""


@BOTH
def test_where_the_acknowledgement_is_lost_the_same_is_no_reason_to_try_more_often(profile: Profile) -> None:
    session = Session(profile, -1, shown=False)
    session.pair.fault = lambda datagram: (
        ()
        if not datagram.to_server
        and datagram.data[:2] == bytes((Code.NEXT_SIMULATION_STEP_ACK, len(session.names)))
        else (0.0,)
    )
    began = session.pair.now
    with pytest.raises(StepUncertain, match="not all votes are acknowledged") as caught:
        session.step()
    assert session.pair.now - began < 1.0
    assert not caught.value.by_network


@BOTH
def test_a_completion_is_known_again_by_what_is_printed_of_a_double_between_two_float32(
    profile: Profile,
) -> None:
    """It is sent as the one, and its 15 digits are nearer to the other."""
    session = Session(profile, -1, agents=1)
    (agent,) = session.pair.server.world.agents
    variables = session.pair.server.repository.variables
    name = "/Sim/agent/sensor/0"

    def printed() -> str:
        sent = agent.outputs[0]
        return f"{(float(sent) + float(np.nextafter(sent, np.float32(-9)))) / 2 - 1e-13:.15g}"

    variables[name] = replace(variables[name], read=printed)
    assert np.float32(printed()) != agent.outputs[0]
    given = np.array([0.1], np.float32)
    session.client.do(session.talk.step({"agent": given}))
    lost: list[Datagram] = []

    def lose_acknowledgement(datagram: Datagram) -> Iterable[float]:
        if datagram.to_server or datagram.data[0] != Code.NEXT_SIMULATION_STEP_ACK or lost:
            return (0.0,)
        lost.append(datagram)
        return ()

    session.pair.fault = lose_acknowledgement
    for _ in range(4):
        session.client.do(session.talk.step({"agent": given}))
    assert lost
    assert session.client.do(session.talk.audit()) == ""


@BOTH
def test_what_is_not_acknowledged_yet_is_not_believed_sooner_for_that(profile: Profile) -> None:
    session = Session(profile, 0)
    session.acknowledged = 1
    lost: list[Datagram] = []
    fault = session.pair.fault

    def lose(datagram: Datagram) -> Iterable[float]:
        last = bytes((Code.NEXT_SIMULATION_STEP_ACK, len(session.names)))
        if not lost and not datagram.to_server and datagram.data.startswith(last):
            lost.append(datagram)
            return ()
        return fault(datagram)

    session.pair.fault = lose
    assert session.step() > 2.0
    assert lost


class Repeating(Session):
    """Agents of a server that acknowledges the last vote behind what the step brought, and repeats its episode."""

    def __init__(self, profile: Profile, *, shown: bool, agents: int = 1) -> None:
        super().__init__(profile, 0, agents=agents, shown=shown)

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        last = Code.NEXT_SIMULATION_STEP_ACK.to_bytes(1, "little") + len(self.names).to_bytes(4, "little")
        return (BEHIND_ALL if not datagram.to_server and datagram.data.startswith(last) else 0.0,)

    def again(self) -> None:
        self.number = 0
        self.client.do(self.talk.reset(1))


@BOTH
@pytest.mark.parametrize("shown", [False, True])
def test_a_server_that_always_acknowledges_last_is_known_by_it_after_a_few_steps(
    profile: Profile, shown: bool
) -> None:
    session = Repeating(profile, shown=shown)
    took = [session.step() for _ in range(RULE)]
    assert sum(took) < RULE * 0.6
    took = [session.step() for _ in range(20)]
    # The same once more: what it brings has come before.
    session.again()
    took += [session.step() for _ in range(20)]
    assert max(took) < 0.1
    assert session.client.do(session.talk.audit()) == ""


@BOTH
@pytest.mark.parametrize("agents", [2, 3])
def test_so_is_one_with_several_agents_where_values_can_be_read_back(profile: Profile, agents: int) -> None:
    session = Repeating(profile, shown=True, agents=agents)
    for _ in range(RULE):
        session.step()
    took = [session.step() for _ in range(20)]
    session.again()
    took += [session.step() for _ in range(20)]
    assert max(took) < 0.1
    assert session.client.do(session.talk.audit()) == ""


@BOTH
def test_one_that_does_so_no_more_is_not_known_by_it_any_longer(profile: Profile) -> None:
    session = Repeating(profile, shown=False)
    for _ in range(RULE + 1):
        session.step()
    lateness = session.talk.machine.lateness
    assert lateness.acknowledges_last
    session.pair.fault = lambda _: (0.0,)
    session.step()
    assert not lateness.acknowledges_last
    assert session.client.do(session.talk.audit()) == ""


@BOTH
def test_an_older_completion_is_not_believed_of_a_server_that_acknowledges_last(profile: Profile) -> None:
    session = Repeating(profile, shown=True)
    older: list[bytes] = []
    for _ in range(RULE + 3):
        session.step()
    fault = session.pair.fault

    def late(datagram: Datagram) -> Iterable[float]:
        if not datagram.to_server and datagram.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED and not older:
            older.append(bytes(datagram.data))
            # It comes again when the next vote awaits its acknowledgement.
            return (0.0, 0.002)
        return fault(datagram)

    session.pair.fault = late
    for _ in range(6):
        session.step()
    assert older
    assert session.client.do(session.talk.audit()) == ""


def test_what_is_observed_of_a_server_that_always_acknowledges_last_is_taken_and_confirmed() -> None:
    session = Repeating(DOCUMENT, shown=False)
    seen: list[Datagram] = []
    fault = session.pair.fault

    def count(datagram: Datagram) -> Iterable[float]:
        if datagram.to_server and datagram.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED_ACK:
            seen.append(datagram)
        return fault(datagram)

    session.client.do(session.talk.watch([SIMULATION_TIME]))
    session.pair.fault = count
    for number in range(1, RULE + 20):
        took = session.step()
        assert len(seen) >= number
        assert took < 0.1 or number <= RULE
    session.again()
    assert session.step() < 0.1
    assert session.client.do(session.talk.audit()) == ""
