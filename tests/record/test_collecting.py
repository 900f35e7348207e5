"""What a collector hands over: whole episodes, whose arrays are nobody else's."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ospbridge.record.collecting import Collected, EpisodeCollector, at_once
from ospbridge.record.episode import RecordedEpisode
from tests.record.episodes import feedback, play, whose


def test_ctrl_c_while_a_part_is_handed_over_costs_neither_it_nor_the_rest_of_the_episode() -> None:
    found: list[RecordedEpisode] = []
    left = [KeyboardInterrupt()] * 2

    def interrupted(episode: RecordedEpisode) -> None:
        if left:
            raise left.pop()
        found.append(episode)

    collector = EpisodeCollector(whose(), at_once(interrupted), memory=20_000)
    collector.begin(feedback(0))
    steps = 0
    while steps < 1000:
        steps += 1
        with contextlib.suppress(KeyboardInterrupt):
            collector.step(steps % 2, feedback(steps))
    collector.close()
    assert not left
    assert len(found) > 2
    assert [part.t_started for part in found] == np.cumsum([0, *map(len, found)])[:-1].tolist()
    assert [part.how for part in found] == ["continued"] * (len(found) - 1) + ["abandoned"]
    together = np.concatenate([found[0].observations, *(part.observations[1:] for part in found[1:])])
    np.testing.assert_array_equal(together[:, 0], np.arange(1001))


def test_a_part_takes_no_more_than_it_may_with_the_observation_that_it_begins_with() -> None:
    found: list[Collected] = []
    collector = EpisodeCollector(whose(outputs=1000), found.append, memory=20_000)
    collector.begin(feedback(0, outputs=1000))
    for number in range(10):
        collector.step(0, feedback(number, outputs=1000))
    collector.close()
    assert [len(part) for part in found] == [3, 3, 3, 1]
    assert all(part.nbytes <= 20_000 for part in found)


def test_an_episode_is_over_although_handing_it_over_failed() -> None:
    taken: list[RecordedEpisode] = []

    def refuse_the_first(episode: RecordedEpisode) -> None:
        taken.append(episode)
        if len(taken) == 1:
            raise OSError("no room")

    collector = EpisodeCollector(whose(), at_once(refuse_the_first))
    with pytest.raises(OSError, match="no room"):
        play(collector, 300, terminated=True)
    collector.step(0, feedback(1))
    collector.close()
    assert len(taken) == 1
    play(collector, 2, terminated=True)
    assert [len(episode) for episode in taken] == [300, 2]


ARRAYS = ("observations", "actions", "rewards", "infos", "terminated", "truncated")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("memory", [3000, 2**20], ids=["in parts", "whole"])
@pytest.mark.parametrize("noted", [False, True], ids=["plain", "annotated"])
@pytest.mark.parametrize("actions", [0, 2], ids=["discrete", "box"])
@pytest.mark.parametrize("together", [1, 7, 128, 1000])
def test_how_many_steps_are_put_together_at_once_changes_nothing(
    together: int, actions: int, noted: bool, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 700
    took: NDArray[Any] = np.linspace(-1, 1, steps * max(actions, 1), dtype=np.float32).reshape(steps, -1)
    if not actions:
        took = np.arange(steps) % 2
    found: list[list[RecordedEpisode]] = [[], []]
    for taken, as_bytes in zip(found, (False, True), strict=True):
        if as_bytes:
            monkeypatch.setattr("ospbridge.record.collecting.TOGETHER", together)
        collector = EpisodeCollector(whose(actions=actions), at_once(taken.append), memory=memory)
        collector.begin(feedback(0))
        for number, action in enumerate(took):
            one = feedback(number + 1)
            logp, drawn = (-0.5 * number, np.array([number, -number], np.float32)) if noted else (0.0, None)
            if as_bytes:
                infos = tuple(one.info["infos"].values())
                inputs = None if drawn is None else drawn.tobytes()
                seen = one.observation.tobytes()
                collector.add((np.float32(action).tobytes(), seen, one.reward, infos, logp, inputs, None))
            else:
                collector.step(action, one, logp=logp, dist_inputs=drawn)
        collector.end("lost", "enough")
    whole, numbers = found
    assert len(whole) == len(numbers)
    assert (len(whole) > 1) == (memory == 3000)
    np.testing.assert_array_equal(np.concatenate([part.actions for part in whole]), took)
    np.testing.assert_array_equal(
        np.concatenate([part.rewards for part in whole]), (np.arange(steps) + 1) / 4
    )
    for kept, same in zip(whole, numbers, strict=True):
        assert (kept.how, kept.t_started) == (same.how, same.t_started)
        assert kept.actions.dtype == (np.float32 if actions else np.int64)
        assert (kept.action_logp is not None) == noted
        for name in (*ARRAYS, *(("action_logp", "action_dist_inputs") if noted else ())):
            np.testing.assert_array_equal(getattr(kept, name), getattr(same, name))


@pytest.mark.parametrize("steps", [1, 300])
def test_an_episode_with_annotations_takes_as_much_memory_as_it_says_from_the_beginning(steps: int) -> None:
    found: list[Collected] = []
    collector = EpisodeCollector(whose(actions=2), found.append)
    collector.begin(feedback(0))
    for number in range(steps):
        collector.step(
            np.zeros(2), feedback(number), dist_inputs=np.zeros(4, np.float32), drawn=np.ones(2, np.float32)
        )
    collector.close()
    (collected,) = found
    expected = collected.nbytes
    collected.episode()
    assert collected.nbytes == expected
