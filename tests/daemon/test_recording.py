"""What the daemon records, on a session in memory: each row is what its environment gave and was told."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from ospbridge.errors import BarrierStuck, StepUncertain
from ospbridge.record.collecting import TOGETHER
from tests.daemon.stage import (
    ONE,
    TWO,
    FakeSession,
    attach,
    both_playing,
    conductor_of,
    episodes,
    play,
    recorded,
    together,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.daemon.chronicle import Listener
    from ospbridge.daemon.conductor import Conductor

pytestmark = pytest.mark.trio


def ends(directory: Path, name: str = "a") -> list[tuple[int, str, str]]:
    """Steps, how and reason of its episodes."""
    return [(len(episode), episode.how, episode.reason) for episode in episodes(directory, name)]


async def test_a_row_is_what_the_environment_gave_and_was_told(session: FakeSession, tmp_path: Path) -> None:
    session.ending = {"a": 3}
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path) as recording:
        a = attach(conductor, "a")
        await conductor.reset([a], 7, 1)
        for value in (0.5, 0.25, -0.125):
            await play(conductor, a, value)
        await conductor.reset([a], 8, 1)
        await play(conductor, a, 1.0)
        conductor.leave([a])
    assert (recording.status.recorded, recording.status.dropped) == (2, 0)
    assert recording.status.directory == str(tmp_path)
    first, second = episodes(tmp_path)
    assert (first.simulator, first.seed, first.how, first.reason) == ("sim:1", 7, "terminated", "")
    assert first.observations.tolist() == [[0.0], [0.5], [0.25], [-0.125]]
    assert first.actions.tolist() == [[0.5], [0.25], [-0.125]]
    assert first.rewards.tolist() == [1.0, 1.0, 1.0]
    assert first.terminated.tolist() == [False, False, True]
    assert first.truncated.tolist() == [False, False, False]
    assert first.info_names == ("/episode/reward", "/episode/terminated")
    assert first.infos.tolist() == [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    assert (second.seed, len(second), second.how) == (8, 1, "abandoned")
    assert second.truncated.tolist() == [True]


async def test_an_episode_is_not_cut_for_the_sake_of_others_who_take_parts(
    session: FakeSession, tmp_path: Path
) -> None:
    conductor = conductor_of(session)
    other = SimpleNamespace(largest=1000, wants=lambda _: True, finished=lambda *_: None)
    with recorded(conductor, tmp_path):
        conductor.chronicle.listeners.append(cast("Listener", other))
        a = attach(conductor, "a")
        await conductor.reset([a], 7, 1)
        for _ in range(2 * TOGETHER):
            await play(conductor, a, 0.5)
        conductor.leave([a])
    assert ends(tmp_path) == [(2 * TOGETHER, "abandoned", "closed before its end")]


# --- how episodes end ------------------------------------------------------------------------------------------------


async def test_a_reset_or_a_close_before_the_end_abandons(session: FakeSession, tmp_path: Path) -> None:
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        a = attach(conductor, "a")
        for _ in range(2):
            await conductor.reset([a], 7, 1)
            await play(conductor, a, 0.5)
        conductor.leave([a])
        again = attach(conductor, "a")
        await conductor.reset([again], 7, 1)
        await play(conductor, again, 0.5)
        conductor.leave([again], "the connection to its environment ended")
    assert ends(tmp_path) == [
        (1, "abandoned", "reset before its end"),
        (1, "abandoned", "closed before its end"),
        (1, "abandoned", "the connection to its environment ended"),
    ]


async def test_a_lost_step_is_recorded_as_the_last_observation_again(
    session: FakeSession, tmp_path: Path
) -> None:
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        a = attach(conductor, "a")
        await conductor.reset([a], 7, 1)
        await play(conductor, a, 0.5)
        session.step_errors = [StepUncertain("who knows")]
        assert (await play(conductor, a, 0.25)).truncated
    assert ends(tmp_path) == [(2, "truncated", "who knows")]
    (episode,) = episodes(tmp_path)
    assert episode.observations.tolist() == [[0.0], [0.5], [0.5]]
    assert episode.actions.tolist() == [[0.5], [0.25]]
    assert np.isnan(episode.infos[2]).all()


async def test_a_step_that_raises_loses_the_episode(session: FakeSession, tmp_path: Path) -> None:
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        a = attach(conductor, "a")
        await conductor.reset([a], 7, 1)
        await play(conductor, a, 0.5)
        session.step_errors = [BarrierStuck("nobody moves")]
        with pytest.raises(BarrierStuck):
            await play(conductor, a, 0.25)
    assert ends(tmp_path) == [(1, "lost", "nobody moves")]
    assert episodes(tmp_path)[0].truncated.tolist() == [True]


# --- episodes that are cut while their environment is silent ---------------------------------------------------------


async def too_slow(conductor: Conductor) -> Any:
    """The attachment of agent ``b``, cut after one step because ``a`` waited for it."""
    a, b = await both_playing(conductor)
    await together(lambda: play(conductor, a, 0.25), lambda: play(conductor, b, 0.5))
    await play(conductor, a, 0.25)
    assert b.cut
    return b


async def test_what_is_told_with_the_next_step_is_recorded_with_it(
    session: FakeSession, autojump_clock: object, tmp_path: Path
) -> None:
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        b = await too_slow(conductor)
        feedback = await play(conductor, b, 0.75)
        conductor.leave([b])
    (episode,) = episodes(tmp_path, "b")
    assert (episode.how, episode.reason) == ("truncated", feedback.reason)
    assert episode.actions.tolist() == [[0.5], [0.75]]
    assert episode.observations.tolist() == [[0.0], [0.5], [0.5]]
    assert episode.truncated.tolist() == [False, True]


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "the daemon is stopped"])
async def test_who_is_never_told_has_a_truncated_episode_all_the_same(
    session: FakeSession, autojump_clock: object, tmp_path: Path, *, leaves: bool
) -> None:
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        b = await too_slow(conductor)
        if leaves:
            conductor.leave([b])
    ((steps, how, reason),) = ends(tmp_path, "b")
    assert (steps, how) == (1, "truncated")
    assert "not acted for" in reason


# --- the disk --------------------------------------------------------------------------------------------------------


async def test_a_disk_that_stands_still_holds_up_no_step(
    session: FakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands, moves = threading.Event(), threading.Event()

    def fsync(_: int) -> None:
        stands.set()
        assert moves.wait(30)

    monkeypatch.setattr(os, "fsync", fsync)
    conductor = conductor_of(session)
    try:
        with recorded(conductor, tmp_path) as recording:
            a = attach(conductor, "a", ONE)
            for number in range(20):
                await conductor.reset([a], number + 1, 1)
                await play(conductor, a, 0.5)
            conductor.leave([a])
            assert stands.wait(30)
            assert recording.status.recorded == 0
            other = attach(conductor, "a", TWO)
            await conductor.reset([other], 99, 2)
            assert not (await play(conductor, other, 0.5)).truncated
            conductor.leave([other])
            moves.set()
    finally:
        moves.set()
    assert [episode.seed for episode in episodes(tmp_path)] == [*range(1, 21), 99]
