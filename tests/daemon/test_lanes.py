"""Steps through memory that the daemon shares with environments of its own host, and what goes through the socket."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trio

from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.errors import HubLost
from ospbridge.hub.decoding import VERSION
from ospbridge.hub.replies import Feedbacks, LaneOpened
from ospbridge.hub.requests import Attach, Hello, OpenLane, Reset
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session import hub_exchange
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.lane import FILES, MOST, ClientLane, possible
from ospbridge.transport.patient import LocalStream
from tests.daemon.hubs import WITHIN, Line, at_once, in_thread, play, seat, serving, values

if TYPE_CHECKING:
    from ospbridge.session.hub_seat import HubSeat

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.trio,
    pytest.mark.skipif(not possible(), reason="no memory is shared on this system"),
]


async def both_playing(path: Path) -> tuple[HubSeat, HubSeat]:
    """Of a hub that waits for two."""
    one, other = [await in_thread(seat, path, name) for name in ("agent1", "agent2")]
    await at_once(partial(one.reset, 5), partial(other.reset, 5))
    return one, other


class LaneLine(Line):
    """A client that plays, and shares memory in which it may say what it likes."""

    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(path)
        self.ask(Hello(VERSION, "line"))
        self.ask(Attach([agent]))
        self.say(OpenLane())
        count, files = LocalStream(self._socket).receive_files(self._incoming.space(), WITHIN, FILES)
        self._socket.settimeout(WITHIN)
        self._incoming.received(count)
        assert isinstance(self.hear(), LaneOpened)
        self.lane = ClientLane(files, self._socket.fileno())
        assert isinstance(self.ask(Reset([], 5)), Feedbacks)

    def close(self) -> None:
        self.lane.close()
        super().close()


@pytest.fixture
def by_socket(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Grows with every request of a ``HubClient`` that went through its socket."""
    sent: list[bool] = []
    send = LocalStream.send

    def noted(self: LocalStream, data: bytes | bytearray | memoryview) -> int:
        sent.append(True)
        return send(self, data)

    monkeypatch.setattr(LocalStream, "send", noted)
    return sent


async def test_steps_go_through_shared_memory_and_nothing_else_does(
    document: UdpSimulator, tmp_path: Path, spin: bool, by_socket: list[bool]
) -> None:
    path = tmp_path / "hub"
    sent: list[int] = []
    async with serving(document, path, spin=spin) as conductor:
        await in_thread(play, path, "agent1", 50, lambda _: sent.append(len(by_socket)))
        assert conductor.steps == 51
    # Hello, attach, the lane, a reset.
    assert set(sent) == {4}


@pytest.mark.parametrize("who", ["the daemon", "the environment"])
async def test_where_memory_cannot_be_shared_steps_go_through_the_socket(
    document: UdpSimulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_socket: list[bool],
    who: str,
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(
        *((hub_watch, "DaemonLane") if who == "the daemon" else (hub_exchange, "ClientLane")), refused
    )
    path = tmp_path / "hub"
    async with serving(document, path):
        await in_thread(play, path, "agent1", 20)
    assert len(by_socket) > 20


@pytest.mark.parametrize("what", ["a step", "its answer", "both"])
async def test_what_is_too_long_goes_through_the_socket(
    tmp_path: Path, spin: bool, by_socket: list[bool], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A step has 4 * 300 bytes and more, its answer 4 * 600, or the other way round."""
    path = tmp_path / "hub"
    inputs, outputs = (600, 300) if what == "a step" else (300, 600)
    with UdpSimulator(SyntheticWorld(inputs, outputs, agents=1), port=0, profile=DOCUMENT) as simulator:
        async with serving(simulator, path, spin=spin):
            mine = await in_thread(seat, path, "agent")
            await in_thread(mine.reset, 5)
            monkeypatch.setattr("ospbridge.transport.lane.MOST", 100 if what == "both" else 1800)
            before = len(by_socket)
            for number in range(1, 21):
                feedback = await in_thread(mine.step, values(number / 64, inputs))
                np.testing.assert_array_equal(
                    feedback.observation, expected(values(number / 64, inputs), number + 1, outputs, 5)
                )
            assert len(by_socket) - before == (0 if what == "its answer" else 20)
            await in_thread(mine.close)


async def test_who_hears_nothing_at_shared_memory_gives_up_in_time(
    document: UdpSimulator, tmp_path: Path
) -> None:
    path = tmp_path / "hub"
    async with serving(document, path, quorum=2):
        one, other = await both_playing(path)
        one._step_limit = 0.2
        with pytest.raises(HubLost, match=r"no reply within 0\.2 s"):
            await in_thread(one.step, values(0.5))
        await in_thread(other.close)


async def test_what_is_no_request_dismisses_the_client(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub"
    for wrong in (b"\x03\0\0\0bad", (MOST + 1).to_bytes(4, "little"), b"\0\0\0\0"):
        async with serving(document, path, spin=spin) as conductor:
            line = await in_thread(LaneLine, path, "agent1")
            assert line.lane.post(bytearray(wrong))
            with trio.fail_after(WITHIN):
                while conductor.lockstep.playing:
                    await trio.sleep(0.01)
            line.close()
