"""Several agents on a network that repeats datagrams: votes that were counted twice are told, and nothing else is."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import OutputsIncomplete, StepUncertain
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.holding import SHORTEST
from ospbridge.osp.step.lateness import RULE
from ospbridge.osp.step.overcounting import TOLD_WITHIN
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
SEED = 7
VOTE, COUNTED = Code.NEXT_SIMULATION_STEP, Code.NEXT_SIMULATION_STEP_ACK
LIMITS = Limits(connect=10, query=2, listing=4, step=6, reset=8)


class Crew:
    """One session with all agents of a simulator, whose every step is held against what the world did."""

    def __init__(self, profile: Profile, agents: int, limits: Limits = LIMITS) -> None:
        self.names = tuple(f"agent{at}" for at in range(agents))
        self.pair = Pair(SyntheticWorld(1, 3, names=self.names), profile)
        self.client = self.pair.client(profile, limits=limits).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(self.names))
        self.given: list[Any] = []
        """Inputs of each step since the latest reset."""
        self.brought: list[Any] = []
        self.shape: Callable[[int], float] = lambda number: number / 128
        """Of the inputs, by the number of the step."""

    @property
    def machine(self) -> Any:
        return self.talk.machine

    def reset(self) -> None:
        self.client.do(self.talk.reset(SEED))
        self.given, self.brought = [], []

    def begin(self, steps: int) -> None:
        """A reset, and so many steps of which nothing is wrong."""
        self.reset()
        for _ in range(steps):
            self.step()

    def step(self) -> float:
        """Inputs that no other step has; seconds that it took."""
        number, began = len(self.given) + 1, self.pair.now
        inputs = {
            name: np.array([self.shape(number) + at / 4096], np.float32) for at, name in enumerate(self.names)
        }
        self.given.append({name: inputs[name].tolist() for name in self.names})
        brought = self.client.do(self.talk.step(inputs))
        self.brought.append({name: brought[name].outputs.tolist() for name in self.names})
        return self.pair.now - began

    def verify(self) -> None:
        """What was given is what ran, and what was brought is what came of it."""
        assert self.ran == self.given
        assert self.brought == [
            {
                name: expected(np.array(inputs[name], np.float32), number, 3, seed=SEED).tolist()
                for name in self.names
            }
            for number, inputs in enumerate(self.given, start=1)
        ]

    @property
    def ran(self) -> list[Any]:
        """Inputs of the steps since the latest reset, as they were in truth."""
        entries = self.pair.ledger
        reset = max(at for at, entry in enumerate(entries) if entry["kind"] == "reset")
        return [
            {name: of["inputs"] for name, of in entry["agents"].items()} for entry in entries[reset + 1 :]
        ]

    def audit(self) -> str:
        found: str = self.client.do(self.talk.audit())
        return found

    def told(self, steps: int) -> str:
        """What so many steps and the audit behind them say against them; nothing where all are believed and true."""
        try:
            for _ in range(steps):
                self.step()
        except (StepUncertain, OutputsIncomplete) as error:
            return error.message
        reason = self.audit()
        if not reason:
            self.verify()
        return reason

    def lose(self, *lost: list[int]) -> None:
        """The next datagrams of such a kind and agent, one after the other."""
        left = [bytes(each) for each in lost]

        def fault(datagram: Datagram) -> Iterable[float]:
            if left and datagram.data.startswith(left[0]):
                left.pop(0)
                return ()
            return (0.0,)

        self.pair.fault = fault

    def once(self, code: Code, agent: int, *, behind: float = 0.0) -> None:
        """The next datagram of that kind about this agent comes twice."""
        left = [1]

        def fault(datagram: Datagram) -> Iterable[float]:
            if left and datagram.data[0] == code and datagram.data[1] == agent:
                left.clear()
                return (0.0, behind)
            return (0.0,)

        self.pair.fault = fault


def replies(probability: float, seed: int, late: float = 0.0) -> Callable[[Datagram], Iterable[float]]:
    """So many of the simulator's datagrams come twice."""
    draw = random.Random(seed)

    def fault(datagram: Datagram) -> Iterable[float]:
        if datagram.to_server or draw.random() >= probability:
            return (0.0,)
        return (0.0, draw.random() * late)

    return fault


