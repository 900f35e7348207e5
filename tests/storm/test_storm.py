"""Storms: what environments believe is what ran, or they are told; nothing hangs, and every episode arrives once.

``python -m tests.storm`` plays as many as one likes, and replays the one that failed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.storm.bridge import run
from tests.storm.judging import played, played_by_machines, untrue
from tests.storm.lives import HARSH, MILD, Storm, Weather
from tests.storm.machines import play

pytestmark = pytest.mark.exhaustive

CALM = Weather(0.0, 0.0, 0.0, 0.0)


def replay(seed: int, *options: str) -> str:
    return f"python -m tests.storm {' '.join((str(seed), *options))}"


@pytest.mark.parametrize("seed", range(18))
def test_machines_in_a_harsh_storm_believe_what_ran_or_are_told(seed: int) -> None:
    _, found = played_by_machines(Storm.of(seed, HARSH, told=3))
    assert not found, replay(seed, "--machines", "--told", "3")


@pytest.mark.parametrize("seed", range(18))
def test_machines_in_a_mild_storm_believe_what_ran_or_are_told(seed: int) -> None:
    work, found = played_by_machines(Storm.of(seed, MILD))
    assert not found, replay(seed, "--machines", "--mild")
    assert all(life.steps >= 100 for life in work.lives)


@pytest.mark.parametrize("seed", range(2))
def test_a_whole_bridge_in_a_harsh_storm_believes_what_ran_or_is_told_and_loses_no_episode(seed: int) -> None:
    _, found = played(Storm.of(seed, HARSH, told=3))
    assert not found, replay(seed, "--told", "3")


@pytest.mark.parametrize("seed", range(6))
def test_a_whole_bridge_in_a_mild_storm_believes_what_ran_or_is_told_and_loses_no_episode(seed: int) -> None:
    work, found = played(Storm.of(seed, MILD))
    assert not found, replay(seed, "--mild")
    assert all(life.steps >= 100 for life in work.lives)


@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_a_whole_bridge_without_a_storm_is_told_nothing(tmp_path: Path, profile: str) -> None:
    work = run(replace(Storm.of(0, CALM), profile=profile, agents=3, clients=2), tmp_path)
    assert not list(untrue(work.lives, work.ledger))
    assert [life.troubles for life in work.lives] == [[]] * 3
    assert work.daemons == 1
    ended = [episode for life in work.lives for episode in life.episodes if episode.ended]
    told = [episode.told for episode in ended if episode.told]
    # The first to reset ends the episodes of those who joined before it.
    assert len(told) < len(ended) / 2


def test_a_seed_of_a_whole_bridge_tells_the_same_story_again(tmp_path: Path) -> None:
    stories = []
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        work = run(Storm.of(4, MILD), tmp_path / name)
        stories.append((work.ledger, work.lives, work.seconds, work.datagrams))
    assert stories[0] == stories[1]


def test_a_seed_of_the_machines_tells_the_same_story_again() -> None:
    assert play(Storm.of(16, MILD)) == play(Storm.of(16, MILD))


def test_the_judge_sees_what_did_not_run(tmp_path: Path) -> None:
    work = run(Storm.of(0, CALM), tmp_path)
    assert not list(untrue(work.lives, work.ledger))
    steps = [at for at, entry in enumerate(work.ledger) if entry["kind"] == "step"]
    del work.ledger[steps[5]]
    assert list(untrue(work.lives, work.ledger))
