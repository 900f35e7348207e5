"""Seats and groups that record while a file cannot be written: no other episode is lost, and no error hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.envs.watched import WatchedGroup, WatchedSeat
from ospbridge.errors import BarrierStuck, ConfigurationError, OspBridgeError
from ospbridge.interface import AgentInterface, BoxSpace, Feedback, InterfaceValue
from ospbridge.record.reading import read_recording
from ospbridge.record.writing import EpisodeWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ospbridge.session.annotating import NextNote

NAMES = ["a", "b", "c"]
ACTIONS = dict.fromkeys(NAMES, np.zeros(1, np.float32))
BOX = BoxSpace(np.full(1, -1, np.float32), np.full(1, 1, np.float32))


def agent(name: str) -> AgentInterface:
    return AgentInterface(
        1, name, (InterfaceValue("/in", -1.0, 1.0),), (InterfaceValue("/out", -1.0, 1.0),), ()
    )


class FakeGroup:
    """Agents that rest; the next step ends in ``error``, or ends all episodes."""

    def __init__(self) -> None:
        self.interfaces = {name: agent(name) for name in NAMES}
        self.observation_spaces = dict.fromkeys(NAMES, BOX)
        self.action_spaces: dict[str, Any] = dict.fromkeys(NAMES, BOX)
        self.observation_names = {name: ["/out"] for name in NAMES}
        self.action_names = {name: ["/in"] for name in NAMES}
        self.next_notes: dict[str, NextNote] = {}
        self.playing = True
        self.error: OspBridgeError | None = None
        self.ends = False

    def reset(self, seed: int) -> Mapping[str, Feedback]:
        return {name: Feedback(np.zeros(1, np.float32), info={"osp_seed": seed}) for name in NAMES}

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Feedback]:
        if self.error is not None:
            raise self.error
        return {
            name: Feedback(np.zeros(1, np.float32), terminated=self.ends, info={"osp_seed": 1})
            for name in actions
        }

    def close(self) -> None:
        """Nothing to give back."""


class FakeSeat:
    """The first agent of a group."""

    def __init__(self, group: FakeGroup) -> None:
        self._group = group
        self.interface = agent("a")
        self.observation_space = BOX
        self.action_space: Any = BOX
        self.observation_names = ["/out"]
        self.action_names = ["/in"]

    def reset(self, seed: int) -> Feedback:
        return self._group.reset(seed)["a"]

    def step(self, action: Any) -> Feedback:
        return self._group.step({"a": action})["a"]

    def forgo(self) -> None:
        """Nothing goes on."""

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose episodes cannot be written."""
    write, names = EpisodeWriter.write, ["a", "b"]

    def refusing(self: EpisodeWriter, episode: Any) -> None:
        if episode.agent in names:
            raise ConfigurationError(f"no space for {episode.agent}")
        write(self, episode)

    monkeypatch.setattr(EpisodeWriter, "write", refusing)
    return names


@pytest.mark.parametrize("ending", ["step", "reset", "close"])
def test_an_episode_that_cannot_be_written_costs_no_other_agents(
    ending: str, tmp_path: Path, unwritable: list[str]
) -> None:
    fake = FakeGroup()
    group = WatchedGroup(fake, "x", tmp_path, None)
    group.reset(1)
    group.step(ACTIONS)
    fake.ends = ending == "step"
    end = {"step": lambda: group.step(ACTIONS), "reset": lambda: group.reset(2), "close": group.close}[ending]
    with pytest.raises(ConfigurationError, match="no space for a"):
        end()
    (episode,) = read_recording(tmp_path)
    assert (episode.agent, episode.how) == ("c", "terminated" if ending == "step" else "abandoned")
    unwritable.clear()
    group.reset(3)
    group.step(ACTIONS)
    group.close()
    assert [each.seed for each in read_recording(tmp_path) if each.agent == "a"] == [3]


@pytest.mark.parametrize("several", [True, False], ids=["group", "seat"])
def test_the_error_that_ended_the_episodes_is_raised_although_they_cannot_be_written(
    several: bool, tmp_path: Path, unwritable: list[str]
) -> None:
    fake = FakeGroup()
    group = WatchedGroup(fake, "x", tmp_path, None)
    seat = WatchedSeat(FakeSeat(fake), "x", tmp_path, None)

    def step() -> None:
        group.step(ACTIONS) if several else seat.step(ACTIONS["a"])

    group.reset(1)
    seat.reset(1)
    step()
    fake.error = BarrierStuck("others do not vote")
    with pytest.raises(BarrierStuck):
        step()
    assert [each.agent for each in read_recording(tmp_path)] == (["c"] if several else [])
