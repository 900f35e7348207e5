"""What others do while the clock is read at the end of an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.errors import LocalProtocolError
from tests.daemon.stage import FakeSession, attach, both_playing, conductor_of, play, told
from tests.daemon.test_barrier import Absent
from tests.daemon.test_recording import episodes, recorded

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = pytest.mark.trio


class Slow(FakeSession):
    """Whose clock takes a second to be read; the first episode of ``a`` ends with its first step."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.ending = {"a": 1}

    async def audit(self) -> str:
        await trio.sleep(1.0)
        return await super().audit()


async def test_nobody_is_told_of_a_step_before_it_is_known_what_it_is_worth(
    autojump_clock: MockClock,
) -> None:
    session = Slow("a", "b", "c")
    session.audit_says = "a step too many"
    conductor = conductor_of(session)
    c = attach(conductor, "c", Driver("third", 33))
    a, b = await both_playing(conductor)
    reasons = []

    class Listening(Absent):
        def stepped(self) -> None:
            reasons.append(told(a).reason)
            super().stepped()

    Listening(conductor, a).act(0.25)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, conductor, b, 0.5)
        await trio.sleep(0.5)
        # Somebody else hangs up, which makes all look again.
        conductor.leave([c])
        assert reasons == []
    assert reasons == ["a step too many"]


async def test_nobody_acts_again_while_the_end_of_anothers_episode_is_looked_into(
    autojump_clock: MockClock,
) -> None:
    conductor = conductor_of(Slow("a", "b", "c"), reset_policy=ResetPolicy.ANY)
    c = attach(conductor, "c", Driver("third", 33))
    a, b = await both_playing(conductor)
    steps = 0

    async def again_and_again() -> None:
        nonlocal steps
        while not steps or not told(b).truncated:
            await play(conductor, b, 0.5)
            steps += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(again_and_again)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(play, conductor, a, 0.5)
        await trio.sleep(0.5)
        conductor.leave([c])
    assert steps == 1


@pytest.mark.parametrize("policy", list(ResetPolicy))
async def test_whose_episode_has_ended_may_hang_up_meanwhile(
    policy: ResetPolicy, autojump_clock: MockClock
) -> None:
    conductor = conductor_of(Slow("a", "b"), reset_policy=policy)
    a, b = await both_playing(conductor)
    absent = Absent(conductor, a)
    absent.act(0.25)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, conductor, b, 0.5)
        await trio.sleep(0.5)
        absent.acting = ()
        conductor.leave([a])
    assert not told(b).truncated
    await play(conductor, b, 0.25)
    assert told(b).observation.item() == 0.25


async def test_whose_agent_another_environment_of_its_process_takes_meanwhile_is_told_nothing_that_is_not_recorded(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    session = Slow("a")
    session.ending = {"a": 2}
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        first, second = attach(conductor, "a"), attach(conductor, "a")
        await conductor.reset([first], 1, 1)
        await play(conductor, first, 0.5)
        absent = Absent(conductor, first)
        absent.act(0.25)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conductor.barrier.run)
            await trio.sleep(0.5)
            nursery.start_soon(conductor.reset, [second], 1, 2)
        assert absent.told == [None]
    with pytest.raises(LocalProtocolError, match="was reset later"):
        raise first.not_playing()
    (abandoned,) = episodes(tmp_path)
    assert abandoned.actions.tolist() == [[0.5]]
    assert list(first.held.returns) == [1.0]
