"""The world held by one driver: nobody else's time runs, and who holds too long is waited for no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.errors import BarrierStuck
from tests.daemon.stage import FakeSession, attach, conductor_of, inputs

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor


class Seated(NamedTuple):
    """Who holds, on agent a, and who waits, on agent b; ``told`` is what the latter hears of holds."""

    conductor: Conductor
    holder: Driver
    a: Attachment
    b: Attachment
    told: list[tuple[float, str]]


def seated(session: FakeSession, **changes: Any) -> Seated:
    conductor = conductor_of(session, **changes)
    holder = Driver("relay", 1)
    told: list[tuple[float, str]] = []
    other = Driver("env", 2, on_held=lambda seconds, reason: told.append((seconds, reason)))
    return Seated(conductor, holder, attach(conductor, "a", holder), attach(conductor, "b", other), told)


async def both_play(conductor: Conductor, a: Attachment, b: Attachment) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.reset, [b], 0, 2)
        await conductor.reset([a], 9, 1)


@pytest.mark.trio
async def test_a_step_that_waits_for_a_holder_goes_on_when_it_acts(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, holder, a, b, told = seated(session)
    await both_play(conductor, a, b)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.step, [(b, inputs(0.5))])
        await trio.sleep(1)
        with conductor.holding(holder, 500.0, "waits for weights"):
            await trio.sleep(400)
        # The step limit is 30 s.
        await trio.sleep(20)
        await conductor.step([(a, inputs(0.25))])
    assert a.feedback is not None
    assert b.feedback is not None
    assert not b.feedback.truncated
    assert not a.feedback.truncated
    assert told == [(500.0, "waits for weights")]


@pytest.mark.trio
async def test_who_rests_is_waited_for_no_longer_and_may_play_again(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, _, a, b, _ = seated(session)
    await both_play(conductor, a, b)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.step, [(b, inputs(0.5))])
        await trio.sleep(1)
        conductor.rest([a], "its upstream is away")
    assert trio.current_time() - began < 2.0
    assert a not in conductor.lockstep.playing
    assert a.state is State.ATTACHED
    conductor.rest([a, b], "both")
    await conductor.reset([a], 9, 1)
    assert conductor.lockstep.playing == [a]


# --- resets ------------------------------------------------------------------------------------------------------


async def both_done(session: FakeSession, conductor: Conductor, a: Attachment, b: Attachment) -> None:
    """Their episodes have just ended."""
    session.ending = {"a": 1, "b": 1}
    await both_play(conductor, a, b)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.step, [(b, inputs(0.5))])
        await conductor.step([(a, inputs(0.25))])
    assert a.state is b.state is State.DONE


@pytest.mark.trio
@pytest.mark.parametrize("policy", ResetPolicy)
async def test_a_reset_waits_for_a_holder_whose_episode_is_over(
    session: FakeSession, policy: ResetPolicy, autojump_clock: object
) -> None:
    conductor, holder, a, b, told = seated(session, reset_policy=policy)
    await both_done(session, conductor, a, b)
    async with trio.open_nursery() as nursery:
        with conductor.holding(holder, 500.0, "waits for weights"):
            await trio.sleep(100)
            # The reset limit is 60 s.
            nursery.start_soon(conductor.reset, [b], 8, 2)
            await trio.sleep(300)
            assert b.state is State.WAITING
        await conductor.reset([a], 0, 1)
    assert session.seeds == [9, 8]
    assert conductor.lockstep.playing == [a, b]
    assert told == [(400.0, "waits for weights")]


@pytest.mark.trio
@pytest.mark.parametrize("hold, begins", [(50.0, 50.0), (300.0, 300.0), (0.5, 2.0)])
async def test_a_reset_goes_on_without_who_holds_longer_than_it_may(
    session: FakeSession, hold: float, begins: float, autojump_clock: object
) -> None:
    conductor, holder, a, b, _ = seated(session)
    await both_done(session, conductor, a, b)
    began = trio.current_time()
    with conductor.holding(holder, hold, "waits for weights"):
        await conductor.reset([b], 8, 2)
    assert trio.current_time() - began == pytest.approx(begins, abs=0.1)
    assert conductor.lockstep.playing == [b]
    assert a.state is State.ATTACHED


@pytest.mark.trio
async def test_time_that_was_held_before_a_reset_was_asked_for_is_not_added_to_its_time(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, holder, a, b, _ = seated(session)
    await conductor.reset([a], 9, 1)
    with conductor.holding(holder, 500.0, "waits for weights"):
        await trio.sleep(400)
    began = trio.current_time()
    # The episode of the other agent goes on, and the reset limit is 60 s.
    with pytest.raises(BarrierStuck):
        await conductor.reset([b], 8, 2)
    assert trio.current_time() - began == pytest.approx(60.0)
