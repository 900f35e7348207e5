"""A step's straight way on real sockets: links walk it by themselves, and leave it at whatever is not on it."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.errors import SessionLost, StepUncertain
from ospbridge.observe.tally import Tally, by_name
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.notices import Anomaly, WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    NextSimulationStep,
    NextSimulationStepAck,
    StepCompleted,
    StepCompletedAck,
    ValueContent,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step import barrier
from ospbridge.osp.timing import Limits
from ospbridge.session import link, trio_link
from ospbridge.session.datagrams import IDLE, LONG, SELDOM
from ospbridge.session.link import Link
from ospbridge.session.trio_link import TrioLink
from tests.osp.test_hostile_server import brought, on_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.osp.client.machine import Exchange
    from ospbridge.osp.step.barrier import StepResult
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.step.votes import Vote
    from ospbridge.session.link import GoOn

pytestmark = pytest.mark.loopback
BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
ACK = NextSimulationStepAck(1).encode()
DONE = brought(0.5).encode()
EVENTFUL = StepCompleted(1, np.array([0.5], np.float32), np.empty(0, np.float32), (7,), 0).encode()
RESET = bytes((Code.RESET_SIMULATION_COMPLETED_ACK,))
OTHERS = NextSimulationStepAck(2).encode()
CLOCK = ValueContent(5, "0.01").encode()
HALVES = ("in halves", "side by side")
"""Drivers that take a step in two calls."""
BRIEF = Limits(query=0.3, step=0.3)
"""For steps that wait in vain."""


@pytest.fixture(autouse=True)
def _nobody_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes is said before it is asked for here, and a busy machine takes its time in between."""
    for module in (link, trio_link):
        monkeypatch.setattr(module, "IDLE", 60.0)
        monkeypatch.setattr(module, "BRISK", 60.0)


