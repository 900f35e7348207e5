"""What the daemon records, on a session in memory: each row is what its environment gave and was told."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from ospbridge.daemon.episodes import Listener
from ospbridge.errors import BarrierStuck, OspBridgeError, StepUncertain
from ospbridge.record.collecting import TOGETHER
from tests.daemon.stage import (
    ONE,
    TWO,
    FakeSession,
    act,
    attach,
    both,
    conductor_of,
    episodes,
    play,
    recorded,
)

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
        conductor.tracker.listeners.append(cast("Listener", other))
        a = attach(conductor, "a")
        await conductor.reset([a], 7, 1)
        for _ in range(2 * TOGETHER):
            await play(conductor, a, 0.5)
        conductor.leave([a])
    assert ends(tmp_path) == [(2 * TOGETHER, "abandoned", "closed before its end")]


# --- how episodes end ------------------------------------------------------------------------------------------------


async def test_a_reset_or_a_close_before_the_end_abandons(session: FakeSession, tmp_path: Path) -> None:
    conductor = conductor_of(session)
    reasons = ["closed before its end", "the connection to its environment ended"]
    with recorded(conductor, tmp_path):
        for reason in reasons:
            a = attach(conductor, "a")
            for _ in range(2):
                await conductor.reset([a], 7, 1)
                await play(conductor, a, 0.5)
            conductor.leave([a], reason)
    assert ends(tmp_path) == [
        (1, "abandoned", reason) for each in reasons for reason in ("reset before its end", each)
    ]


@pytest.mark.parametrize(
    "error, end, observations",
    [
        (StepUncertain("who knows"), (2, "truncated", "who knows"), [[0.0], [0.5], [0.5]]),
        (BarrierStuck("nobody moves"), (1, "lost", "nobody moves"), [[0.0], [0.5]]),
    ],
    ids=["the last observation again", "no further row"],
)
async def test_a_step_that_is_lost_and_one_that_raises_end_the_episode(
    session: FakeSession,
    tmp_path: Path,
    error: OspBridgeError,
    end: tuple[int, str, str],
    observations: list[list[float]],
) -> None:
    conductor = conductor_of(session)
    with recorded(conductor, tmp_path):
        (a,) = conductor.attach(["a"], ONE, annotates=False)
        await conductor.reset([a], 7, 1)
        await play(conductor, a, 0.5)
        session.step_errors = [error]
        if end[1] == "lost":
            with pytest.raises(BarrierStuck):
                await play(conductor, a, 0.25)
        else:
            assert (await play(conductor, a, 0.25)).truncated
    assert ends(tmp_path) == [end]
    (episode,) = episodes(tmp_path)
    assert episode.observations.tolist() == observations
    assert episode.actions.tolist() == [[0.5], [0.25]][: end[0]]
    assert episode.truncated.tolist()[-1]
    assert np.isnan(episode.infos[2:]).all()


@pytest.mark.parametrize("then", ["acts", "leaves", "the daemon is stopped"])
async def test_an_episode_that_was_cut_while_its_environment_was_silent_is_truncated(
    session: FakeSession, autojump_clock: object, tmp_path: Path, then: str
) -> None:
    """What is told with the next step is recorded with it, and without one the episode is recorded all the same."""
    conductor, a, b = await both(session)
    with recorded(conductor, tmp_path):
        await conductor.reset([a, b], 1, 1)
        await act(conductor, a=0.25, b=0.5)
        await play(conductor, a, 0.25)
        assert b.cut
        if then == "acts":
            await play(conductor, b, 0.75)
        if then != "the daemon is stopped":
            conductor.leave([b])
    (episode,) = episodes(tmp_path, "b")
    assert episode.how == "truncated"
    assert "not acted for" in episode.reason
    given = [0.5, 0.75] if then == "acts" else [0.5]
    assert episode.actions.tolist() == [[each] for each in given]
    assert episode.observations.tolist() == [[0.0], *([0.5] for _ in given)]
    assert episode.truncated.tolist() == [*(False for _ in given[1:]), True]


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
            a = attach(conductor, "a")
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
