"""The world held by one driver: nobody else's time runs, and who holds too long is waited for no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.holding import Holds
from tests.daemon.stage import FakeSession, inputs
from tests.daemon.test_conductor import attach, conductor_of

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor


def test_time_that_was_held_is_counted_once_however_many_hold() -> None:
    holds = Holds()
    assert (holds.left(5.0), holds.spent(5.0)) == (0.0, 0.0)
    holds.begin("a", 10.0, 100.0, "weights")
    assert (holds.left(12.0), holds.spent(12.0), holds.reason) == (98.0, 2.0, "weights")
    holds.begin("b", 14.0, 200.0, "others")
    assert (holds.left(15.0), holds.reason) == (199.0, "others")
    holds.end("a", 20.0)
    holds.end("b", 24.0)
    holds.end("b", 25.0)
    assert (holds.left(30.0), holds.spent(30.0), holds.reason) == (0.0, 14.0, "")


def test_a_hold_that_lasts_longer_than_it_may_counts_no_further() -> None:
    holds = Holds()
    holds.begin("a", 10.0, 5.0, "weights")
    assert (holds.left(40.0), holds.spent(40.0)) == (0.0, 5.0)
    holds.end("a", 50.0)
    assert holds.spent(60.0) == 5.0


@pytest.fixture
def session() -> FakeSession:
    return FakeSession("a", "b")


class Seated(NamedTuple):
    """Who holds, on agent a, and who waits, on agent b; ``told`` is what the latter hears of holds."""

    conductor: Conductor
    holder: Driver
    a: Attachment
    b: Attachment
    told: list[tuple[float, str]]


def seated(session: FakeSession) -> Seated:
    conductor = conductor_of(session)
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
async def test_who_begins_to_wait_during_a_hold_is_told_what_is_left(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, holder, a, b, told = seated(session)
    await conductor.reset([a], 9, 1)
    async with trio.open_nursery() as nursery:
        with conductor.holding(holder, 500.0, "waits for weights"):
            await trio.sleep(100)
            # Waits for the episode of the agent that is held, beyond the reset limit of 60 s.
            nursery.start_soon(conductor.reset, [b], 0, 2)
            await trio.sleep(300)
        conductor.rest([a], "its upstream is away")
    assert told == [(400.0, "waits for weights")]
    assert b.state is State.PLAYING


@pytest.mark.trio
async def test_who_holds_longer_than_it_may_is_a_laggard(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, holder, a, b, _ = seated(session)
    await both_play(conductor, a, b)
    began = trio.current_time()
    with conductor.holding(holder, 50.0, "waits for weights"):
        await conductor.step([(b, inputs(0.5))])
    assert trio.current_time() - began == pytest.approx(80.0, abs=1.0)
    assert b.feedback is not None
    assert not b.feedback.truncated
    assert a.state is State.DONE
    assert "was not acted for" in a.cut


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
