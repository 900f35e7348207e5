"""The world held by one driver: nobody else's time runs, and who holds too long is waited for no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.errors import BarrierStuck
from tests.daemon.stage import FakeSession, act, attach, conductor_of, play, together, told

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor

pytestmark = pytest.mark.trio
WHY = "waits for weights"


class Seated(NamedTuple):
    """Who holds, on agent a, and who waits, on agent b; ``heard`` is what the latter hears of holds."""

    conductor: Conductor
    holder: Driver
    a: Attachment
    b: Attachment
    heard: list[tuple[float, str]]


def seated(session: FakeSession, policy: ResetPolicy = ResetPolicy.ALL) -> Seated:
    conductor = conductor_of(session, reset_policy=policy)
    holder = Driver("relay", 1)
    heard: list[tuple[float, str]] = []
    other = Driver("env", 2, on_held=lambda seconds, reason: heard.append((seconds, reason)))
    return Seated(conductor, holder, attach(conductor, "a", holder), attach(conductor, "b", other), heard)


async def both_play(found: Seated) -> Seated:
    conductor, _, a, b, _ = found
    conductor.lockstep.next_reset.quorum = 2
    await together(lambda: conductor.reset([b], 0, 2), lambda: conductor.reset([a], 9, 1))
    return found


async def both_done(session: FakeSession, found: Seated) -> Seated:
    """Their episodes have just ended."""
    session.ending = {"a": 1, "b": 1}
    await both_play(found)
    await act(found.conductor, a=0.25, b=0.5)
    assert found.a.state is found.b.state is State.DONE
    return found


async def test_a_step_that_waits_for_a_holder_goes_on_when_it_acts(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, holder, a, b, heard = await both_play(seated(session))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, conductor, b, 0.5)
        await trio.sleep(1)
        with conductor.holding(holder, 500.0, WHY):
            await trio.sleep(400)
        # The step limit is 30 s.
        await trio.sleep(20)
        await play(conductor, a, 0.25)
    assert not told(a).truncated
    assert not told(b).truncated
    assert heard == [(500.0, WHY)]


async def test_who_rests_is_waited_for_no_longer_and_may_play_again(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, _, a, b, _ = await both_play(seated(session))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, conductor, b, 0.5)
        await trio.sleep(1)
        conductor.rest([a], "its upstream is away")
    assert trio.current_time() - began < 2.0
    assert a not in conductor.lockstep.playing
    assert a.state is State.ATTACHED
    conductor.rest([a, b], "both")
    await conductor.reset([a], 9, 1)
    assert conductor.lockstep.playing == [a]


@pytest.mark.parametrize("policy", ResetPolicy)
async def test_a_reset_waits_for_a_holder_whose_episode_is_over(
    session: FakeSession, policy: ResetPolicy, autojump_clock: object
) -> None:
    conductor, holder, a, b, heard = await both_done(session, seated(session, policy))
    async with trio.open_nursery() as nursery:
        with conductor.holding(holder, 500.0, WHY):
            await trio.sleep(100)
            # The reset limit is 60 s.
            nursery.start_soon(conductor.reset, [b], 8, 2)
            await trio.sleep(300)
            assert b.state is State.WAITING
        await conductor.reset([a], 0, 1)
    assert session.seeds == [9, 8]
    assert conductor.lockstep.playing == [a, b]
    assert heard == [(400.0, WHY)]


@pytest.mark.parametrize("hold, begins", [(50.0, 50.0), (300.0, 300.0), (0.5, 2.0)])
async def test_a_reset_goes_on_without_who_holds_longer_than_it_may(
    session: FakeSession, hold: float, begins: float, autojump_clock: object
) -> None:
    conductor, holder, a, b, _ = await both_done(session, seated(session))
    began = trio.current_time()
    with conductor.holding(holder, hold, WHY):
        await conductor.reset([b], 8, 2)
    assert trio.current_time() - began == pytest.approx(begins, abs=0.1)
    assert conductor.lockstep.playing == [b]
    assert a.state is State.ATTACHED


async def test_time_that_was_held_before_a_reset_was_asked_for_is_not_added_to_its_time(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, holder, a, b, _ = seated(session)
    await conductor.reset([a], 9, 1)
    with conductor.holding(holder, 500.0, WHY):
        await trio.sleep(400)
    began = trio.current_time()
    # The episode of the other agent goes on, and the reset limit is 60 s.
    with pytest.raises(BarrierStuck):
        await conductor.reset([b], 8, 2)
    assert trio.current_time() - began == pytest.approx(60.0)
