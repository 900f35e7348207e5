"""A step's fast path on real sockets: drivers follow it by themselves, and leave it at whatever does not belong."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from ospbridge.errors import BarrierStuck, OspBridgeError, SessionLost, StepUncertain
from ospbridge.interface import AgentInterface, Endpoint, InterfaceValue, ValueEntry
from ospbridge.observe.tally import Tally, by_name
from ospbridge.osp.codes import Code
from ospbridge.osp.fast_path import StepRequest
from ospbridge.osp.messages import (
    GetValue,
    NextSimulationStep,
    NextSimulationStepAck,
    StepCompleted,
    StepCompletedAck,
    ValueContent,
    decode_request,
)
from ospbridge.osp.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.channel import Channel
from ospbridge.session.connect import Connection
from ospbridge.session.fleet import SessionFleet
from ospbridge.session.lease import SessionLease
from ospbridge.session.trio_session import TrioSession
from tests.osp.stage import brought, on_stage
from tests.session.servers import Instead
from tests.ticking import ticking

pytestmark = pytest.mark.loopback
ACK = NextSimulationStepAck(1).encode()
DONE = brought(0.5).encode()
RESET = bytes((Code.RESET_SIMULATION_COMPLETED_ACK,))
OTHERS = NextSimulationStepAck(2).encode()
CLOCK = ValueContent(5, "0.01").encode()
BRIEF = Limits(query=0.1, step=0.1)
"""For steps that wait in vain."""
DRIVERS = ("blocking", "fleet", "trio")


class Line:
    """A session in the midst of an episode, and the server's end of its socket."""

    def __init__(self, driver: str, directory: Path, *, agents: int = 1) -> None:
        self.driver = driver
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind(("127.0.0.1", 0))
        self.server.settimeout(5)
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.client.bind(("127.0.0.1", 0))
        self.client.setblocking(False)
        self.client.connect(self.server.getsockname())
        self.address = Endpoint(*self.server.getsockname())
        self.server.connect(self.client.getsockname())
        self.tally = Tally()
        self.machine, request = on_stage(DOCUMENT)
        self.requests = [request]
        for number in range(2, agents + 1):
            place = (InterfaceValue("/in", -1, 1),), (InterfaceValue("/out", -1, 1),), ()
            agent = self.machine.controlled[number] = AgentInterface(number, f"agent{number}", *place)
            self.requests.append(StepRequest(agent, DOCUMENT))
        self._directory = directory
        self._answering: list[threading.Thread] = []
        self.heard: list[type[Any]] = []
        self.sessions: list[Any] = []

    def session(self) -> Any:
        address = self.address
        lease = SessionLease(self.client, address, self._directory)
        lease.hold(address, DOCUMENT, owed=0)
        channel = Channel(self.client, self.machine, port=address.port, tally=self.tally)
        connection = Connection(channel, address, address, lease)
        made = (TrioSession if self.driver == "trio" else BlockingSession)(connection, spin=True)
        made.core.requests = {request.name: request for request in self.requests}
        made.core.filled = tuple(self.requests)
        self.sessions.append(made)
        return made

    def step(self, prepare: Callable[[Any], None] = lambda _: None) -> dict[str, list[float]]:
        """A step of that session; the outputs of each agent."""
        actions = {request.name: [0.25] for request in self.requests}

        async def in_trio() -> Any:
            session = self.session()
            prepare(session)
            return await session.step(actions)

        if self.driver == "trio":
            found = trio.run(in_trio)
        else:
            session = self.session()
            prepare(session)
            if self.driver == "blocking":
                found = session.step(actions)
            else:
                session.core.fill(actions)
                (found,) = SessionFleet().run([(session, None)])
                if isinstance(found, Exception):
                    raise found
        for answering in self._answering:
            answering.join(5)
        return {name: outcome.outputs.tolist() for name, outcome in found.items()}

    def answers(self, *datagrams: bytes) -> None:
        """What the server says behind the first request."""

        def answer() -> None:
            while NextSimulationStep not in self.heard:
                self.heard.append(type(decode_request(self.server.recv(65_536))))
            self.say(*datagrams)

        self._answering.append(threading.Thread(target=answer))
        self._answering[-1].start()

    def said(self) -> list[type[Any]]:
        """What the server was told, in order."""
        self.server.setblocking(False)
        found = list(self.heard)
        while True:
            try:
                found.append(type(decode_request(self.server.recv(65_536))))
            except BlockingIOError:
                return found

    def say(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self.server.send(datagram)

    def close(self) -> None:
        for answering in self._answering:
            answering.join(5)
        self.server.close()
        for session in self.sessions:
            # As in a forked child: nobody is there to be told goodbye.
            session.closed = True
            session.core.lease.close()


@pytest.fixture(params=DRIVERS)
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    made = Line(request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("end", [b"", b"x"])
def test_a_step_that_nothing_disturbs_takes_four_datagrams_and_no_exchange(line: Line, end: bytes) -> None:
    line.answers(ACK + end, DONE + end)
    assert line.step() == {"agent1": [0.5]}
    assert line.said() == [NextSimulationStep, StepCompletedAck]
    assert not line.machine.episode.request_outstanding
    assert line.machine.clock.count == 2
    assert not line.machine.notices


def completion(
    *, agent_id: int = 1, outputs: int = 1, observed: int = 0, events: tuple[int, ...] = ()
) -> bytes:
    numbers = np.full(outputs, 0.5, np.float32)
    return StepCompleted(agent_id, numbers, numbers[:0], events, observed).encode()


EVENTFUL = completion(events=(7,))
UNEXPECTED = [
    *(((), data) for data in (b"", OTHERS, ACK[:-1], ACK + b"y", ACK + b"xx", DONE)),
    *(((ACK,), data) for data in (b"", ACK, DONE[:-1], DONE + b"y", DONE + b"xx", EVENTFUL)),
    *(((ACK,), completion(outputs=count)) for count in (0, 2)),
    ((ACK,), completion(agent_id=2)),
    ((ACK,), completion(observed=1)),
]


@pytest.mark.parametrize("line", ["blocking"], indirect=True)
@pytest.mark.parametrize("before, data", UNEXPECTED)
def test_anything_but_what_comes_next_leaves_the_fast_path(
    line: Line, before: tuple[bytes, ...], data: bytes
) -> None:
    session = line.session()
    session.core.fill({"agent1": [0.25]})
    session.begin_step(0.0)
    path = session.core.path
    line.say(*before, data)
    assert not session.run_fast_path(path, None)
    assert session.ended or not line.machine.finished
    assert path.came == list(before)
    assert line.machine.episode.request_outstanding


def test_variables_are_asked_for_behind_a_step_that_took_its_fast_path(line: Line) -> None:
    line.machine.values.entries["/x"] = ValueEntry(5, "/x", "Double")
    line.answers(ACK, DONE, CLOCK)
    assert line.step(lambda session: session.core.watched.update({"/x": None})) == {"agent1": [0.5]}
    assert line.said() == [NextSimulationStep, StepCompletedAck, GetValue]
    assert not line.machine.episode.request_outstanding


@pytest.mark.parametrize("left", [False, True], ids=["followed to its end", "left once"])
def test_a_daemon_counts_what_went_a_fast_path(left: bool, tmp_path: Path) -> None:
    line = Line("trio", tmp_path)
    line.answers(ACK, EVENTFUL if left else DONE)
    line.step()
    assert by_name(line.tally.sent) == {"NEXT_SIMULATION_STEP": 1, "NEXT_SIMULATION_STEP_COMPLETED_ACK": 1}
    assert by_name(line.tally.received) == {
        "NEXT_SIMULATION_STEP_ACK": 1,
        "NEXT_SIMULATION_STEP_COMPLETED": 1,
    }
    line.close()


@pytest.mark.parametrize(
    "datagrams",
    [
        (b"", ACK, DONE),
        (b"\xff\xff", ACK, DONE),
        (OTHERS, ACK, DONE),
        (ACK, b"", DONE),
        (ACK, ValueContent(9, "late").encode(), DONE),
    ],
)
def test_what_tells_nothing_of_the_step_is_dropped_and_the_step_goes_on(
    line: Line, datagrams: tuple[bytes, ...]
) -> None:
    line.answers(*datagrams, CLOCK, CLOCK)
    assert line.step() == {"agent1": [0.5]}
    assert not line.machine.episode.request_outstanding


def test_silence_is_bounded(line: Line) -> None:
    line.machine.limits = BRIEF
    line.answers(ACK)
    with pytest.raises((SessionLost, StepUncertain, BarrierStuck)):
        line.step()


def test_a_port_that_closes_ends_the_session(line: Line) -> None:
    line.server.close()
    with pytest.raises(SessionLost, match="refused"):
        line.step()
    assert line.sessions[0].channel.gone


class Interrupting(Instead):
    def recv(self, *_: int) -> bytes:
        raise KeyboardInterrupt


class Failing(Instead):
    """Does not send one of its datagrams."""

    def __init__(self, sock: socket.socket, which: int, error: OSError) -> None:
        super().__init__(sock)
        self._left = which
        self._error = error

    def send(self, data: Any, flags: int = 0) -> int:
        self._left -= 1
        if self._left == 0:
            raise self._error
        return self._socket.send(data, flags)


def failing(which: int, error: OSError) -> Callable[[Any], None]:
    def fail(session: Any) -> None:
        session.channel.sock = Failing(session.channel.sock, which, error)

    return fail


@pytest.mark.parametrize("line", ["blocking", "trio"], indirect=True)
def test_a_step_that_is_interrupted_is_in_doubt(line: Line) -> None:
    def interrupted(session: Any) -> None:
        session.channel.sock = Interrupting(session.channel.sock)

    line.answers(ACK, DONE)
    with pytest.raises(KeyboardInterrupt):
        line.step(interrupted)
    with pytest.raises(StepUncertain, match="may be outstanding"):
        line.step()


def test_what_came_at_rest_is_looked_at_before_the_next_step(line: Line) -> None:
    line.say(RESET)
    line.machine.limits = BRIEF
    with pytest.raises(OspBridgeError):
        line.step()
    assert WorldReset in [type(notice) for notice in line.machine.notices]


def test_the_answers_of_a_step_that_a_copy_of_a_request_ran_are_not_those_of_the_next(line: Line) -> None:
    line.say(ACK, DONE)
    with pytest.raises(StepUncertain, match="belongs to no step"):
        line.step()


@pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "full"),
        OSError(errno.EHOSTUNREACH, "no route"),
        PermissionError(errno.EPERM, "not permitted"),
    ],
    ids=["no room", "no route", "not permitted"],
)
@pytest.mark.parametrize("doubled", [False, True], ids=["", "and it comes twice"])
def test_a_completion_counts_although_its_acknowledgement_was_not_sent(
    line: Line, error: OSError, doubled: bool
) -> None:
    line.answers(ACK, DONE, *((DONE, CLOCK, CLOCK) if doubled else ()))
    assert line.step(failing(2, error)) == {"agent1": [0.5]}
    assert not line.machine.episode.request_outstanding


