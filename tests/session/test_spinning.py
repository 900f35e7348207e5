"""How often a receive is tried in vain: much where the simulator answers at once, hardly where it thinks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import trio

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.spinning import AGAIN_AFTER, NEAR_MISS, Spinning
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

THINK = 0.002
ADAPTING = 20
"""Steps after which the number of tries has come down."""
STEPS = 30
ROUNDS = 5
"""Of so many steps: on a busy machine who steps may itself be so late that it seems to pay."""


class Counting:
    """A socket whose receives in vain are counted."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.in_vain = 0

    def recv(self, *arguments: int) -> bytes:
        try:
            data: bytes = self._sock.recv(*arguments)
        except BlockingIOError:
            self.in_vain += 1
            raise
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="nobody spins on a single core")


@pytest.mark.loopback
@needs_two_cores
@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_a_blocking_session_hardly_tries_beside_a_simulator_that_thinks(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, think=THINK), port=0, profile=profile) as simulator,
        BlockingSession.connect(str(simulator.address)) as session,
    ):
        (agent,) = session.register("agent")
        session.reset(1)
        link: Any = session.link
        link._socket = counting = Counting(link._socket)
        for _ in range(ADAPTING):
            session.step({agent.name: np.zeros(2, np.float32)})
        rounds = []
        for _ in range(ROUNDS):
            before = counting.in_vain
            for _ in range(STEPS):
                session.step({agent.name: np.zeros(2, np.float32)})
            rounds.append(counting.in_vain - before)
    assert 0 < min(rounds) <= 4 * STEPS, rounds


@pytest.mark.loopback
@pytest.mark.trio
@needs_two_cores
@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
async def test_a_session_of_a_daemon_hardly_tries_beside_a_simulator_that_thinks(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, think=THINK), port=0, profile=profile) as simulator:
        with trio.fail_after(60):
            async with await TrioSession.connect(str(simulator.address)) as session:
                (agent,) = await session.register("agent")
                await session.reset(1)
                link: Any = session.link
                link._socket = counting = Counting(link._socket)
                for _ in range(ADAPTING):
                    await session.step({agent.name: np.zeros(2, np.float32)})
                rounds = []
                for _ in range(ROUNDS):
                    before = counting.in_vain
                    for _ in range(STEPS):
                        await session.step({agent.name: np.zeros(2, np.float32)})
                    rounds.append(counting.in_vain - before)
    assert 0 < min(rounds) <= 4 * STEPS, rounds


@pytest.mark.loopback
@pytest.mark.trio
@pytest.mark.parametrize("think", [0.0, 0.001, 0.004])
async def test_other_tasks_have_their_turn_beside_one_that_steps_and_lingers(think: float) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    with UdpSimulator(SyntheticWorld(2, 3, think=think), port=0, profile=DOCUMENT) as simulator:
        async with trio.open_nursery() as nursery:
            async with await TrioSession.connect(str(simulator.address), linger=0.002) as session:
                (agent,) = await session.register("agent")
                await session.reset(1)
                nursery.start_soon(other)
                await trio.lowlevel.checkpoint()
                turns, began, steps = 0, trio.current_time(), 0
                while trio.current_time() < began + 0.3:
                    outcome = (await session.step({agent.name: np.zeros(2, np.float32)}))[agent.name]
                    steps += 1
                    assert not outcome.restored
                # Once every 4 ms while steps follow each other, and in each step that is waited for.
                assert turns >= (steps / 2 if think else 10), (turns, steps)
            nursery.cancel_scope.cancel()


def test_sleeping_in_vain_halves_the_tries_and_a_near_miss_doubles_them() -> None:
    spinning = Spinning(200, cores=1)
    for _ in range(10):
        spinning.in_vain(10 * NEAR_MISS)
    assert spinning.tries == 0
    spinning.in_vain(NEAR_MISS / 2)
    assert spinning.tries == 1
    spinning.paid()
    assert spinning.tries == 3


def test_who_has_given_up_spinning_tries_again_after_a_while() -> None:
    spinning = Spinning(4, cores=1)
    for _ in range(3):
        spinning.in_vain()
    assert spinning.tries == 0
    for _ in range(AGAIN_AFTER):
        assert spinning.tries == 0
        spinning.in_vain()
    assert spinning.tries == 4


def test_whoever_may_not_spin_never_does() -> None:
    for spinning in (Spinning(200, enabled=False), Spinning(200, cores=10_000)):
        for _ in range(2 * AGAIN_AFTER):
            spinning.in_vain(NEAR_MISS / 2)
            spinning.paid()
        assert spinning.tries == 0
