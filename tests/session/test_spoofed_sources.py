"""Datagrams of somebody else: before a session, within it, and at the simulator's side. Only the peer is heard."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from ospbridge.errors import SimulatorSilent
from ospbridge.interface import Endpoint
from ospbridge.osp.messages import End, EndAck, Init, InitAck, NextSimulationStepAck, ResetCommunicationAck
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport import udp
from tests.session.drivers import Driver

pytestmark = pytest.mark.loopback
ELSEWHERE = "127.0.0.2"
STEPS = 8


@pytest.fixture(params=["127.0.0.1", ELSEWHERE], ids=["another port", "another address"])
def stranger(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((request.param, 0))
        yield sock


def steps(session: BlockingSession) -> None:
    inputs = np.array([0.25, 0.5], np.float32)
    session.reset(7)
    for number in range(STEPS):
        outcome = session.step({"agent1": inputs})["agent1"]
        np.testing.assert_array_equal(outcome.outputs, expected(inputs, number + 1, 3, seed=7))
    assert session.audit() == ""


def test_a_connected_client_hears_nobody_but_its_handler(
    simulator: UdpSimulator, stranger: socket.socket
) -> None:
    with Driver().having(simulator, "agent1") as session:
        local = session.channel.sock.getsockname()[:2]
        for message in (ResetCommunicationAck(), EndAck(), NextSimulationStepAck(1)):
            stranger.sendto(message.encode(end=False), local)
        time.sleep(0.05)
        assert session.pop_notices() == []
        # It stays, and nothing of it is an answer: on a busy machine a question may be asked twice.
        steps(session)
        assert not session.over


def test_a_handler_hears_nobody_but_its_client(simulator: UdpSimulator, stranger: socket.socket) -> None:
    with Driver().having(simulator, "agent1") as session:
        handler = session.core.handler
        for _ in range(3):
            stranger.sendto(End().encode(end=True), (handler.host, handler.port))
        steps(session)
        assert simulator.machine.controlled == 1


def who_says_init(silent: socket.socket) -> tuple[str, int]:
    """Not who only looks whether the port is open."""
    while True:
        data, client = silent.recvfrom(100)
        if len(data) > 1:
            return str(client[0]), int(client[1])


def test_an_answer_to_init_from_another_host_is_not_taken_for_the_simulators() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        silent.bind(("127.0.0.1", 0))
        stranger.bind((ELSEWHERE, 0))

        def answer() -> None:
            client = who_says_init(silent)
            stranger.sendto(InitAck().encode(end=True), client)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(
            SimulatorSilent,
            match=f"a datagram from {ELSEWHERE}:.*: if that is the simulator, write its address",
        ):
            BlockingSession.connect(f"127.0.0.1:{silent.getsockname()[1]}", limits=Limits(connect=0.5))
        thread.join(10)


def test_a_flood_while_it_connects_does_not_keep_the_client_from_giving_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        over = threading.Event()

        def flood() -> None:
            client = who_says_init(silent)
            while not over.is_set():
                silent.sendto(b"\xff nonsense", client)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            with pytest.raises(SimulatorSilent):
                BlockingSession.connect(f"127.0.0.1:{silent.getsockname()[1]}", limits=Limits(connect=0.5))
        finally:
            over.set()
            thread.join(10)


def test_a_flood_of_inits_takes_no_agent_and_no_session(simulator: UdpSimulator) -> None:
    main = (simulator.address.host, simulator.address.port)
    with Driver().having(simulator, "agent1") as session:
        for _ in range(100):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                init = Init(form=session.profile.init_form)
                other.sendto(init.encode(end=session.profile.end_marker), main)
        steps(session)
        assert simulator.machine.controlled == 1


class Flooded(socket.socket):
    """Something of its peer is always there to read."""

    reads = 0

    def recvfrom(self, *_: object) -> tuple[bytes, tuple[str, int]]:
        self.reads += 1
        assert self.reads <= udp.MOST_EARLY, "unbounded"
        return EndAck().encode(), self.getpeername()


def test_a_handler_that_floods_before_its_session_begins_does_not_hold_it_up(stranger: socket.socket) -> None:
    with Flooded(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        early = udp.connect_to(sock, Endpoint(*stranger.getsockname()))
    assert len(early) == udp.MOST_EARLY