@pytest.mark.exhaustive
@BOTH
@pytest.mark.parametrize("agents", [1, 2, 3, 5])
@pytest.mark.parametrize("probability", [0.1, 1.0])
def test_a_network_that_repeats_answers_costs_no_step(
    profile: Profile, agents: int, probability: float
) -> None:
    crew = Crew(profile, agents)
    crew.pair.fault = replies(probability, agents)
    for _ in range(3):
        crew.reset()
        assert crew.told(20) == ""


@BOTH
@pytest.mark.parametrize("agents", [1, 2, 3])
def test_nor_where_the_copies_come_steps_later(profile: Profile, agents: int) -> None:
    crew = Crew(profile, agents)
    crew.begin(3)
    crew.pair.fault = replies(0.2, agents, late=0.01)
    for _ in range(60):
        crew.step()
    crew.pair.fault = lambda _: (0.0,)
    crew.pair.settle(0.1)
    assert crew.told(1) == ""


@BOTH
@pytest.mark.parametrize(
    "agent, behind",
    # A last vote's copy that takes the place of the next one's is another matter (``test_echo``).
    [(agent, at * 2.5e-5) for agent in (1, 2) for at in range(20)] + [(3, 0.0), (3, 5e-5)],
)
@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_vote_that_comes_twice_is_told_or_did_no_harm(
    profile: Profile, agent: int, step: int, behind: float
) -> None:
    crew = Crew(profile, 3)
    crew.begin(step - 1)
    crew.once(VOTE, agent, behind=behind)
    # Whatever is told is right; what is not told must be true.
    crew.told(4)


@BOTH
@pytest.mark.parametrize("agent", [1, 2])
@pytest.mark.parametrize("behind", [0.02, 0.06, *[0.0985 + at * 2e-4 for at in range(16)], 0.11])
def test_a_vote_that_comes_once_more_while_the_last_one_is_held_back_is_told_or_did_no_harm(
    profile: Profile, agent: int, behind: float
) -> None:
    crew = Crew(profile, 3)
    crew.begin(3)
    left = {VOTE: behind, COUNTED: 0.0}

    def fault(datagram: Datagram) -> Iterable[float]:
        code = Code(datagram.data[0])
        if code in left and datagram.data[1] == agent:
            return (0.0, left.pop(code))
        return (0.0,)

    crew.pair.fault = fault
    crew.told(4)


@BOTH
@pytest.mark.parametrize(
    "agent, behind",
    [(agent, at * 1e-4) for agent in (1, 2) for at in range(12)] + [(3, 0.0), (3, 5e-5)],
)
def test_so_is_one_of_a_server_that_acknowledges_the_last_vote_behind_its_step(
    profile: Profile, agent: int, behind: float
) -> None:
    crew = Crew(profile, 3)
    left: list[int] = []

    def fault(datagram: Datagram) -> Iterable[float]:
        code, about = datagram.data[0], datagram.data[1:2]
        if code == VOTE and about == bytes([agent]) and left:
            left.clear()
            return (0.0, behind)
        return (5e-4 if code == COUNTED and about == b"\x03" else 0.0,)

    crew.pair.fault = fault
    crew.begin(RULE + 3)
    left.append(1)
    crew.told(4)


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_vote_that_ran_a_step_without_the_last_one_is_told_in_that_step(step: int) -> None:
    crew = Crew(NERD, 3)
    crew.begin(step - 1)
    crew.once(VOTE, 1)
    with pytest.raises(StepUncertain, match="counted twice: a step ran before all votes were in"):
        crew.step()


