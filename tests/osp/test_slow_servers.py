"""Servers that take their time: with a thread for each handler, which answer meanwhile, and with one for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import BarrierStuck, SessionLost
from ospbridge.osp.client.asking import LAST_WORD
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.notices import Anomaly, WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ResetSimulationAck
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.lateness import RULE, Lateness
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Hang, Pair
from tests.osp.test_held_votes import Crew

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
RESET = {Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK}
STEP = {Code.NEXT_SIMULATION_STEP_COMPLETED}


class Slow:
    """``threaded``: only completions come ``late``; otherwise nothing that arrives meanwhile is looked at before."""

    def __init__(self, profile: Profile, codes: set[Code], late: float, *, threaded: bool) -> None:
        self.codes = codes
        self.late = late
        self._threaded = threaded
        self._free_at = 0.0
        self.pair = Pair(SyntheticWorld(2, 3), profile, fault=self._fault)
        self.client: Client = self.pair.client(limits=Limits(query=2.0)).connect()
        self.client.do(self.client.conversation.register(["agent"]))

    @property
    def machine(self) -> ClientMachine:
        return self.client.conversation.machine

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        now = self.pair.now
        if not datagram.to_server and datagram.data[0] in self.codes:
            self._free_at = max(now, self._free_at) + self.late
            return (self.late,)
        if datagram.to_server and not self._threaded:
            return (max(0.0, self._free_at - now),)
        return (0.0,)

    def reset(self, seed: int = 1) -> list[Any]:
        """Notices of it."""
        self.client.do(self.client.conversation.reset(seed))
        return list(self.client.conversation.take_notices())

    def told_of_a_reset(self) -> bool:
        """That nobody here asked for, since this was looked at."""
        return any(isinstance(notice, WorldReset) for notice in self.client.conversation.take_notices())

    def step(self) -> None:
        outcome = self.client.do(self.client.conversation.step({"agent": np.zeros(2, np.float32)}))
        assert outcome["agent"].outputs[0] == pytest.approx((self.steps + 1) / 1024)

    @property
    def steps(self) -> int:
        """That ran since the latest reset."""
        kinds = [entry["kind"] for entry in self.pair.ledger]
        return kinds[::-1].index("reset") if "reset" in kinds else len(kinds)

    @property
    def resets(self) -> int:
        return sum(entry["kind"] == "reset" for entry in self.pair.ledger)

    @property
    def votes(self) -> int:
        return sum(d.to_server and d.data[0] == Code.RESET_SIMULATION for d in self.pair.sent)


@BOTH
@pytest.mark.parametrize("threaded", [True, False])
def test_a_reset_that_takes_two_seconds_is_voted_for_once(profile: Profile, threaded: bool) -> None:
    slow = Slow(profile, RESET, 2.0, threaded=threaded)
    slow.reset()
    slow.step()
    notices = slow.reset()
    slow.pair.settle()
    notices += slow.client.conversation.take_notices()
    assert slow.votes == slow.resets == 2
    assert not [notice for notice in notices if isinstance(notice, WorldReset)]
    slow.step()
    assert slow.client.do(slow.client.conversation.audit()) == ""


@BOTH
def test_once_it_is_known_how_long_resets_take_one_that_takes_so_long_is_nothing_to_note(
    profile: Profile,
) -> None:
    slow = Slow(profile, RESET, 2.0, threaded=True)
    slow.reset()
    slow.step()
    assert not slow.machine.guarded
    assert slow.machine.lateness.reset_took == pytest.approx(2.0, abs=0.1)
    assert not [notice for notice in slow.reset() if isinstance(notice, Anomaly)]


@BOTH
@pytest.mark.parametrize("stepped", [False, True])
def test_a_reset_that_is_completed_later_than_it_was_waited_for_is_learned_from(
    profile: Profile, stepped: bool
) -> None:
    slow = Slow(profile, RESET, 0.0, threaded=True)
    slow.reset()
    slow.step()
    slow.late = 2.5
    slow.reset()
    if stepped:
        slow.step()
    slow.pair.settle(5.0)
    # Behind a step it may be anybody's.
    assert slow.told_of_a_reset() is stepped
    slow.step()
    for _ in range(2):
        slow.reset()
        slow.pair.settle(5.0)
        assert not slow.told_of_a_reset()
        slow.step()
    assert slow.votes == slow.resets == 4


class Rebuilding(Slow):
    """Acknowledges at once, and resets the world when it has been rebuilt: the next reset or step waits for that."""

    def __init__(self, profile: Profile, late: float) -> None:
        super().__init__(profile, set(), late, threaded=True)

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        now, code = self.pair.now, datagram.data[0]
        if datagram.to_server and code == Code.RESET_SIMULATION:
            self._free_at = max(now, self._free_at) + self.late
            acknowledgement = ResetSimulationAck().encode(end=self.pair.server.profile.end_marker)
            self.pair.answer(self.client, acknowledgement)
        waits = code in {Code.RESET_SIMULATION, Code.NEXT_SIMULATION_STEP}
        if datagram.to_server and waits:
            return (max(0.0, self._free_at - now),)
        return () if not datagram.to_server and code == Code.RESET_SIMULATION_ACK else (0.0,)


@BOTH
@pytest.mark.parametrize("late", [1.5, 16.0, 40.0])
def test_votes_are_not_given_again_while_the_clock_shows_that_the_reset_is_not_done(
    profile: Profile, late: float
) -> None:
    slow = Rebuilding(profile, 0.0)
    slow.reset()
    for _ in range(3):
        slow.step()
    slow.late = late
    for _ in range(2):
        slow.reset()
        slow.step()
    assert not slow.told_of_a_reset()
    assert slow.votes == slow.resets == 3
    assert slow.client.do(slow.client.conversation.audit()) == ""


class Losing(Rebuilding):
    """One that loses the completion of one reset, when it is told to."""

    def __init__(self, profile: Profile) -> None:
        self.loses = False
        super().__init__(profile, 0.0)

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        if self.loses and not datagram.to_server and datagram.data[0] in RESET:
            self.loses = False
            return ()
        return super()._fault(datagram)


@BOTH
@pytest.mark.parametrize("late, limit", [(49.0, 60.0), (55.0, 60.0), (4.2, 5.0)])
def test_however_long_a_reset_took_a_later_one_whose_completion_is_lost_is_looked_at_in_time(
    profile: Profile, late: float, limit: float
) -> None:
    slow = Losing(profile)
    slow.machine.limits = replace(slow.machine.limits, reset=limit)
    slow.reset()
    slow.step()
    slow.late = late
    slow.reset()
    slow.step()
    slow.late, slow.loses = 0.0, True
    resets = slow.resets
    slow.reset()
    assert not slow.loses
    assert slow.resets == resets + 1
    slow.step()


@BOTH
def test_a_clock_that_no_reset_zeroes_is_no_proof_that_a_first_one_did_not_run(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(2, 3), profile)
    pair.server.clock.restart = lambda: None  # type: ignore[method-assign]  # it goes on through resets
    rest = {"agent": np.zeros(2, np.float32)}
    earlier = pair.client(profile).connect()
    earlier.do(earlier.conversation.register(["agent"]))
    earlier.do(earlier.conversation.reset(1))
    for _ in range(3):
        earlier.do(earlier.conversation.step(rest))
    earlier.do(earlier.conversation.leave())
    client = pair.client(profile).connect()
    client.do(client.conversation.register(["agent"]))
    lost: list[Datagram] = []

    def lose(datagram: Datagram) -> Iterable[float]:
        if not lost and not datagram.to_server and datagram.data[0] in RESET:
            lost.append(datagram)
            return ()
        return (0.0,)

    pair.fault = lose
    began = pair.now
    client.do(client.conversation.reset(2))
    assert lost
    assert pair.now - began < 10.0
    client.do(client.conversation.step(rest))


@BOTH
def test_lost_completions_of_resets_do_not_make_a_server_seem_slower_and_slower(profile: Profile) -> None:
    slow = Slow(profile, set(), 0.0, threaded=True)
    usual = slow.pair.fault
    for _ in range(8):
        left = [1]

        def lost(datagram: Datagram, left: list[int] = left) -> Iterable[float]:
            completed = datagram.data[0] in RESET and not datagram.to_server
            return () if completed and left and left.pop() else usual(datagram)

        # The clock stands at 0 before and behind it: nothing shows that it ran.
        slow.pair.fault = lost
        slow.reset()
        assert not left
    assert slow.machine.lateness.reset_took < 1.0


@BOTH
@pytest.mark.parametrize("late", [4.0, 9.0])
def test_votes_that_were_given_again_bring_two_resets_and_the_episode_begins_behind_both(
    profile: Profile, late: float
) -> None:
    slow = Rebuilding(profile, late)
    # The clock stands at 0 before and behind it.
    slow.reset()
    assert slow.resets == slow.votes > 1
    slow.step()
    slow.step()
    slow.pair.settle(60.0)
    assert not slow.told_of_a_reset()
    assert slow.client.do(slow.client.conversation.audit()) == ""
    assert slow.machine.lateness.reset_took == pytest.approx(late, abs=0.5)
    slow.reset()
    slow.step()
    assert not slow.told_of_a_reset()


@BOTH
def test_a_completion_for_each_agent_is_one_reset(profile: Profile) -> None:
    def for_each(datagram: Datagram) -> Iterable[float]:
        completed = not datagram.to_server and datagram.data[0] in RESET
        return (0.0, 1e-5, 2e-5) if completed else (0.0,)

    pair = Pair(SyntheticWorld(1, 1, agents=3), profile, fault=for_each)
    client = pair.client().connect()
    talk = client.conversation
    agents = ["agent1", "agent2", "agent3"]
    client.do(talk.register(agents))
    for _ in range(3):
        client.do(talk.reset(1))
        for _ in range(5):
            client.do(talk.step({name: np.zeros(1, np.float32) for name in agents}))
        assert not [notice for notice in talk.take_notices() if isinstance(notice, WorldReset)]
        assert client.do(talk.audit()) == ""


@BOTH
@pytest.mark.parametrize("codes, steps", [(RESET, 2), (STEP, 4)], ids=["reset", "step"])
def test_a_server_with_one_thread_may_work_for_longer_than_it_may_take_to_answer(
    profile: Profile, codes: set[Code], steps: int
) -> None:
    slow = Slow(profile, codes, 7.0, threaded=False)
    slow.reset()
    for _ in range(steps):
        slow.step()
    slow.reset()
    slow.step()
    assert slow.client.do(slow.client.conversation.audit()) == ""
    assert slow.votes == slow.resets == 2
    assert slow.steps == 1


@BOTH
@pytest.mark.parametrize("code", [Code.RESET_SIMULATION, Code.NEXT_SIMULATION_STEP])
def test_one_that_stays_silent_is_given_up_at_the_limit_of_what_it_was_asked_for(
    profile: Profile, code: Code
) -> None:
    slow = Slow(profile, set(), 0.0, threaded=True)
    slow.machine.limits = replace(slow.machine.limits, query=5.0)
    slow.reset()
    slow.step()
    begun = slow.pair.now
    voted: list[Datagram] = []

    def silent(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] == code:
            voted.append(datagram)
        return () if voted else (0.0,)

    slow.pair.fault = silent
    exchange: Any = slow.client.conversation.reset(2)
    if code == Code.NEXT_SIMULATION_STEP:
        exchange = slow.client.conversation.step({"agent": np.zeros(2, np.float32)})
    with pytest.raises(SessionLost, match="fell silent in the middle of a") as caught:
        slow.client.do(exchange)
    limit = slow.machine.limits.reset if code == Code.RESET_SIMULATION else slow.machine.limits.step
    took = slow.pair.now - begun
    assert limit <= took < limit + LAST_WORD + 0.1
    assert f"for {took:.1f} s" in caught.value.message


@BOTH
@pytest.mark.parametrize("code", [Code.RESET_SIMULATION, Code.NEXT_SIMULATION_STEP])
def test_one_that_falls_silent_when_the_limit_has_come_is_given_up_as_soon(
    profile: Profile, code: Code
) -> None:
    slow = Slow(profile, set(), 0.0, threaded=True)
    slow.machine.limits = replace(slow.machine.limits, query=5.0)
    slow.reset()
    slow.step()
    slow.pair.server.controlled += 1  # somebody does not vote
    begun = slow.pair.now
    exchange: Any = slow.client.conversation.reset(2)
    limit = slow.machine.limits.reset
    if code == Code.NEXT_SIMULATION_STEP:
        exchange = slow.client.conversation.step({"agent": np.zeros(2, np.float32)})
        limit = slow.machine.limits.step
    slow.pair.fault = lambda _: () if slow.pair.now - begun > limit - 0.01 else (0.0,)
    with pytest.raises(BarrierStuck, match="did not complete within"):
        slow.client.do(exchange)
    assert slow.pair.now - begun < limit + LAST_WORD + 0.1


def test_a_simulator_whose_completions_come_behind_its_clock_is_given_more_time_from_then_on() -> None:
    slow = Slow(DOCUMENT, set(), 0.0, threaded=True)
    slow.reset()
    slow.step()
    slow.codes, slow.late = STEP, 1.5
    slow.client.do(slow.client.conversation.step({"agent": np.zeros(2, np.float32)}))
    assert slow.machine.lateness.behind == 0.0
    slow.pair.settle(5.0)
    assert slow.machine.lateness.behind == pytest.approx(1.5, abs=0.1)
    slow.client.conversation.take_notices()
    slow.reset()
    for _ in range(3):
        slow.step()
        slow.pair.settle(5.0)
    told = [n.text for n in slow.client.conversation.take_notices() if "came late" in n.text]
    assert told == []
    assert slow.client.do(slow.client.conversation.audit()) == ""


@BOTH
def test_a_completion_that_is_doubled_later_says_nothing_of_how_late_others_are(profile: Profile) -> None:
    slow = Slow(profile, set(), 0.0, threaded=True)
    fate: list[tuple[float, ...]] = []

    def fault(datagram: Datagram) -> Iterable[float]:
        return fate.pop() if fate and not datagram.to_server and datagram.data[0] in STEP else (0.0,)

    slow.pair.fault = fault
    slow.reset()
    slow.step()
    for _ in range(2):
        fate.append(())
        begun = slow.pair.now
        slow.step()
        assert slow.pair.now - begun < 1.0
        slow.pair.settle(8.0)
        fate.append((0.0, 0.03))
        slow.step()
        slow.pair.settle(0.5)
    assert slow.machine.lateness.behind == 0.0


class Two:
    """Two clients of one world, each with an agent."""

    def __init__(self, profile: Profile) -> None:
        self.pair = Pair(SyntheticWorld(1, 2, names=["mine", "theirs"]), profile)
        self.mine, self.theirs = (self.pair.client(profile).connect() for _ in range(2))
        for client, name in ((self.theirs, "theirs"), (self.mine, "mine")):
            client.do(client.conversation.register([name]))
        self.theirs.do(self.theirs.conversation.overview())

    def act(self, client: Client, value: float = 0.25) -> Any:
        (name,) = client.conversation.votes
        return client.conversation.step({name: np.array([value], np.float32)})

    def wait(self, client: Client, seconds: float) -> bool:
        """Whether ``client`` was done within that time, or before."""
        until = self.pair.now + seconds
        while not client.finished:
            try:
                self.pair.advance(until=until)
            except Hang:
                self.pair.now = until
                return False
        return True

    @property
    def steps(self) -> int:
        return sum(entry["kind"] == "step" for entry in self.pair.ledger)


@BOTH
def test_a_doubled_completion_is_not_this_steps_though_nothing_was_ever_late_before(profile: Profile) -> None:
    two = Two(profile)
    mine, theirs = two.mine, two.theirs
    two.pair.run((mine, mine.conversation.reset(7)), (theirs, theirs.conversation.reset(7)))
    two.pair.run((mine, two.act(mine)), (theirs, two.act(theirs)))
    agent_id = mine.conversation.votes["mine"].agent_id
    doubled: list[Datagram] = []

    def fault(datagram: Datagram) -> Iterable[float]:
        of_mine = not datagram.to_server and datagram.data[0] in STEP and datagram.data[1] == agent_id
        if of_mine and not doubled:
            doubled.append(datagram)
            return (0.0, 0.05)
        return (0.0,)

    two.pair.fault = fault
    two.pair.run((mine, two.act(mine)), (theirs, two.act(theirs)))
    assert doubled
    ran = two.steps
    mine.begin(two.act(mine, 0.5))
    assert not two.wait(mine, 20.0)
    assert two.steps == ran
    theirs.begin(two.act(theirs))
    assert two.wait(mine, 20.0)
    assert two.steps == ran + 1
    assert mine.conversation.machine.clock.available
    assert mine.outcome()["mine"].outputs[0] == pytest.approx(0.5 + (ran + 1 + 7) / 1024)


@BOTH
@pytest.mark.parametrize("late", [0.0, 40.0])
def test_how_late_others_were_in_one_reset_is_not_waited_for_in_the_next(
    profile: Profile, late: float
) -> None:
    two = Two(profile)
    mine, theirs = two.mine, two.theirs
    mine.begin(mine.conversation.reset(7))
    assert not two.wait(mine, late)
    theirs.begin(theirs.conversation.reset(7))
    assert two.wait(mine, 5.0)
    mine.outcome()
    assert two.wait(theirs, 5.0)
    two.pair.run((mine, two.act(mine)), (theirs, two.act(theirs)))
    lost: list[Datagram] = []

    def fault(datagram: Datagram) -> Iterable[float]:
        if not datagram.to_server and datagram.data[0] in RESET and len(lost) < 2:
            lost.append(datagram)
            return ()
        return (0.0,)

    two.pair.fault = fault
    begun = two.pair.now
    two.pair.run((mine, mine.conversation.reset(8)), (theirs, theirs.conversation.reset(8)))
    assert len(lost) == 2
    assert two.pair.now - begun < 3.0


@BOTH
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("agents", [3, 8])
def test_votes_and_completions_that_go_one_by_one_over_a_slow_line_meet_no_silence(
    profile: Profile, agents: int, guarded: bool
) -> None:
    """Each takes its round trip; all of them together take longer than any silence may last."""
    crew = Crew(profile, agents)
    crew.pair.fault = lambda _: (0.03,)
    for _ in range(2):
        crew.reset()
        crew.machine.guarded = guarded
        for _ in range(3):
            crew.step()
        assert crew.audit() == ""
        crew.verify()
    assert not crew.machine.disturbed


def test_what_one_session_learned_of_a_simulator_the_next_one_knows() -> None:
    before, now = Lateness(), Lateness()
    before.came(0.5)
    before.reset_ran(1.0, 3.0, completed=True)
    before.acknowledged_behind = RULE
    before.repeats = True
    before.answers_between_votes = False
    before.step_ran(0.25)
    before.acknowledged(0.125)
    now.learn_from(before)
    assert (now.behind, now.reset_took, now.step_took, now.quickest) == (0.5, 2.0, 0.25, 0.125)
    assert now.acknowledges_last
    assert now.repeats
    assert not now.answers_between_votes


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
def test_a_way_whose_round_trips_look_like_silence_costs_time_and_no_step(
    profile: Profile, agents: int
) -> None:
    way = 0.2
    # Time for what takes a silence for a loss at first, and reads all values back.
    crew = Crew(profile, agents, limits=Limits(step=20.0))
    crew.pair.fault = lambda _: (way,)
    crew.reset()
    taken = [crew.step() for _ in range(12)]
    assert crew.audit() == ""
    crew.verify()
    votes = [d for d in crew.pair.sent if d.to_server and d.data[0] == Code.NEXT_SIMULATION_STEP]
    assert len(votes) == agents * len(taken)
    assert max(taken[2:]) < 2 * way * (10 + agents)
    if agents > 1:
        # By then answers have told how far it is, and nothing was late for a while.
        assert taken[-1] < 2 * way * (4 + agents)
