"""Networks that repeat datagrams: what that costs, and what it must not hide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import OspBridgeError, StepUncertain
from ospbridge.osp.client.clock import SIMULATION_TIME
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ResetSimulationAck, ValueContent
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair, no_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
REST = np.zeros(1, np.float32)
ASKED, COUNTED, VOTE = Code.RESET_SIMULATION, Code.RESET_SIMULATION_ACK, Code.NEXT_SIMULATION_STEP
DONE = Code.NEXT_SIMULATION_STEP_COMPLETED
COMPLETED = (Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK)


class Session:
    """One client with the only agent of a simulator."""

    def __init__(self, profile: Profile) -> None:
        self.pair = Pair(SyntheticWorld(1, 3), profile)
        self.client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(["agent"]))

    def reset(self, seed: int) -> None:
        self.talk.take_notices()
        self.client.do(self.talk.reset(seed))

    def step(self) -> list[float]:
        found: list[float] = self.client.do(self.talk.step({"agent": REST}))["agent"].outputs.tolist()
        return found

    def told_of_a_reset(self) -> bool:
        return any(isinstance(notice, WorldReset) for notice in self.talk.take_notices())

    def twice(self, *codes: Code, behind: float = 0.0) -> None:
        """From here on these datagrams come once more, so many seconds later."""
        self.pair.fault = lambda datagram: (0.0, behind) if datagram.data[0] in codes else (0.0,)


@BOTH
@pytest.mark.parametrize(
    "codes",
    [(ASKED,), (COUNTED,), COMPLETED, (ASKED, COUNTED, *COMPLETED)],
    ids=["vote", "count", "end", "all"],
)
@pytest.mark.parametrize("behind", [0.0, 1e-4, 2e-4])
def test_a_reset_that_comes_twice_before_the_first_step_is_nobody_else_s(
    profile: Profile, codes: tuple[Code, ...], behind: float
) -> None:
    session = Session(profile)
    for seed in range(1, 5):
        session.twice(*codes, behind=behind)
        session.reset(seed)
        session.pair.settle(0.01)
        session.pair.fault = no_fault
        for number in range(1, 5):
            assert session.step() == expected(REST, number, 3, seed=seed).tolist()
        assert not session.told_of_a_reset()
        assert session.client.do(session.talk.audit()) == ""


@BOTH
@pytest.mark.parametrize("codes", [(), (COUNTED,), COMPLETED], ids=["nothing", "count", "end"])
def test_once_the_episode_has_begun_a_reset_is_somebody_else_s(
    profile: Profile, codes: tuple[Code, ...]
) -> None:
    session = Session(profile)
    session.twice(*codes)
    session.reset(1)
    session.pair.fault = no_fault
    session.step()
    assert not session.told_of_a_reset()
    machine = session.client.conversation.machine
    session.pair.answer(session.client, ResetSimulationAck().encode(end=profile.end_marker))
    session.pair.answer(session.client, bytes([profile.reset_completed]))
    session.pair.settle(0.1)
    assert session.told_of_a_reset()
    assert machine.clock.base is None


@BOTH
@pytest.mark.parametrize("copies", [1, 2])
def test_before_the_first_step_so_is_one_more_than_came_twice(profile: Profile, copies: int) -> None:
    session = Session(profile)
    session.reset(1)
    for _ in range(copies):
        session.pair.answer(session.client, bytes([profile.reset_completed]))
    session.pair.settle(0.1)
    assert session.told_of_a_reset() == (copies > 1)


@BOTH
@pytest.mark.parametrize("behind", [1e-3, 1.05e-3, 1.1e-3, 1.15e-3, 0.03])
def test_a_reset_s_end_that_comes_once_more_in_a_later_step_is_nobody_else_s(
    profile: Profile, behind: float
) -> None:
    session = Session(profile)
    session.reset(2)
    session.step()
    # That this clock is zeroed was not seen before.
    session.twice(*COMPLETED, behind=behind)
    session.reset(1)
    for number in range(1, 5):
        if number == 3:
            session.pair.settle(max(behind - 1e-3, 0.0))
        assert session.step() == expected(REST, number, 3, seed=1).tolist()
    session.pair.settle(0.1)
    for number in range(5, 7):
        assert session.step() == expected(REST, number, 3, seed=1).tolist()
        assert not session.client.conversation.machine.reset_told
    assert not session.told_of_a_reset()
    assert session.client.do(session.talk.audit()) == ""


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("when", ["before a step", "at the end"])
def test_a_reset_by_somebody_who_controls_nothing_is_told_and_disturbs_nothing(steps: int, when: str) -> None:
    session = Session(NERD)
    session.reset(1)
    for _ in range(steps):
        session.step()
    other = session.pair.client(NERD).connect()
    session.pair.to_handler(bytes([ASKED, 0, 0, 0, 0]), other.conversation.handler.port, other.address)
    session.pair.settle(0.1)
    assert session.pair.ledger[-1]["kind"] == "reset"
    if when == "before a step":
        session.step()
    assert session.client.do(session.talk.audit()) == ""
    assert session.told_of_a_reset()
    machine = session.client.conversation.machine
    assert not machine.guarded
    session.reset(2)
    for number in range(1, 4):
        assert session.step() == expected(REST, number, 3, seed=2).tolist()
    assert not session.told_of_a_reset()


def rounded(session: Session) -> None:
    """The clock prints two decimals, as few as a step needs."""
    variables, clock = session.pair.server.repository.variables, session.pair.server.clock
    variables[SIMULATION_TIME] = replace(variables[SIMULATION_TIME], read=lambda: f"{clock.time:.2f}")


def going_on(session: Session) -> None:
    """The clock goes on through resets, and stands at 0 before the first one."""
    session.pair.server.clock.restart = lambda: None  # type: ignore[method-assign]


def numbered_anew(session: Session) -> None:
    """The clock's local id is unknown behind a reset."""
    for handler in session.pair.server._handlers.values():
        values: list[Any] = handler.values
        values[:] = [None] * (len(values) + 10)
        handler.value_ids.clear()