class Line:
    """A machine with its vote, the link under test, and the server's end of the line."""

    def __init__(self, profile: Profile, *, driver: str) -> None:
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind(("127.0.0.1", 0))
        self.server.settimeout(5)
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.client.bind(("127.0.0.1", 0))
        self.client.setblocking(False)
        self.client.connect(self.server.getsockname())
        self.server.connect(self.client.getsockname())
        self.machine, self.vote = on_stage(profile)
        self.votes: tuple[Vote, ...] = (self.vote,)
        self.tally = Tally()
        self.driver = driver
        self.link: Any = None
        self._left: StraightWay | None = None

    def walk(self, after: Callable[[Line], None] = lambda _: None) -> StraightWay | None:
        """Make the link, let something happen, and take a step; the straight way, at its end."""
        if self.driver == "blocking":
            self.link = Link(self.client, self.machine, port=1, spin=True, trace=None)
            after(self)
            return self.link.walk(self.votes)  # type: ignore[no-any-return]

        if self.driver in HALVES:

            def nowhere(way: StraightWay | None) -> Exchange[None]:
                self._left = way
                return
                yield

            try:
                return self._in_halves(nowhere, after)  # type: ignore[no-any-return]
            except SessionLost:
                return None

        async def run() -> StraightWay | None:
            self.link = TrioLink(self.client, self.machine, port=1, spin=True, trace=None, tally=self.tally)
            after(self)
            return await self._walk()

        return trio.run(run)

    def left_way(self) -> StraightWay | None:
        """Where ``walk`` left it."""
        return self._left or self.link.left_way()

    def _in_halves(self, go_on: GoOn, after: Callable[[Line], None]) -> Any:
        """A step as fleets take it: the last one of them waits in its link, the others only read what is there."""
        found = self.link = Link(self.client, self.machine, port=1, spin=True, trace=None)
        after(self)
        found.set_off(self.votes, go_on)
        if self.driver == "in halves":
            found.complete()
            return found.result()
        for _ in range(100):
            if found.finished:
                break
            assert found.deadline is not None
            rest = max(found.deadline - time.monotonic(), 0.0)
            if select.select([self.client], [], [], rest)[0]:
                found.read()
            else:
                found.expire()
        return found.result()

    def walk_late(self, seconds: float) -> StraightWay | None:
        """Set out so many seconds after other tasks had their turn, with a link that lingers."""

        async def run() -> None:
            self.link = TrioLink(self.client, self.machine, port=1, spin=False, trace=None, linger=0.5)
            await self.link.give_way()
            self.link.gave_way_at -= seconds
            self.link.walk(self.votes)

        trio.run(run)
        return self.link.pausing  # type: ignore[no-any-return]

    async def _walk(self) -> StraightWay | None:
        """As a session does it: others have their turn first, where they had none for a while."""
        assert self.link.walk(self.votes) is None
        assert self.link.checkpoint_due
        await self.link.give_way()
        way = self.link.walk(self.votes)
        if self.link.pausing is not None:
            assert way is None
            way = await self.link.walk_on()
        return way  # type: ignore[no-any-return]

    def step(self, after: Callable[[Line], None] = lambda _: None) -> StepResult | StraightWay:
        """The same, and whatever must follow where the way was left, or where there is none."""

        def rest(way: StraightWay | None) -> Any:
            if way is None:
                return barrier.step(self.machine, self.votes)
            return barrier.go_on(self.machine, self.votes, way)

        if self.driver == "blocking":
            way = self.walk(after)
            if way is not None:
                return way
            return self.link.run(rest(self.link.left_way()))  # type: ignore[no-any-return]

        if self.driver in HALVES:
            return self._in_halves(rest, after)  # type: ignore[no-any-return]

        async def run() -> StepResult | StraightWay:
            self.link = TrioLink(self.client, self.machine, port=1, spin=True, trace=None, tally=self.tally)
            after(self)
            way = await self._walk()
            if way is not None:
                return way
            return await self.link.run(rest(self.link.left_way()))  # type: ignore[no-any-return]

        return trio.run(run)

    def said(self) -> list[type[Any]]:
        """What the server was told, in order."""
        self.server.setblocking(False)
        found = []
        while True:
            try:
                found.append(type(decode_request(self.server.recv(65_536))))
            except BlockingIOError:
                return found

    def say(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self.server.send(datagram)

    def close(self) -> None:
        self.server.close()
        self.client.close()


def outputs_of(found: StepResult | StraightWay) -> list[float]:
    """Of the only agent, however its step came to its end."""
    way = found.way if isinstance(found, barrier.StepResult) else found
    if way is not None:
        return way.outcome().outputs.tolist()  # type: ignore[no-any-return]
    assert isinstance(found, barrier.StepResult)
    return found.completions[1].outputs.tolist()  # type: ignore[no-any-return]


@pytest.fixture(params=["blocking", *HALVES, "trio"])
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    made = Line(DOCUMENT, driver=request.param)
    yield made
    made.close()


@pytest.mark.parametrize("end", [b"", b"x"])
def test_a_step_that_nothing_disturbs_takes_four_datagrams_and_no_exchange(line: Line, end: bytes) -> None:
    line.say(ACK + end, DONE + end)
    way = line.walk()
    assert way is not None
    assert way.outcome().outputs.tolist() == [0.5]
    assert line.said() == [NextSimulationStep, StepCompletedAck]
    assert not line.machine.vote_outstanding
    assert line.machine.clock.count == 1
    assert not line.machine.notices


@pytest.mark.parametrize("left", [False, True], ids=["walked to its end", "left once"])
def test_a_daemon_counts_what_went_a_straight_way(left: bool) -> None:
    line = Line(DOCUMENT, driver="trio")
    line.say(ACK, EVENTFUL if left else DONE)
    if left:
        line.step()
    else:
        line.walk()
    assert by_name(line.tally.sent) == {"NEXT_SIMULATION_STEP": 1, "NEXT_SIMULATION_STEP_COMPLETED_ACK": 1}
    assert by_name(line.tally.received) == {
        "NEXT_SIMULATION_STEP_ACK": 1,
        "NEXT_SIMULATION_STEP_COMPLETED": 1,
    }
    line.close()


@pytest.mark.parametrize(
    "datagrams, told",
    [
        ((b"", ACK, DONE), Anomaly),
        ((b"\xff\xff", ACK, DONE), Anomaly),
        ((OTHERS, ACK, DONE), Anomaly),
        ((RESET, ACK, DONE), WorldReset),
        ((ACK, b"", DONE), Anomaly),
        ((ACK, ACK, DONE), Anomaly),
        ((ACK, RESET, DONE), WorldReset),
        ((ACK, ValueContent(9, "late").encode(), DONE), Anomaly),
    ],
)
def test_whatever_else_comes_is_dealt_with_and_the_step_goes_on(
    line: Line, datagrams: tuple[bytes, ...], told: type[Any]
) -> None:
    line.say(*datagrams, *[ValueContent(5, "0.01").encode()] * 2)
    found = line.step()
    assert isinstance(found, barrier.StepResult)
    assert outputs_of(found) == [0.5]
    assert any(isinstance(notice, told) for notice in line.machine.notices)
    assert not line.machine.vote_outstanding


def test_a_completion_with_an_event_is_told(line: Line) -> None:
    line.say(ACK, EVENTFUL)
    found = line.step()
    assert isinstance(found, barrier.StepResult)
    assert tuple(found.completions[1].events) == (7,)
    assert not line.machine.guarded


def test_a_completion_that_comes_before_its_acknowledgement_is_not_believed(line: Line) -> None:
    line.say(DONE, ACK, brought(0.75).encode(), *[ValueContent(5, "0.01").encode()] * 2)
    found = line.step()
    assert isinstance(found, barrier.StepResult)
    assert outputs_of(found) == [0.75]


@pytest.mark.parametrize("came", [(), (ACK,)])
def test_silence_is_bounded(line: Line, came: tuple[bytes, ...]) -> None:
    line.machine.limits = BRIEF
    line.say(*came)
    with pytest.raises((SessionLost, StepUncertain)):
        line.step()


@pytest.mark.parametrize("came", [(), (ACK,)])
def test_silence_is_slept_through_once(came: tuple[bytes, ...]) -> None:
    class Counting:
        def __init__(self, patient: socket.socket) -> None:
            self._patient = patient
            self.sleeps = 0
            """In vain: on a single core, what has come is received here too."""

        def recv(self, size: int) -> bytes:
            try:
                return self._patient.recv(size)
            except TimeoutError:
                self.sleeps += 1
                raise

    counting = None

    def count(line: Line) -> None:
        nonlocal counting
        counting = line.link._patient = Counting(line.link._patient)

    line = Line(DOCUMENT, driver="blocking")
    line.machine.limits = BRIEF
    line.say(*came)
    with pytest.raises((SessionLost, StepUncertain)):
        line.step(count)
    assert counting is not None
    assert counting.sleeps == 1
    line.close()


@pytest.mark.parametrize("came", [(), (ACK,), (ACK, DONE)])
def test_a_port_that_closes_ends_the_session(line: Line, came: tuple[bytes, ...]) -> None:
    line.say(*came)
    line.server.close()
    line.client.send(b"x")
    with pytest.raises(SessionLost, match="refused"):
        line.step()
    assert line.link.gone


def test_a_step_that_is_interrupted_is_in_doubt(line: Line) -> None:
    class Interrupting:
        def __init__(self, sock: socket.socket) -> None:
            self._socket = sock

        def recv(self, *_: int) -> bytes:
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(self._socket, name)

    def interrupting(line: Line) -> None:
        line.link._socket = Interrupting(line.client)
        if line.driver == "blocking":
            # By which it receives on a single core.
            line.link._patient = Interrupting(line.link._patient)

    line.say(ACK)
    with pytest.raises(KeyboardInterrupt):
        line.walk(interrupting)
    line.say(DONE)
    with pytest.raises(StepUncertain, match="may be outstanding"):
        line.step()


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links look at what came while they rested, as they do outside of these tests."""
    for module in (link, trio_link):
        monkeypatch.setattr(module, "IDLE", IDLE)
        monkeypatch.setattr(module, "BRISK", 0.0)


@pytest.mark.usefixtures("resting")
def test_what_came_at_rest_is_looked_at_before_the_next_step(line: Line) -> None:
    assert line.walk(lambda line: line.say(RESET)) is None
    assert [type(notice) for notice in line.machine.notices] == [WorldReset]


@pytest.mark.usefixtures("resting")
def test_the_answers_of_a_step_that_a_copy_of_a_vote_ran_are_not_those_of_the_next(line: Line) -> None:
    assert line.walk(lambda line: line.say(ACK, DONE)) is None
    assert Anomaly in [type(notice) for notice in line.machine.notices]


def test_steps_in_quick_succession_look_now_and_then() -> None:
    """What a copy of a vote brought stays there, ahead of what each step awaits, until one looks."""
    line = Line(DOCUMENT, driver="blocking")
    mine = Link(line.client, line.machine, port=1, spin=True, trace=None)
    line.say(ACK, DONE)
    steps = 0
    while (way := mine.walk(line.votes)) is not None and steps < 100:
        steps += 1
        line.say(ACK, DONE)
    line.close()
    assert way is None
    assert steps == SELDOM
    assert Anomaly in [type(notice) for notice in line.machine.notices]


@pytest.mark.usefixtures("resting")
def test_what_is_there_when_a_way_was_left_is_still_of_that_step(line: Line) -> None:
    def serve() -> None:
        line.server.recv(65_536)
        line.say(OTHERS, ACK, DONE, CLOCK, CLOCK)

    server = threading.Thread(target=serve)
    server.start()
    try:
        found = line.step()
    finally:
        server.join(5)
    assert outputs_of(found) == [0.5]


def _guarded(machine: ClientMachine) -> None:
    machine.anomaly("something")


def _in_doubt(machine: ClientMachine) -> None:
    machine.vote_outstanding = True


def _unmeasured(machine: ClientMachine) -> None:
    machine.clock.start(0.0)


def _half_reset(machine: ClientMachine) -> None:
    machine.resets_outstanding = 1


def _suspicious(machine: ClientMachine) -> None:
    machine.suspect = "something"


def _lost(machine: ClientMachine) -> None:
    machine.lost = SessionLost("gone")


@pytest.mark.parametrize("spoil", [_guarded, _in_doubt, _unmeasured, _half_reset, _suspicious, _lost])
def test_no_step_goes_straight_where_anything_speaks_against_it(
    line: Line, spoil: Callable[[ClientMachine], None]
) -> None:
    spoil(line.machine)
    assert line.walk() is None
    assert line.said() == []


def test_a_server_without_a_clock_is_believed(line: Line) -> None:
    line.machine.clock.value_id = None
    line.machine.clock.forget()
    line.say(ACK, DONE)
    way = line.walk()
    assert way is not None


@pytest.mark.parametrize("slow", ["acknowledgement", "completion"])
def test_a_simulator_that_takes_its_time_is_waited_for(line: Line, slow: str) -> None:
    def serve() -> None:
        line.server.recv(65_536)
        if slow == "acknowledgement":
            time.sleep(1.5 * LONG)
        line.say(ACK)
        if slow == "completion":
            time.sleep(1.5 * LONG)
        line.say(DONE)

    server = threading.Thread(target=serve)
    server.start()
    found = line.step()
    server.join(5)
    assert outputs_of(found) == [0.5]
    assert not line.machine.notices
    assert line.said() == [StepCompletedAck]


@pytest.mark.parametrize("thinks", [0.002, 1.5 * LONG])
@pytest.mark.parametrize("driver", ["blocking", *HALVES, "trio"])
def test_a_simulator_that_thinks_is_waited_for_on_the_straight_way(driver: str, thinks: float) -> None:
    line = Line(DOCUMENT, driver=driver)
    with served(line, [(0.0, ACK), (thinks, DONE)]):
        way = line.walk()
    assert way is not None
    assert way.outcomes()["agent"].outputs.tolist() == [0.5]
    assert line.said() == [StepCompletedAck]
    if driver == "trio":
        assert (sum(line.tally.sent), sum(line.tally.received)) == (2, 2)
    line.close()


def test_who_waits_on_the_straight_way_leaves_it_for_anything_else() -> None:
    line = Line(DOCUMENT, driver="trio")
    with served(line, [(0.0, ACK), (0.002, ACK)]):
        assert line.walk() is None
    way = line.link.left_way()
    assert way is not None
    assert way.came == [ACK]
    assert (sum(line.tally.sent), sum(line.tally.received)) == (1, 1)
    line.close()


def test_other_tasks_have_their_turn_behind_the_acknowledgement_while_the_simulator_thinks() -> None:
    line = Line(DOCUMENT, driver="trio")
    with served(line, [(0.02, ACK)]):
        pausing = line.walk_late(0.002)
    assert pausing is not None
    assert pausing.came == [ACK]
    line.close()


def test_who_waits_in_vain_on_the_straight_way_leaves_it() -> None:
    line = Line(DOCUMENT, driver="trio")
    began = time.monotonic()
    assert line.walk() is None
    assert time.monotonic() - began >= DOCUMENT.patience
    assert line.link.left_way() is not None
    assert line.said() == [NextSimulationStep]
    line.close()


def test_a_step_that_is_cancelled_while_it_waits_is_in_doubt() -> None:
    line = Line(DOCUMENT, driver="trio")

    async def cancelled() -> None:
        line.link = TrioLink(line.client, line.machine, port=1, spin=True, trace=None, tally=line.tally)
        await line.link.give_way()
        assert line.link.walk(line.votes) is None
        with trio.move_on_after(0.01) as scope:
            await line.link.walk_on()
        assert scope.cancelled_caught

    trio.run(cancelled)
    line.say(ACK, DONE)
    with pytest.raises(StepUncertain, match="may be outstanding"):
        line.step()
    line.close()


@contextmanager
def served(line: Line, answers: list[tuple[float, bytes]]) -> Iterator[None]:
    """One step, whose datagrams come after so many seconds each."""

    def serve() -> None:
        line.server.recv(65_536)
        for seconds, datagram in answers:
            time.sleep(seconds)
            line.say(datagram)

    server = threading.Thread(target=serve)
    server.start()
    yield
    server.join(5)


@BOTH
@pytest.mark.parametrize("driver", ["blocking", *HALVES, "trio"])
def test_votes_of_several_agents_go_out_as_the_profile_has_it(profile: Profile, driver: str) -> None:
    line = Line(profile, driver=driver)
    line.votes = (line.vote, _second(line.machine, profile))
    done = StepCompleted(2, np.array([0.25], np.float32), np.empty(0, np.float32), (), 0).encode()
    line.say(ACK, OTHERS, DONE, done)
    way = line.walk()
    assert way is not None
    assert {name: outcome.outputs.tolist() for name, outcome in way.outcomes().items()} == {
        "agent": [0.5],
        "second": [0.25],
    }
    assert line.said() == [NextSimulationStep] * 2 + [StepCompletedAck] * 2
    line.close()


def _second(machine: ClientMachine, profile: Profile) -> Vote:
    from dataclasses import replace

    from ospbridge.osp.step.votes import Vote

    agent = replace(machine.controlled[1], id=2, name="second")
    machine.controlled[2] = agent
    return Vote(agent, profile)


def test_a_way_that_an_exchange_has_left_is_none_of_the_next_step() -> None:
    line = Line(DOCUMENT, driver="blocking")
    link = Link(line.client, line.machine, port=1, spin=True, trace=None)
    line.say(ACK, EVENTFUL)
    found = link.run(barrier.step(line.machine, line.votes))
    assert tuple(found.completions[1].events) == (7,)
    assert link.left_way() is None
    line.close()
