"""A step's straight way on real sockets: links walk it by themselves, and leave it at whatever is not on it."""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.errors import BarrierStuck, OspBridgeError, SessionLost, StepUncertain
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.observe.tally import Tally, by_name
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
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.osp.step import barrier
from ospbridge.osp.step.votes import Vote
from ospbridge.osp.timing import Limits
from ospbridge.session import link, trio_link
from ospbridge.session.datagrams import IDLE
from ospbridge.session.link import Link
from ospbridge.session.trio_link import TrioLink
from tests.osp.stage import brought, on_stage
from tests.ticking import ticking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.osp.client.machine import Exchange
    from ospbridge.osp.step.barrier import StepResult
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.session.link import GoOn

pytestmark = pytest.mark.loopback
ACK = NextSimulationStepAck(1).encode()
DONE = brought(0.5).encode()
EVENTFUL = StepCompleted(1, np.array([0.5], np.float32), np.empty(0, np.float32), (7,), 0).encode()
RESET = bytes((Code.RESET_SIMULATION_COMPLETED_ACK,))
OTHERS = NextSimulationStepAck(2).encode()
CLOCK = ValueContent(5, "0.01").encode()
HALVES = ("in halves", "side by side")
"""Drivers that take a step in two calls."""
BRIEF = Limits(query=0.1, step=0.1)
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


def test_silence_is_bounded(line: Line) -> None:
    line.machine.limits = BRIEF
    line.say(ACK)
    with pytest.raises((SessionLost, StepUncertain, BarrierStuck)):
        line.step()


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


# --- datagrams that cannot be sent ----------------------------------------------------------------------------------


REFUSALS = pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "full"),
        OSError(errno.EHOSTUNREACH, "no route"),
        PermissionError(errno.EPERM, "not permitted"),
    ],
    ids=["no room", "no route", "not permitted"],
)


class Failing:
    """A socket that does not send one of its datagrams."""

    def __init__(self, sock: socket.socket, which: int, error: OSError) -> None:
        self._socket = sock
        self._left = which
        self._error = error

    def send(self, data: Any, flags: int = 0) -> int:
        self._left -= 1
        if self._left == 0:
            raise self._error
        return self._socket.send(data, flags)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def failing(which: int, error: OSError) -> Callable[[Line], None]:
    def fail(line: Line) -> None:
        line.link._socket = Failing(line.client, which, error)

    return fail


@REFUSALS
@pytest.mark.parametrize("doubled", [False, True], ids=["", "and it comes twice"])
def test_a_completion_counts_although_its_acknowledgement_was_not_sent(
    line: Line, error: OSError, doubled: bool
) -> None:
    line.say(ACK, DONE, *((DONE, CLOCK, CLOCK) if doubled else ()))
    assert outputs_of(line.step(failing(2, error))) == [0.5]
    assert not line.machine.vote_outstanding


def test_a_step_whose_vote_was_not_sent_is_not_believed(line: Line) -> None:
    line.machine.limits = BRIEF
    line.say(ACK, DONE)
    with pytest.raises(OspBridgeError):
        line.step(failing(1, BlockingIOError(errno.EAGAIN, "full")))


@pytest.mark.parametrize("line", ["blocking"], indirect=True)
def test_silence_is_bounded_however_often_signals_come(line: Line) -> None:
    line.machine.limits = BRIEF
    line.say(ACK)
    with ticking(0.02, longest=10.0), pytest.raises(OspBridgeError):
        line.step()


# --- several agents -------------------------------------------------------------------------------------------------


AGENTS = (1, 2, 3)
ACKS = [NextSimulationStepAck(agent).encode() for agent in AGENTS]
ALL_DONE = [
    StepCompleted(agent, np.array([agent / 8], np.float32), np.empty(0, np.float32), (), 0).encode()
    for agent in AGENTS
]


class Counting:
    """A socket that counts what is sent together and alone."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.together: list[int] = []
        self.alone = 0

    def send(self, data: Any, flags: int = 0) -> int:
        self.alone += 1
        return self._socket.send(data, flags)

    def sendmsg(self, buffers: Any, *rest: Any) -> int:
        self.together.append(len(buffers))
        return self._socket.sendmsg(buffers, *rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class Several(Line):
    """A line whose session controls three agents."""

    def __init__(self, profile: Profile, *, driver: str) -> None:
        super().__init__(profile, driver=driver)
        votes = [self.vote]
        for number in AGENTS[1:]:
            agent = AgentInterface(
                number,
                f"agent{number}",
                (InterfaceValue("/in", -1, 1),),
                (InterfaceValue("/out", -1, 1),),
                (),
            )
            self.machine.controlled[number] = agent
            votes.append(Vote(agent, profile))
        self.votes = tuple(votes)
        self.calls: Any = None

    def walk(self, after: Callable[[Line], None] = lambda _: None) -> StraightWay | None:
        def count(line: Line) -> None:
            self.calls = line.link._socket = Counting(line.client)
            after(line)

        return super().walk(count)


@pytest.fixture(params=["blocking", *HALVES, "trio"])
def several(request: pytest.FixtureRequest) -> Iterator[Several]:
    made = Several(DOCUMENT, driver=request.param)
    yield made
    made.close()


def outputs(way: StraightWay | None) -> dict[str, list[float]]:
    assert way is not None
    return {name: outcome.outputs.tolist() for name, outcome in way.outcomes().items()}


BROUGHT = {"agent": [0.125], "agent2": [0.25], "agent3": [0.375]}


def test_votes_go_out_in_one_call_and_acknowledgements_of_what_is_there_in_another(several: Several) -> None:
    several.say(*ACKS, *ALL_DONE)
    assert outputs(several.walk()) == BROUGHT
    assert several.calls.together == [3, 3]
    assert several.calls.alone == 0
    assert several.said() == [NextSimulationStep] * 3 + [StepCompletedAck] * 3


def test_no_acknowledgement_is_held_back_from_a_server_that_waits_for_it(several: Several) -> None:
    """Each completion follows the acknowledgement of the one before, as a reading of the document has it."""
    heard: list[type[Any]] = []

    def serve() -> None:
        heard.extend(type(decode_request(several.server.recv(65_536))) for _ in AGENTS)
        several.say(*ACKS)
        for done in ALL_DONE:
            several.say(done)
            heard.append(type(decode_request(several.server.recv(65_536))))

    server = threading.Thread(target=serve)
    server.start()
    assert outputs(several.walk()) == BROUGHT
    server.join(5)
    assert heard == [NextSimulationStep] * 3 + [StepCompletedAck] * 3
    assert not several.machine.notices