def set_since(session: Session) -> None:
    """A variable was set, which may say how long steps take."""
    session.client.do(session.talk.set("/Simulation/RandomizeSeedAtReset", "F"))


def nothing(_: Session) -> None:
    pass


@BOTH
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize(
    "kind, episodes, then",
    [
        (nothing, 2, nothing),
        (rounded, 2, nothing),
        (going_on, 1, nothing),
        (going_on, 2, nothing),
        (nothing, 2, numbered_anew),
        (nothing, 2, set_since),
    ],
)
def test_a_reset_by_others_is_told_whatever_becomes_of_the_clock(
    profile: Profile,
    kind: Callable[[Session], None],
    episodes: int,
    then: Callable[[Session], None],
    steps: int,
) -> None:
    session = Session(profile)
    kind(session)
    for _ in range(episodes):
        session.reset(1)
        for _ in range(5):
            session.step()
    session.pair.server._run_reset(session.pair.now)
    session.pair.flush_server()
    session.pair.settle(0.1)
    then(session)
    for _ in range(steps):
        session.step()
    assert session.client.do(session.talk.audit()) == ""
    assert session.told_of_a_reset()


@BOTH
def test_an_old_answer_of_the_clock_does_not_deny_a_reset_at_the_end(profile: Profile) -> None:
    session = Session(profile)
    for _ in range(2):
        session.reset(1)
        for _ in range(5):
            session.step()
    value_id = session.client.conversation.machine.clock.value_id
    assert value_id is not None
    session.pair.server._run_reset(session.pair.now)
    session.pair.flush_server()
    session.pair.settle(0.1)
    session.pair.answer(session.client, ValueContent(value_id, "0.05").encode(end=profile.end_marker))
    reason = session.client.do(session.talk.audit())
    assert reason or session.told_of_a_reset()


@pytest.mark.parametrize("behind", [2.1e-4, 2.4e-4, 2.8e-4])
def test_a_first_step_that_a_reset_undoes_which_comes_twice_is_not_believed(behind: float) -> None:
    """The copy arrives behind the reset, while the first vote is on its way or its completion comes back."""
    session = Session(DOCUMENT)
    session.twice(ASKED, behind=behind)
    session.reset(1)
    begun = session.pair.now
    with pytest.raises(StepUncertain, match="the world was reset in the middle of it") as caught:
        session.step()
    assert caught.value.by_network
    assert session.pair.now - begun < 1.0
    assert session.client.conversation.machine.clock.available


