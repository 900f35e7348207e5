"""The trio session against the real simulator over loopback."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest
import trio

from ospbridge.errors import SessionClosed, SessionLost, SimulatorNotFound, SimulatorSilent, StepUncertain
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback
BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)


@BOTH
@pytest.mark.trio
async def test_a_whole_session_steps_and_leaves(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=profile) as simulator:
        async with await TrioSession.connect(str(simulator.address)) as session:
            assert session.profile is profile
            names = await session.matching(())
            await session.register(*names)
            await session.reset(7)
            for number in range(50):
                inputs = {
                    name: (np.array([number, at]) / 64).astype(np.float32) for at, name in enumerate(names)
                }
                for name, outcome in (await session.step(inputs)).items():
                    np.testing.assert_array_equal(
                        outcome.outputs, expected(inputs[name], number + 1, 3, seed=7)
                    )
            assert await session.audit() == ""
        async with await TrioSession.connect(simulator.address, reclaim_stale=False) as other:
            assert all(entry.available for entry in await other.agents())
        with pytest.raises(SessionClosed):
            await session.agents()


@pytest.mark.trio
async def test_closed_and_silent_ports_are_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with pytest.raises(SimulatorSilent):
            await TrioSession.connect(f"127.0.0.1:{port}", limits=Limits(connect=0.5))
    with pytest.raises(SimulatorNotFound):
        await TrioSession.connect(f"127.0.0.1:{port}")


@pytest.mark.trio
async def test_cancelling_a_step_leaves_the_session_to_be_rebuilt_and_its_agents_free() -> None:
    world = SyntheticWorld(1, 1, think=0.3)
    with UdpSimulator(world, port=0, profile=NERD) as simulator:
        session = await TrioSession.connect(str(simulator.address))
        await session.register("agent")
        await session.reset(1)
        with trio.move_on_after(0.05) as scope:
            await session.step({"agent": [0.0]})
        assert scope.cancelled_caught
        with pytest.raises(StepUncertain, match="outstanding"):
            await session.reset(2)
        await session.aclose()
        async with await TrioSession.connect(simulator.address, reclaim_stale=False) as other:
            assert (await other.agents())[0].available


@pytest.mark.trio
async def test_other_tasks_run_while_a_session_steps() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.001)
            ticks += 1

    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        async with (
            await TrioSession.connect(str(simulator.address)) as session,
            trio.open_nursery() as nursery,
        ):
            await session.register("agent")
            await session.reset(1)
            nursery.start_soon(tick)
            for _ in range(2000):
                await session.step({"agent": [0.0]})
            nursery.cancel_scope.cancel()
    assert ticks > 3


@BOTH
@pytest.mark.trio
async def test_a_session_at_rest_sees_resets_of_others(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator:
        async with (
            await TrioSession.connect(str(simulator.address)) as watcher,
            await TrioSession.connect(str(simulator.address)) as driver,
        ):
            await driver.register("agent")
            await driver.reset(1)
            with trio.fail_after(5):
                await watcher.wait_readable()
            assert [type(notice) for notice in watcher.take_notices()] == [WorldReset]


@pytest.mark.trio
async def test_a_simulator_that_dies_is_noticed() -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        session = await TrioSession.connect(str(simulator.address))
        await session.register("agent")
        await session.reset(1)
    with pytest.raises(SessionLost):
        await session.step({"agent": [0.0]})
    await session.aclose()


@BOTH
@pytest.mark.trio
async def test_other_tasks_that_take_their_time_are_no_silence_of_the_simulator(profile: Profile) -> None:
    async def hog() -> None:
        for _ in range(3):
            time.sleep(0.4)
            await trio.lowlevel.checkpoint()

    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile) as simulator:
        async with (
            await TrioSession.connect(str(simulator.address), spin=False) as session,
            trio.open_nursery() as nursery,
        ):
            await session.register("agent")
            for seed in range(1, 4):
                await trio.sleep(0.01)
                nursery.start_soon(hog)
                await session.reset(seed)
            assert not session.machine.disturbed


@pytest.mark.trio
async def test_steps_that_carry_variables_are_none_that_are_taken_at_once() -> None:
    with UdpSimulator(SyntheticWorld(1, 1, values=3), port=0) as simulator:
        async with await TrioSession.connect(simulator.address) as session:
            await session.register("agent")
            await session.reset(1)
            assert [vote.name for vote in session.votes_at_once] == ["agent"]
            name = "/Synthetic/Value/00001"
            await session.watch(name)
            assert session.votes_at_once == ()
            told = (await session.step({"agent": [0.0]}))["agent"].values
            assert list(told) == [name]
        assert session.votes_at_once == ()
