"""Servers whose clock advances when a step begins, and everything else only when it ends."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from ospbridge.errors import OutputsIncomplete, StepUncertain
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.server.machine import ServerMachine
from ospbridge.osp.step import lost_completions
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ospbridge.osp.client.machine import Exchange

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
OUTPUTS = 3
COMPLETION = Code.NEXT_SIMULATION_STEP_COMPLETED


class Ahead(ServerMachine):
    """``take``: seconds that the step of that number takes, after the clock has moved. Handlers answer meanwhile."""

    pair: Pair
    take: Callable[[int], float]
    busy = False

    def handle_timer(self, now: float) -> None:
        if self.busy:
            self.due = False
        super().handle_timer(now)

    def settle(self) -> None:
        if not self.busy:
            super().settle()

    def _run_step(self, now: float) -> None:
        votes, self.step_votes = self.step_votes, []
        inputs = [control.agent.inputs.copy() for control in self.controls]
        self.busy = True
        self.clock.steps += 1
        self.pair.at(now + self.take(self.steps), partial(self._end, votes, inputs))

    def _end(self, votes: list[Any], inputs: list[Any]) -> None:
        later, self.step_votes = self.step_votes, votes
        for control, given in zip(self.controls, inputs, strict=True):
            control.agent.inputs[:] = given
        self.busy = False
        self.clock.steps -= 1
        super()._run_step(self.pair.now)
        self.step_votes = later
        self.settle()
        self.pair.flush_server()


class Session:
    """One client of such a server, in whose world each step brings something else."""

    def __init__(
        self, profile: Profile, take: Callable[[int], float], *, agents: int = 1, draw: int = 0
    ) -> None:
        self.names = ["agent", "other", "third"][:agents]
        self.lose: list[bool] = []
        """Whether the completions to come are lost, the last one first."""
        self.sent_behind = 0.0
        """Seconds from the end of a step to its completion."""
        self.pair = Pair(SyntheticWorld(1, OUTPUTS, names=self.names), profile, fault=self._fault)
        server = Ahead(self.pair.server.world, profile, ledger=self.pair.ledger.append)
        server.pair, server.take = self.pair, take
        server._was_reset = True
        self.server = self.pair.server = server
        self.client: Client = self.pair.client(profile, draw=draw).connect()
        self.client.do(self.talk.register(self.names))

    @property
    def talk(self) -> Any:
        return self.client.conversation

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        completion = not datagram.to_server and datagram.data[0] == COMPLETION
        if completion and self.lose and self.lose.pop():
            return ()
        return (self.sent_behind if completion else 0.0,)

    def episode(self, steps: int, *, seed: int = 1, idle: float = 0.0) -> tuple[list[int], str]:
        """Steps whose observation was not the server's own, and why the episode ended before its time."""
        self.client.do(self.talk.reset(seed))
        wrong: list[int] = []
        for number in range(steps):
            given = np.array([(number + 1) / 64], np.float32)
            try:
                outcome = self.client.do(self.talk.step(dict.fromkeys(self.names, given)))
            except StepUncertain as error:
                return wrong, error.message
            true = expected(given, number + 1, OUTPUTS, seed=seed).tolist()
            if any(outcome[name].outputs.tolist() != true for name in self.names):
                wrong.append(number)
            if idle:
                self.pair.settle(idle)
        return wrong, self.client.do(self.talk.audit())


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("takes", [0.3, 0.6, 1.2, 1.9])
def test_a_step_that_takes_its_time_behind_the_clock_brings_its_own_outputs(
    profile: Profile, agents: int, takes: float
) -> None:
    session = Session(profile, lambda _: takes, agents=agents)
    assert session.episode(40) == ([], "")
    # Of several agents the first look comes later.
    if agents == 1 or takes > 0.5:
        assert session.talk.machine.lateness.behind == pytest.approx(takes, abs=0.1)
    assert session.episode(40, seed=2) == ([], "")