@BOTH
@pytest.mark.parametrize("behind", [at / 10 for at in range(3, 60)])
def test_no_copy_of_a_reset_undoes_a_first_step_unnoticed_that_is_read_back(
    profile: Profile, behind: float
) -> None:
    """The step's completion is lost, answers are slow, and the copy comes while values are read in its place."""
    session = Session(profile)
    lost = [1]

    def fault(datagram: Datagram) -> Iterable[float]:
        code = datagram.data[0]
        if code == DONE and lost:
            lost.clear()
            return ()
        if code == Code.VALUE:
            return (0.2,)
        return (0.0, behind) if code == ASKED else (0.0,)

    session.pair.fault = fault
    session.reset(1)
    try:
        for number in range(1, 5):
            brought = session.step()
            if session.told_of_a_reset():
                return
            assert brought == expected(REST, number, 3, seed=1).tolist()
    except StepUncertain:
        return
    assert [entry["kind"] for entry in session.pair.ledger[-4:]] == ["step"] * 4
    assert session.client.do(session.talk.audit()) == ""


def test_a_reset_in_the_middle_of_a_step_says_nothing_of_later_ones() -> None:
    """All votes of a session are counted and the clock stands still: another client is waited for, as ever."""
    pair = Pair(SyntheticWorld(1, 3, names=["one", "other"]), DOCUMENT)
    one, other = (pair.client(DOCUMENT).connect() for _ in range(2))
    for client, name in ((one, "one"), (other, "other")):
        client.do(client.conversation.register([name]))
    one.begin(one.conversation.reset(1))
    other.do(other.conversation.reset(1))
    for _ in range(2):
        one.conversation.machine.reset_within = True
        one.begin(one.conversation.step({"one": REST}))
        pair.settle(2.0)
        assert not one.finished
        other.do(other.conversation.step({"other": REST}))
        while not one.finished:
            pair.advance(until=pair.now + 100.0)
        one.outcome()


class Bare(Session):
    """A simulator that shows no interface values, and no clock if it is without one."""

    def __init__(self, *, clock: bool) -> None:
        super().__init__(DOCUMENT)
        variables = self.pair.server.repository.variables
        for name in [name for name in variables if name.startswith("/Sim/")]:
            del variables[name]
        if not clock:
            del variables[SIMULATION_TIME]

    def step_with(self, number: int) -> list[float]:
        given = np.array([number / 128], np.float32)
        found: list[float] = self.client.do(self.talk.step({"agent": given}))["agent"].outputs.tolist()
        assert found == expected(given, number, 3, seed=1).tolist()
        return found


@pytest.mark.parametrize(
    "clock, lost",
    [(True, DONE), (False, VOTE), (False, DONE)],
    ids=["completion", "no clock, vote", "no clock, completion"],
)
@pytest.mark.parametrize("before", [1, 2, 100])
def test_an_older_completion_that_comes_twice_is_never_this_step_s(
    clock: bool, lost: Code, before: int
) -> None:
    """It arrives before the acknowledgement of this vote, and one datagram of this step is lost."""
    session = Bare(clock=clock)
    session.reset(1)
    kept: list[bytes] = []

    def keep(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] == DONE and not datagram.to_server:
            kept.append(datagram.data)
        return (0.0,)

    session.pair.fault = keep
    for number in range(1, 104):
        session.step_with(number)
    session.pair.fault = lambda datagram: () if datagram.data[0] == lost else (0.0,)
    session.client.begin(session.talk.step({"agent": REST}))
    session.pair.answer(session.client, kept[-1 - before])
    while not session.client.finished:
        session.pair.advance(until=session.pair.now + 100.0)
    with pytest.raises(OspBridgeError):
        session.client.outcome()


@BOTH
def test_a_vote_that_is_lost_where_datagrams_come_late_is_not_awaited_for_as_long_as_a_step_may_take(
    profile: Profile,
) -> None:
    session = Session(profile)
    session.twice(Code.VALUE, behind=1.0)
    session.reset(1)
    for _ in range(3):
        session.step()
    session.pair.settle(2.0)
    assert not session.client.conversation.machine.punctual

    def lost(datagram: Datagram) -> Iterable[float]:
        return () if datagram.data[0] == VOTE else (0.0,)

    session.pair.fault = lost
    begun = session.pair.now
    with pytest.raises(StepUncertain, match=r"was not acknowledged within \d\.\d s") as caught:
        session.step()
    assert caught.value.by_network
    assert 3.0 < session.pair.now - begun < 8.0


@BOTH
def test_one_that_comes_after_all_is_no_loss(profile: Profile) -> None:
    session = Session(profile)
    session.twice(Code.VALUE, behind=1.0)
    session.reset(1)
    session.step()
    session.pair.settle(2.0)
    session.pair.fault = lambda datagram: (3.0 if datagram.data[0] == VOTE else 0.0,)
    assert session.step() == expected(REST, 2, 3, seed=1).tolist()
    assert session.pair.ledger[-1]["n"] == 2
