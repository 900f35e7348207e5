"""Steps through memory that the daemon shares with environments of its own host, and what goes through the socket."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.daemon.hub import stream as hub_stream
from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.errors import HubLost, LocalProtocolError, OspBridgeError, SessionClosed
from ospbridge.hub.decoding import VERSION, decode_reply
from ospbridge.hub.replies import Feedbacks, LaneOpened, Numbers, Refusal
from ospbridge.hub.requests import Again, Attach, Hello, OpenLane, Reset, Status, Step
from ospbridge.hub.status import StatusReply
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session import hub_exchange
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.lane import FILES, MOST, ClientLane, possible
from ospbridge.transport.patient import LocalStream
from tests.daemon.hubs import WITHIN, Line, at_once, in_thread, play, seat, serving, values
from tests.daemon.processes import descriptors

if TYPE_CHECKING:
    from ospbridge.hub.replies import HubReply
    from ospbridge.hub.requests import HubRequest
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
    """A client that asks through shared memory what it likes."""

    lane: ClientLane

    @classmethod
    def sharing(cls, path: Path, *agents: str) -> LaneLine:
        line = cls(path)
        line.ask(Hello(VERSION, "line"))
        line.ask(Attach(list(agents)))
        line.open_lane()
        assert isinstance(line.ask(Reset([], 5)), Feedbacks)
        return line

    def open_lane(self) -> None:
        self.say(OpenLane())
        stream = LocalStream(self._socket)
        count, files = stream.receive_files(self._incoming.space(), WITHIN, FILES)
        self._socket.settimeout(WITHIN)
        self._incoming.received(count)
        assert isinstance(self.hear(), LaneOpened)
        self.lane = ClientLane(files, self._socket.fileno())

    def post(self, request: HubRequest) -> None:
        assert self.lane.post(bytearray(self.frame(request)))

    def answer(self) -> HubReply:
        for _ in range(1000):
            if (message := self.lane.answer()) is not None:
                return decode_reply(message)
            self.lane.wait(WITHIN / 1000)
        raise AssertionError("no answer in shared memory")

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


@pytest.mark.parametrize("whose", ["our own user", "another user"])
async def test_agents_in_lock_step_get_their_own_numbers_whether_they_share_memory_or_not(
    tmp_path: Path, spin: bool, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_watch, "MOST_LANES", 3)
    path = tmp_path / "hub"
    if whose == "another user":
        monkeypatch.setattr(hub_stream, "peer_user", lambda _: os.geteuid() + 1)
    with UdpSimulator(SyntheticWorld(2, 3, agents=5), port=0, profile=DOCUMENT) as simulator:
        async with serving(simulator, path, spin=spin, quorum=5) as conductor:
            await at_once(*(partial(play, path, f"agent{number}", 50) for number in range(1, 6)))
            assert conductor.steps == 51


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


async def test_a_notice_that_the_world_is_held_reaches_who_waits_at_shared_memory(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub"
    async with serving(document, path, spin=spin, quorum=2, limits=Limits(step=5.0)) as conductor:
        one, other = await both_playing(path)
        one._step_limit = 0.3
        told: list[Any] = []

        async def step() -> None:
            told.append(await in_thread(one.step, values(0.5)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(step)
            with trio.fail_after(5.0):
                while not conductor.barrier._left:
                    await trio.sleep(0.01)
            for playing in conductor.lockstep.playing:
                playing.driver.on_held(10.0, "for this test")
            await trio.sleep(0.6)
            assert not told
            await in_thread(other.step, values(0.5))
        assert not told[0].truncated
        for each in (one, other):
            await in_thread(each.close)


@pytest.mark.parametrize("how", ["close", "lose"])
async def test_a_client_that_is_closed_while_it_waits_at_shared_memory_says_so(
    document: UdpSimulator, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "hub"
    found: list[BaseException] = []
    async with serving(document, path, quorum=2) as conductor:
        one, other = await both_playing(path)

        def step() -> None:
            try:
                one.step(values(0.5))
            except OspBridgeError as error:
                found.append(error)

        with trio.fail_after(WITHIN):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_thread, step)
                while not conductor.barrier._left:
                    await trio.sleep(0.01)
                await in_thread(getattr(one._client, how))
        await in_thread(other.close)
    assert [type(error) for error in found] == [SessionClosed if how == "close" else HubLost]


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


async def test_requests_of_both_ways_are_answered_where_they_came_from(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub"
    async with serving(document, path, spin=spin):
        line = await in_thread(LaneLine.sharing, path, "agent1")
        for step in range(1, 20, 3):
            line.post(Step([("agent1", values(0.5).tobytes())]))
            assert isinstance(await in_thread(line.answer), Feedbacks)
            line.post(Again(values(0.25).tobytes()))
            told = await in_thread(line.answer)
            assert isinstance(told, Numbers)
            assert (
                np.frombuffer(told.observations, "<f4").tolist()
                == expected(values(0.25), step + 2, 3, 5).tolist()
            )
            assert isinstance(await in_thread(line.ask, Again(values(0.75).tobytes())), Numbers)
            line.post(Status())
            assert isinstance(await in_thread(line.answer), StatusReply)
            line.post(Again(b"odd"))
            told = await in_thread(line.answer)
            assert isinstance(told, Refusal)
            assert told.kind == LocalProtocolError.__name__
        line.close()


async def test_what_is_no_request_dismisses_the_client(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub"
    for wrong in (b"\x03\0\0\0bad", (MOST + 1).to_bytes(4, "little"), b"\0\0\0\0"):
        async with serving(document, path, spin=spin) as conductor:
            line = await in_thread(LaneLine.sharing, path, "agent1")
            assert line.lane.post(bytearray(wrong))
            with trio.fail_after(WITHIN):
                while conductor.lockstep.playing:
                    await trio.sleep(0.01)
            line.close()


async def test_nothing_is_left_of_clients_that_came_and_went(document: UdpSimulator, tmp_path: Path) -> None:
    path = tmp_path / "hub"
    async with serving(document, path):

        def visit() -> None:
            with closing(seat(path, "agent1")) as mine:
                mine.reset(5)
                mine.step(values(0.5))

        await in_thread(visit)
        await trio.sleep(0.05)
        before = descriptors()
        for _ in range(20):
            await in_thread(visit)
        with trio.fail_after(WITHIN):
            while descriptors() > before:
                await trio.sleep(0.01)