@BOTH
@pytest.mark.parametrize("slow", [0.5, 1.5])
@pytest.mark.parametrize("usual", [0.0, 0.1])
def test_so_does_one_that_takes_longer_than_those_before(profile: Profile, usual: float, slow: float) -> None:
    session = Session(profile, lambda step: slow if step % 10 == 5 else usual)
    assert session.episode(40) == ([], "")


@pytest.mark.exhaustive
@BOTH
@pytest.mark.parametrize("takes", [2.5, 3.0, 5.0])
@pytest.mark.parametrize("idle", [0.0, 0.3, 20.0])
@pytest.mark.parametrize("agents", [1, 3])
def test_one_that_was_taken_for_lost_is_told_by_the_next_which_ends_the_episode(
    profile: Profile, takes: float, idle: float, agents: int
) -> None:
    session = Session(profile, lambda _: takes, agents=agents)
    wrong, reason = session.episode(40, idle=idle)
    # What was believed too early is the first observation, no other one.
    assert wrong == [0]
    assert reason
    session.pair.settle(20.0)
    assert session.talk.machine.lateness.behind >= takes - 0.1
    for seed in (2, 3):
        assert session.episode(40, seed=seed) == ([], "")


@pytest.mark.exhaustive
@BOTH
@pytest.mark.parametrize("takes", [0.0, 0.1, 0.3, 1.2])
@pytest.mark.parametrize("lost", [0, 1, 7])
@pytest.mark.parametrize("agents", [1, 3])
def test_completions_that_are_really_lost_are_read_back_there_too(
    profile: Profile, takes: float, lost: int, agents: int
) -> None:
    session = Session(profile, lambda _: takes, agents=agents)
    session.lose = [number == lost for number in reversed(range(lost + 1))]
    assert session.episode(40) == ([], "")
    assert not session.lose


@BOTH
@pytest.mark.parametrize("milliseconds", np.arange(250.0, 256.0, 0.1).tolist())
def test_values_that_change_while_they_are_read_back_are_read_again(
    profile: Profile, milliseconds: float
) -> None:
    session = Session(profile, lambda step: milliseconds / 1000.0 if step == 4 else 0.0)
    session.lose = [True, False, False, False, False]
    assert session.episode(8) == ([], "")


@pytest.mark.exhaustive
@BOTH
@pytest.mark.parametrize("takes", [0.0, 0.1, 0.2, 0.24, 0.3, 0.6, 1.2])
@pytest.mark.parametrize("behind", [0.02, 0.1, 0.3, 0.8])
def test_completions_may_come_behind_their_values_too(profile: Profile, takes: float, behind: float) -> None:
    for draw in range(10):
        session = Session(profile, lambda _: takes, draw=draw)
        session.sent_behind = behind
        for seed in range(1, 3):
            assert session.episode(10, seed=seed, idle=draw % 2 / 10.0) == ([], "")


@BOTH
@pytest.mark.parametrize("takes", [2.5, 3.0])
def test_a_late_completion_of_one_agent_does_not_show_that_the_step_of_others_is_over(
    profile: Profile, takes: float
) -> None:
    session = Session(profile, lambda _: takes, agents=3)
    session.lose = [True, True, False]
    wrong, reason = session.episode(10)
    assert wrong == [0]
    assert reason


@BOTH
def test_how_late_those_are_is_learned_though_each_step_is_read_back(profile: Profile) -> None:
    for draw in range(10):
        session = Session(profile, lambda _: 0.3, draw=draw)
        session.sent_behind = 0.8
        assert session.episode(10) == ([], "")
        assert session.talk.machine.lateness.behind == pytest.approx(1.1, abs=0.1)


@pytest.mark.exhaustive
@BOTH
def test_values_that_change_between_two_looks_are_looked_at_once_more(profile: Profile) -> None:
    for at in np.arange(0.5, 0.54, 0.0001).tolist():
        session = Session(profile, [at, *[0.0] * 5].__getitem__)
        session.lose = [True]
        assert session.episode(3) == ([], "")