@BOTH
def test_a_repeated_answer_is_looked_into_once(profile: Profile) -> None:
    """It costs the time in which the world would move; from then on each step asks one question more."""
    crew = Crew(profile, 2)
    crew.begin(3)
    crew.once(COUNTED, 1)
    took = [crew.step() for _ in range(5)]
    assert sum(seconds >= SHORTEST for seconds in took) == 1
    assert not crew.machine.overcounted
    assert crew.audit() == ""


def test_the_last_steps_votes_are_in_doubt_at_the_end_of_an_episode() -> None:
    """No later step tells whether the copy was counted."""
    crew = Crew(NERD, 2)
    crew.begin(3)
    crew.once(COUNTED, 1)
    crew.step()
    assert "a vote of the latest step was acknowledged twice" in crew.audit()
    crew.reset()
    crew.step()
    assert crew.audit() == ""


def test_nor_is_a_last_vote_of_which_only_the_next_step_could_know() -> None:
    crew = Crew(NERD, 2)
    crew.begin(3)
    crew.once(COUNTED, 2)
    crew.step()
    assert crew.audit() == ""
    assert crew.machine.overcounted


@BOTH
@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_server_that_answers_nothing_between_two_votes_leaves_the_step_in_doubt(
    profile: Profile, answers: int
) -> None:
    """Or nothing more, behind so many answers."""
    crew = Crew(profile, 2)
    crew.begin(3)
    crew.once(COUNTED, 2)
    crew.step()
    pending, left = [0], [answers]

    def fault(datagram: Datagram) -> Iterable[float]:
        code = datagram.data[0]
        pending[0] = (pending[0] + (code == VOTE)) % 2
        if code == Code.GET_VALUE and pending[0]:
            left[0] -= 1
            return (0.0,) if left[0] >= 0 else ()
        return (0.0,)

    crew.pair.fault = fault
    with pytest.raises(StepUncertain, match="counted twice"):
        crew.step()
    assert not crew.machine.lateness.answers_between_votes


def slow(crew: Crew, seconds: float) -> None:
    """The world moves so long behind the votes of a step, and counts what comes meanwhile for the next one."""
    server: Any = crew.pair.server
    run, settle = server._run_step, server.settle
    moving: list[Any] = []

    def begin(_: float) -> None:
        moving.append([control.agent.inputs.copy() for control in server.controls])
        votes, server.step_votes = server.step_votes, []
        crew.pair.at(crew.pair.now + seconds, lambda: end(votes))

    def end(votes: list[Any]) -> None:
        inputs = [control.agent.inputs for control in server.controls]
        later = [of.copy() for of in inputs]
        for of, used in zip(inputs, moving[0], strict=True):
            of[:] = used
        counted, server.step_votes = server.step_votes, votes
        run(crew.pair.now)
        server.step_votes = counted
        for of, given in zip(inputs, later, strict=True):
            of[:] = given
        moving.clear()
        server.settle()
        crew.pair.flush_server()

    server._run_step = begin
    server.settle = lambda: None if moving else settle()


@BOTH
@pytest.mark.parametrize("seconds", [0.2, 0.6, 1.2])
@pytest.mark.parametrize("agent, behind", [(1, 0.0), (2, 0.0), (2, 1.5e-4), (3, 0.0), (3, 0.1)])
def test_so_is_one_in_a_world_that_takes_its_time(
    profile: Profile, seconds: float, agent: int, behind: float
) -> None:
    crew = Crew(profile, 3)
    slow(crew, seconds)
    crew.begin(3)
    crew.once(VOTE, agent, behind=behind)
    crew.told(4)