def test_a_step_whose_request_was_not_sent_is_not_believed(line: Line) -> None:
    line.machine.limits = BRIEF
    with pytest.raises(OspBridgeError):
        line.step(failing(1, BlockingIOError(errno.EAGAIN, "full")))


@pytest.mark.parametrize("line", ["blocking"], indirect=True)
def test_silence_is_bounded_however_often_signals_come(line: Line) -> None:
    line.machine.limits = BRIEF
    line.answers(ACK)
    with ticking(0.02, longest=10.0), pytest.raises(OspBridgeError):
        line.step()


@pytest.mark.parametrize("driver", DRIVERS)
def test_no_acknowledgement_is_held_back_from_a_server_that_waits_for_it(driver: str, tmp_path: Path) -> None:
    """Each completion follows the acknowledgement of the one before, as a reading of the document has it."""
    line = Line(driver, tmp_path, agents=3)
    heard: list[type[Any]] = []

    def serve() -> None:
        heard.extend(type(decode_request(line.server.recv(65_536))) for _ in line.requests)
        line.say(*(NextSimulationStepAck(number).encode() for number in (1, 2, 3)))
        for number in (1, 2, 3):
            outputs = np.array([number / 8], np.float32)
            line.say(StepCompleted(number, outputs, np.empty(0, np.float32), (), 0).encode())
            heard.append(type(decode_request(line.server.recv(65_536))))

    server = threading.Thread(target=serve)
    server.start()
    assert line.step() == {"agent1": [0.125], "agent2": [0.25], "agent3": [0.375]}
    server.join(5)
    assert heard == [NextSimulationStep] * 3 + [StepCompletedAck] * 3
    assert not line.machine.notices
    line.close()
