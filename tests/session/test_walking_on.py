"""What follows a straight way in the same exchange, and ways on which sending fails, on real sockets."""

from __future__ import annotations

import errno
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import OspBridgeError
from ospbridge.osp.messages import NextSimulationStep, decode_request
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.step import barrier
from ospbridge.session import link, trio_link
from ospbridge.session.link import Link
from tests.osp.test_hostile_server import brought
from tests.session.test_walking import ACK, BRIEF, CLOCK, DONE, EVENTFUL, HALVES, Line, outputs_of
from tests.ticking import ticking

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from ospbridge.osp.client.machine import Exchange

pytestmark = pytest.mark.loopback
REFUSALS = pytest.mark.parametrize(
    "error",
    [
        BlockingIOError(errno.EAGAIN, "full"),
        OSError(errno.EHOSTUNREACH, "no route"),
        PermissionError(errno.EPERM, "not permitted"),
    ],
    ids=["no room", "no route", "not permitted"],
)


@pytest.fixture(autouse=True)
def _nobody_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (link, trio_link):
        monkeypatch.setattr(module, "IDLE", 60.0)
        monkeypatch.setattr(module, "BRISK", 60.0)


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


@pytest.fixture(params=["blocking", *HALVES, "trio"])
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    made = Line(DOCUMENT, driver=request.param)
    yield made
    made.close()


@pytest.fixture
def blocking() -> Iterator[Line]:
    made = Line(DOCUMENT, driver="blocking")
    yield made
    made.close()


def test_a_second_step_of_one_exchange_goes_out_at_once(blocking: Line) -> None:
    line = blocking
    mine = Link(line.client, line.machine, port=1, spin=True, trace=None)

    def two() -> Exchange[None]:
        yield from barrier.step(line.machine, line.votes)
        yield from barrier.step(line.machine, line.votes)

    def serve() -> None:
        steps = 0
        while steps < 2:
            if isinstance(decode_request(line.server.recv(65_536)), NextSimulationStep):
                steps += 1
                line.say(ACK, brought(steps / 4).encode())

    server = threading.Thread(target=serve)
    server.start()
    mine.run(two())
    server.join(5)
    assert not line.machine.notices


def test_what_is_said_to_what_led_off_the_way_goes_out_at_once(blocking: Line) -> None:
    line = blocking
    mine = Link(line.client, line.machine, port=1, spin=True, trace=None)
    line.say(ACK, EVENTFUL)
    mine.run(barrier.step(line.machine, line.votes))
    assert len(line.said()) == 2


@REFUSALS
@pytest.mark.parametrize("doubled", [False, True], ids=["", "and it comes twice"])
def test_a_completion_counts_although_its_acknowledgement_was_not_sent(
    line: Line, error: OSError, doubled: bool
) -> None:
    line.say(ACK, DONE, *((DONE, CLOCK, CLOCK) if doubled else ()))
    assert outputs_of(line.step(failing(2, error))) == [0.5]
    assert not line.machine.vote_outstanding


def test_what_an_earlier_step_brought_stays_as_it_was(line: Line) -> None:
    line.say(ACK, DONE)
    way = line.walk()
    assert way is not None
    mine = way.outcome().outputs
    line.machine.limits = BRIEF
    line.say(ACK, brought(0.75).encode(), CLOCK, CLOCK)
    with suppress(OspBridgeError):
        outputs_of(line.step(failing(1, BlockingIOError(errno.EAGAIN, "full"))))
    assert mine.tolist() == [0.5]


def test_a_step_whose_vote_was_not_sent_is_not_believed(line: Line) -> None:
    line.machine.limits = BRIEF
    line.say(ACK, DONE)
    with pytest.raises(OspBridgeError):
        line.step(failing(1, BlockingIOError(errno.EAGAIN, "full")))


def test_silence_is_bounded_however_often_signals_come(blocking: Line) -> None:
    blocking.machine.limits = BRIEF
    blocking.say(ACK)
    with ticking(0.02, longest=10.0), pytest.raises(OspBridgeError):
        blocking.step()