@BOTH
@pytest.mark.parametrize("seconds", [0.2, 0.6, 1.2])
@pytest.mark.parametrize("code", [VOTE, COUNTED])
@pytest.mark.parametrize("agent", [1, 2, 3])
def test_so_is_one_that_is_given_again_since_it_or_its_acknowledgement_was_lost(
    profile: Profile, seconds: float, code: Code, agent: int
) -> None:
    crew = Crew(profile, 3)
    slow(crew, seconds)
    crew.begin(3)
    crew.lose([code, agent])
    reason = crew.told(4)
    # A vote that was lost is given again, and costs no episode.
    assert code == COUNTED or not reason


@BOTH
@pytest.mark.parametrize("seconds", [0.01, 0.2, 0.6, 1.2])
@pytest.mark.parametrize("behind", [0.0, 1e-4, 0.005, 0.1, 0.21])
def test_so_is_one_of_a_single_agent(profile: Profile, seconds: float, behind: float) -> None:
    """Its copy runs a step of its own, that may still be under way when the first one is completed."""
    crew = Crew(profile, 1)
    slow(crew, seconds)
    crew.begin(3)
    crew.once(VOTE, 1, behind=behind)
    crew.told(4)


@BOTH
@pytest.mark.parametrize("seconds", [0.01, 0.2, 1.2])
@pytest.mark.parametrize("behind", [0.0, 0.005])
def test_the_copy_of_a_last_vote_of_a_single_agent_is_told_at_the_end_of_the_episode(
    profile: Profile, seconds: float, behind: float
) -> None:
    crew = Crew(profile, 1)
    slow(crew, seconds)
    crew.begin(3)
    crew.once(VOTE, 1, behind=behind)
    crew.step()
    reason = crew.audit()
    crew.pair.settle()
    if not reason:
        crew.verify()


@BOTH
@pytest.mark.parametrize("seconds", [0.2, 0.6, 1.2])
@pytest.mark.parametrize("code", [VOTE, COUNTED])
def test_a_single_agents_vote_is_given_again_and_what_that_leaves_behind_is_told(
    profile: Profile, seconds: float, code: Code
) -> None:
    crew = Crew(profile, 1)
    slow(crew, seconds)
    crew.begin(3)
    crew.lose([code, 1])
    reason = crew.told(4)
    assert code == COUNTED or not reason


@BOTH
@pytest.mark.parametrize("away", [0.3, 1.5])
def test_a_network_that_was_away_is_no_world_that_takes_as_long(profile: Profile, away: float) -> None:
    crew = Crew(profile, 1)
    crew.begin(3)
    back = crew.pair.now + away
    crew.pair.fault = lambda _: (0.0,) if crew.pair.now >= back else ()
    assert away < crew.step() < away + 1.5
    # This one waits until the vote that was given again can have done no harm.
    assert crew.step() < 0.5
    assert crew.audit() == ""
    crew.verify()


@BOTH
@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("seconds", [0.2, 0.6, 1.2, 2.5])
def test_the_last_vote_is_held_back_where_another_ones_acknowledgement_is_lost_too(
    profile: Profile, seconds: float, steps: int
) -> None:
    """What the step before left behind would else run this one before its last vote is in."""
    crew = Crew(profile, 2)
    slow(crew, seconds)
    crew.begin(3)
    crew.lose([COUNTED, 2], [COUNTED, 1])
    crew.told(steps)


@BOTH
def test_a_single_agents_vote_that_is_acknowledged_twice_is_looked_into_once(profile: Profile) -> None:
    crew = Crew(profile, 1)
    slow(crew, 0.1)
    crew.begin(1)
    crew.machine.anomaly("a network that disturbs")
    usual = crew.step()
    crew.once(COUNTED, 1)
    took = [crew.step() for _ in range(5)]
    assert sum(seconds >= usual + 0.2 for seconds in took) == 1
    assert not crew.machine.overcounted
    assert crew.audit() == ""


