"""Those who act and leave the waiting to others: told by whoever runs the step, called where it lasts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from ospbridge.daemon.attachment import Driver, State
from ospbridge.errors import BarrierStuck, LocalProtocolError
from tests.daemon.stage import (
    Absent,
    FakeSession,
    attach,
    both_playing,
    conductor_of,
    episodes,
    play,
    recorded,
    told,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor

pytestmark = pytest.mark.trio


async def one_has_acted(session: FakeSession, **changes: Any) -> tuple[Conductor, Absent, Attachment]:
    """Of two that play one has acted, with 0.25; the other is missing."""
    conductor = conductor_of(session, **changes)
    a, b = await both_playing(conductor)
    absent = Absent(conductor, a)
    assert absent.act(0.25)
    return conductor, absent, b


async def test_an_error_of_the_step_is_told_too(session: FakeSession) -> None:
    conductor, absent, b = await one_has_acted(session)
    session.step_errors.append(BarrierStuck("others do not vote"))
    with pytest.raises(BarrierStuck, match="others do not vote"):
        await play(conductor, b, 0.5)
    assert absent.told == [None]
    assert isinstance(absent.attachment.not_playing(), BarrierStuck)


async def test_where_the_others_take_long_it_waits_itself_and_drops_them_at_the_limit(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor = conductor_of(session)
    a, b = await both_playing(conductor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.barrier.mind)
        absent = Absent(conductor, a)
        # The mind has gone to rest meanwhile, and must be woken.
        await trio.sleep(100)
        begun = trio.current_time()
        absent.act(0.25)
        await absent.called.wait()
        assert trio.current_time() - begun < 0.5
        await absent.wait()
        assert trio.current_time() - begun == pytest.approx(30.0)
        nursery.cancel_scope.cancel()
    assert absent.told == [0.25]
    assert b.state is State.DONE


# --- while the clock is read at the end of an episode --------------------------------------------------


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
