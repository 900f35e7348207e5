"""The straight way of several agents' step: what goes out together, and what may not be held back for that."""

from __future__ import annotations

import socket
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.messages import (
    NextSimulationStep,
    NextSimulationStepAck,
    StepCompleted,
    StepCompletedAck,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.votes import Vote
from ospbridge.session import link, trio_link
from tests.session.test_walking import HALVES, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.osp.step.straight import StraightWay

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform != "linux", reason="UDP_SEGMENT is Linux's"),
]
AGENTS = (1, 2, 3)
ACKS = [NextSimulationStepAck(agent).encode() for agent in AGENTS]
DONE = [
    StepCompleted(agent, np.array([agent / 8], np.float32), np.empty(0, np.float32), (), 0).encode()
    for agent in AGENTS
]


@pytest.fixture(autouse=True)
def _nobody_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (link, trio_link):
        monkeypatch.setattr(module, "IDLE", 60.0)
        monkeypatch.setattr(module, "BRISK", 60.0)


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
def line(request: pytest.FixtureRequest) -> Iterator[Several]:
    made = Several(DOCUMENT, driver=request.param)
    yield made
    made.close()


def outputs(way: StraightWay | None) -> dict[str, list[float]]:
    assert way is not None
    return {name: outcome.outputs.tolist() for name, outcome in way.outcomes().items()}


BROUGHT = {"agent": [0.125], "agent2": [0.25], "agent3": [0.375]}


def test_votes_go_out_in_one_call_and_acknowledgements_of_what_is_there_in_another(line: Several) -> None:
    line.say(*ACKS, *DONE)
    assert outputs(line.walk()) == BROUGHT
    assert line.calls.together == [3, 3]
    assert line.calls.alone == 0
    assert line.said() == [NextSimulationStep] * 3 + [StepCompletedAck] * 3


def test_no_acknowledgement_is_held_back_from_a_server_that_waits_for_it(line: Several) -> None:
    """Each completion follows the acknowledgement of the one before, as a reading of the document has it."""
    heard: list[type[Any]] = []

    def serve() -> None:
        heard.extend(type(decode_request(line.server.recv(65_536))) for _ in AGENTS)
        line.say(*ACKS)
        for done in DONE:
            line.say(done)
            heard.append(type(decode_request(line.server.recv(65_536))))

    server = threading.Thread(target=serve)
    server.start()
    assert outputs(line.walk()) == BROUGHT
    server.join(5)
    assert heard == [NextSimulationStep] * 3 + [StepCompletedAck] * 3
    assert not line.machine.notices


def test_what_was_believed_is_acknowledged_before_the_way_is_left(line: Several) -> None:
    line.say(*ACKS, *DONE[:2], ACKS[0])
    assert line.walk() is None
    way = line.left_way()
    assert way is not None
    assert way.came == [*ACKS, *DONE[:2]]
    assert line.said() == [NextSimulationStep] * 3 + [StepCompletedAck] * 2


def test_silence_is_the_end_of_volleys(line: Several) -> None:
    line.machine.profile = replace(DOCUMENT, patience=0.02)
    line.say(*ACKS[:2])
    assert line.walk() is None
    assert line.calls.together == [3]
    assert not line.link._volleys.enabled


def test_a_world_that_takes_its_time_is_not_the_end_of_volleys(line: Several) -> None:
    line.machine.profile = replace(DOCUMENT, patience=0.02)
    line.say(*ACKS)
    assert line.walk() is None
    assert line.link._volleys.enabled


def test_an_acknowledgement_that_takes_its_time_is_not_either(
    line: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (link, trio_link):
        monkeypatch.setattr(module, "LONG", 0.0)
    line.say(*ACKS[:2])
    later = threading.Timer(0.05, line.say, [ACKS[2]])
    later.start()
    assert line.walk() is None
    later.join()
    assert line.link._volleys.enabled


def test_servers_that_take_one_vote_at_a_time_are_sent_nothing_together() -> None:
    line = Several(NERD, driver="blocking")
    line.say(*ACKS, *DONE)
    assert outputs(line.walk()) == BROUGHT
    assert line.calls.together == []
    assert line.calls.alone == 6
    line.close()