def test_a_server_that_answers_nothing_behind_a_vote_that_came_twice_leaves_the_next_step_in_doubt() -> None:
    crew = Crew(NERD, 1)
    crew.begin(3)
    crew.once(COUNTED, 1)
    crew.step()
    crew.pair.fault = lambda datagram: () if datagram.data[0] == Code.GET_VALUE else (0.0,)
    with pytest.raises(StepUncertain, match="what came of it cannot be asked"):
        crew.step()


@BOTH
@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize("behind", [0.02, 0.1, 0.2, 0.24, 0.3, 0.5])
def test_a_last_vote_whose_copys_acknowledgement_is_taken_for_its_own_is_told(
    profile: Profile, agents: int, behind: float
) -> None:
    """The copy counts for the next step, whose completions are there before the last vote can have arrived."""
    crew = Crew(profile, agents)
    crew.begin(3)
    left = {VOTE: (0.0, behind), COUNTED: ()}

    def fault(datagram: Datagram) -> Iterable[float]:
        code = Code(datagram.data[0])
        if code in left and datagram.data[1] == agents:
            return left.pop(code)
        return (0.0,)

    crew.pair.fault = fault
    crew.told(4)


def queueing(crew: Crew) -> None:
    """The world steps when a vote of each agent is there, and keeps what came beyond that for its next steps."""
    server: Any = crew.pair.server
    run = server._run_step
    queues: dict[Any, deque[Any]] = {control: deque() for control in server.controls}
    known: list[Any] = []

    def settle() -> None:
        if not server.step_votes:
            for queue in queues.values():
                queue.clear()
            known.clear()
        for vote in server.step_votes[len(known) :]:
            known.append(vote)
            queues[vote[1]].append((vote, vote[1].agent.inputs.copy()))
        server.due = bool(server.reset_votes) or all(queues.values())

    def step(now: float) -> None:
        taken = [queue.popleft() for queue in queues.values()]
        for control, (_, inputs) in zip(queues, taken, strict=True):
            control.agent.inputs[:] = inputs
        server.step_votes = [vote for vote, _ in taken]
        run(now)
        known[:] = [vote for queue in queues.values() for vote, _ in queue]
        server.step_votes = list(known)
        server.due = all(queues.values())

    server.settle = settle
    server._run_step = step


@BOTH
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize("agent, behind", [(1, 0.0), (1, 1.5e-4), (2, 0.0), (2, 0.01)])
def test_a_vote_that_comes_twice_is_told_where_each_agents_votes_wait_in_a_queue(
    profile: Profile, bare: bool, agents: int, agent: int, behind: float
) -> None:
    """The world waits for all votes then, and the agent's next ones run one step late."""
    crew = Crew(profile, agents)
    if bare:
        variables = crew.pair.server.repository.variables
        for name in [name for name in variables if name.startswith("/Sim/")]:
            del variables[name]
    # Inputs that rise evenly look the same a step later, but for their scale.
    crew.shape = lambda number: number % 7 / 8
    crew.begin(3)
    queueing(crew)
    crew.once(VOTE, agent, behind=behind)
    crew.told(12)


def test_an_answer_that_comes_twice_leaves_a_doubt_only_where_the_simulator_shows_no_inputs() -> None:
    crew = Crew(NERD, 2)
    variables = crew.pair.server.repository.variables
    for name in [name for name in variables if name.startswith("/Sim/")]:
        del variables[name]
    crew.begin(3)
    crew.once(COUNTED, 1)
    assert "does not show which inputs it has" in crew.told(4)
    crew.reset()
    assert crew.told(4) == ""


@BOTH
@pytest.mark.parametrize("seconds", [0.6, 1.0])
@pytest.mark.parametrize("late", [0.5, 1.2, 2.0])
def test_an_acknowledgement_that_comes_while_the_last_vote_is_held_back_does_not_send_it(
    profile: Profile, seconds: float, late: float
) -> None:
    crew = Crew(profile, 2)
    slow(crew, seconds)
    crew.begin(3)
    left: list[tuple[bytes, tuple[float, ...]]] = [(bytes([VOTE, 2]), ()), (bytes([COUNTED, 1]), (late,))]

    def fault(datagram: Datagram) -> Iterable[float]:
        if left and datagram.data.startswith(left[0][0]):
            return left.pop(0)[1]
        return (0.0,)

    crew.pair.fault = fault
    crew.told(4)