@BOTH
def test_agents_at_rest_wait_for_a_lost_completion_and_once_more_for_the_next(profile: Profile) -> None:
    session = Session(profile, lambda _: 0.0)
    session.server.world.step = lambda: None  # type: ignore[method-assign]
    session.client.do(session.talk.reset(1))
    took = []
    for number in range(12):
        session.lose = [number == 3]
        begun = session.pair.now
        session.client.do(session.talk.step({"agent": [0.0]}))
        took.append(session.pair.now - begun)
    assert max(took[3:5]) < 4.5
    assert max(took[:3] + took[5:]) < 0.1


@BOTH
def test_a_completion_that_comes_while_the_repository_is_listed_is_this_steps(profile: Profile) -> None:
    for microseconds in range(0, 1500, 20):
        takes = [0.25 + microseconds / 1e6, 0.0, 0.0]
        session = Session(profile, takes.__getitem__)
        assert session.episode(3) == ([], "")
        assert session.talk.machine.lateness.behind < 0.6


@BOTH
def test_only_the_first_step_of_an_episode_waits_to_be_read_back(profile: Profile) -> None:
    session = Session(profile, lambda _: 0.0)
    session.lose = [number % 4 == 1 for number in range(20)]
    begun = session.pair.now
    assert session.episode(20) == ([], "")
    assert not session.lose
    assert session.pair.now - begun < 5 * 0.5


@BOTH
def test_where_values_cannot_be_read_back_the_completion_is_waited_for(profile: Profile) -> None:
    session = Session(profile, lambda _: 1.2)
    for index in range(OUTPUTS):
        del session.server.repository.variables[f"/Sim/agent/sensor/{index}"]
    assert session.episode(10) == ([], "")


@BOTH
def test_it_is_waited_for_until_the_limit_of_the_step(profile: Profile) -> None:
    session = Session(profile, lambda _: 0.0)
    for index in range(OUTPUTS):
        del session.server.repository.variables[f"/Sim/agent/sensor/{index}"]
    session.client.do(session.talk.reset(1))
    session.lose = [True]
    begun = session.pair.now
    with pytest.raises(
        OutputsIncomplete, match="was lost, and 3 of its values cannot be read back"
    ) as caught:
        session.client.do(session.talk.step({"agent": [0.0]}))
    assert "split" not in caught.value.hint
    limit = session.talk.machine.limits.step
    assert session.pair.now - begun == pytest.approx(limit, abs=1.0)
    assert session.episode(5) == ([], "")


def looked_at(monkeypatch: pytest.MonkeyPatch, *shown: float) -> Any:
    """What is believed where the repository shows these numbers, look by look; None: none of them."""
    looks = iter(shown)

    def look(_m: Any, _s: Any) -> Exchange[dict[int, float]]:
        yield from ()
        return {1: next(looks)}

    monkeypatch.setattr(lost_completions, "_look", look)
    monkeypatch.setattr(lost_completions, "_settled", lambda *_: True)
    step = SimpleNamespace(unreadable=None, finished=False, missing=[1])
    exchange = lost_completions.read_back(ClientMachine(DOCUMENT), cast("Any", step))
    with pytest.raises(StopIteration) as done:
        next(exchange)
    return done.value.value


@pytest.mark.parametrize(
    "shown, believed", [((2.0, 2.0), 2.0), ((1.0, 2.0, 2.0), 2.0), ((1.0, 2.0, 1.0, 1.0), 1.0)]
)
def test_what_is_read_back_is_believed_once_two_looks_agree(
    monkeypatch: pytest.MonkeyPatch, shown: tuple[float, ...], believed: float
) -> None:
    assert looked_at(monkeypatch, *shown) == {1: believed}


def test_where_no_two_looks_agree_it_is_too_early_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at(monkeypatch, *map(float, range(lost_completions.LOOKS + 1))) is None
