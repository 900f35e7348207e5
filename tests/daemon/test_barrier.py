"""Those who leave the waiting to others, those who act alone and at once, and drivers for whom deadlines stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from ospbridge.daemon.attachment import Attachment, Driver, State
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.errors import BarrierStuck, LocalProtocolError, SessionLost
from ospbridge.osp.notices import WorldReset
from tests.daemon.stage import (
    Absent,
    FakeSession,
    act,
    attach,
    both,
    conductor_of,
    episodes,
    play,
    recorded,
    together,
    told,
)

pytestmark = pytest.mark.trio


async def test_an_error_of_the_step_is_told_too(session: FakeSession) -> None:
    conductor, a, b = await both(session)
    absent = Absent(conductor, a)
    assert absent.act(0.25)
    session.step_errors.append(BarrierStuck("others do not vote"))
    with pytest.raises(BarrierStuck, match="others do not vote"):
        await play(conductor, b, 0.5)
    assert absent.told == [None]
    assert isinstance(a.not_playing(), BarrierStuck)


async def test_where_the_others_take_long_it_waits_itself_and_drops_them_at_the_limit(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor, a, b = await both(session)
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


# --- while the clock is read at the end of an episode ----------------------------------------------------------------


class Slow(FakeSession):
    """Whose clock takes a second to be read."""

    async def audit(self) -> str:
        await trio.sleep(1.0)
        return await super().audit()


async def test_nobody_is_told_of_a_step_before_it_is_known_what_it_is_worth(autojump_clock: object) -> None:
    session = Slow("a", "b", "c")
    session.ending = {"a": 1}
    session.audit_says = "a step too many"
    conductor, a, b = await both(session)
    c = attach(conductor, "c", Driver("third", 33))
    absent = Absent(conductor, a)
    absent.act(0.25)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, conductor, b, 0.5)
        await trio.sleep(0.5)
        # Somebody else hangs up, which makes all look again.
        conductor.leave([c])
        assert absent.told == []
    assert absent.told == [0.25]
    assert told(a).reason == "a step too many"


async def test_whose_agent_another_environment_of_its_process_takes_meanwhile_is_told_nothing_that_is_not_recorded(
    autojump_clock: object, tmp_path: Path
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


# --- alone -----------------------------------------------------------------------------------------------------------


async def playing_alone(session: FakeSession) -> Absent:
    conductor = conductor_of(session)
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    return Absent(conductor, a)


async def test_a_step_at_once_tells_and_counts_what_any_other_does() -> None:
    session = FakeSession("a")
    absent = await playing_alone(session)
    a, conductor = absent.attachment, absent.conductor
    before = conductor.steps
    for value in (0.25, -0.5):
        assert await absent.act_alone(value)
        assert told(a).observation.tolist() == [value]
        assert session.steps[-1] == {"a": value}
    assert (a.episode.steps, a.episode.reward, conductor.steps - before) == (2, 2.0, 2)
    assert sum(conductor.stats.step_times.counts) == 2


def lose(session: FakeSession) -> None:
    session.pauses = True
    session.step_errors.append(SessionLost("it is gone"))


@pytest.mark.parametrize(
    "change, observation, reason",
    [
        (lambda session: setattr(session, "pauses", True), 0.25, ""),
        (lambda session: session.ending.update(a=1), 0.25, ""),
        (lambda session: session.machine.notices.append(WorldReset("by another")), 0.25, "by another"),
        (lose, 0.0, "it is gone"),
    ],
    ids=["takes longer", "ends the episode", "finds the world reset", "loses the session"],
)
async def test_a_step_that_is_not_over_at_once_is_run_to_its_end_and_told_once(
    change: Callable[[FakeSession], object], observation: float, reason: str
) -> None:
    session = FakeSession("a")
    absent = await playing_alone(session)
    a, conductor = absent.attachment, absent.conductor
    change(session)
    assert not await absent.act_alone(0.25)
    assert absent.told == [observation]
    assert told(a).reason == reason
    assert len(session.steps) == (1 if reason == "it is gone" else 2)
    assert conductor.supervisor.broken == (reason if reason == "it is gone" else "")
    assert conductor.supervisor.busy_since is None
    if session.ending:
        assert (session.audits, told(a).terminated, a.state, a.episode.steps) == (1, True, State.DONE, 1)
    session.pauses = False
    assert conductor.barrier.may_step_at_once([a]) is (not reason and not session.ending)


async def test_no_step_is_taken_at_once_while_the_world_is_held_or_somebody_looks_on() -> None:
    absent = await playing_alone(FakeSession("a"))
    conductor, barrier = absent.conductor, absent.conductor.barrier
    with conductor.holding(absent.attachment.driver, 5.0, "for a test"):
        assert not barrier.may_step_at_once([absent.attachment])
    assert barrier.may_step_at_once([absent.attachment])
    conductor.observers.join("a", object())
    assert not barrier.may_step_at_once([absent.attachment])


# --- deadlines that stand while a driver waits ------------------------------------------------------------------------


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