@BOTH
def test_a_last_vote_that_is_held_back_behind_a_silence_is_given_when_the_others_are_counted(
    profile: Profile,
) -> None:
    crew = Crew(profile, 3)
    crew.begin(3)
    crew.machine.lateness.repeats = True
    left = [0.3]

    def fault(datagram: Datagram) -> Iterable[float]:
        if left and datagram.data.startswith(bytes([COUNTED, 1])):
            return (left.pop(),)
        return (0.0,)

    crew.pair.fault = fault
    assert crew.told(4) == ""
    assert not left


def test_what_comes_twice_again_and_again_while_the_last_vote_is_held_back_leaves_the_step_in_doubt() -> None:
    crew = Crew(NERD, 3)
    crew.begin(3)
    left = [1]

    def fault(datagram: Datagram) -> Iterable[float]:
        if left and datagram.data.startswith(bytes([COUNTED, 1])):
            left.clear()
            return [0.0, *(at * SHORTEST / 2.0 for at in range(40))]
        return (0.0,)

    crew.pair.fault = fault
    with pytest.raises(StepUncertain, match="counted twice"):
        crew.step()


@BOTH
def test_a_reset_that_is_told_of_while_the_last_vote_is_held_back_says_nothing_of_a_step_that_ran(
    profile: Profile,
) -> None:
    crew = Crew(profile, 2)
    crew.begin(3)
    crew.once(COUNTED, 1)
    crew.step()
    told = bytes([profile.reset_completed])
    crew.pair.at(crew.pair.now + SHORTEST / 2.0, lambda: crew.pair.answer(crew.client, told))
    with pytest.raises(StepUncertain, match="the step may have run before all votes were in"):
        crew.step()
    assert any(isinstance(notice, WorldReset) for notice in crew.talk.take_notices())


def test_an_agent_that_may_lag_is_not_doubted_for_as_long_as_it_is_given_the_same() -> None:
    crew = Crew(NERD, 2)
    crew.shape = lambda number: 0.25
    crew.begin(3)
    crew.once(COUNTED, 1)
    assert crew.told(2 * TOLD_WITHIN) == ""
    assert crew.machine.may_lag


def test_an_agent_that_may_lag_is_told_of_soon_where_what_the_simulator_shows_follows_nothing() -> None:
    crew = Crew(NERD, 2)
    variables = crew.pair.server.repository.variables
    noise = random.Random(1)
    for name in [name for name in variables if name.startswith("/Sim/")]:
        variables[name] = replace(variables[name], read=lambda: str(noise.random()))
    crew.begin(3)
    crew.once(COUNTED, 1)
    assert "does not show which inputs it has" in crew.told(TOLD_WITHIN + 2)


@BOTH
@pytest.mark.parametrize("agents", [1, 2])
def test_an_acknowledgement_that_comes_steps_later_is_no_second_one(profile: Profile, agents: int) -> None:
    """Its step was read back, since the completion was lost."""
    crew = Crew(profile, agents)
    crew.begin(3)
    left: dict[int, tuple[float, ...]] = {COUNTED: (1.5,), Code.NEXT_SIMULATION_STEP_COMPLETED: ()}

    def fault(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] in left and datagram.data[1] == agents:
            return left.pop(datagram.data[0])
        return (0.0,)

    crew.pair.fault = fault
    began = crew.pair.now
    crew.step()
    assert crew.pair.now < began + 1.5, "it has not come yet"
    while crew.pair.now < began + 1.6:
        crew.step()
        crew.pair.settle(0.05)
    assert crew.told(2) == ""
    assert not crew.machine.doubles
