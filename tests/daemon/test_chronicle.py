"""Which steps are written down: as they were when they ran, in order, whatever comes next."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ospbridge.daemon.attachment import Attachment
from ospbridge.daemon.chronicle import Chronicle
from ospbridge.interface import BoxSpace, Feedback
from ospbridge.record.collecting import MEMORY, TOGETHER, Collected
from ospbridge.record.episode import RecordedEpisode

LAST = 2 * TOGETHER + 9
ONE = BoxSpace(np.zeros(1, np.float32), np.ones(1, np.float32))
TASK = SimpleNamespace(observation_space=ONE, action_space=ONE, info_names=[])


class Playing:
    """What a chronicle asks of an attachment."""

    name = "agent"
    held = SimpleNamespace(task=TASK)
    cut = ""
    weights_seq_no = 1
    logp = -0.5
    infos = np.zeros(0, np.float32)
    action = b""
    feedback: Feedback

    def __init__(self) -> None:
        self.dist_inputs = bytes(8)
        self.drawn: bytes | None = None
        self.sees(0.0)

    def sees(self, number: float) -> None:
        info = {"osp_seed": 1, "infos": {}}
        self.feedback = Feedback(np.array([number], np.float32), reward=number, info=info)


class Listening:
    """Wants an episode that goes on in parts of ``largest`` bytes."""

    def __init__(self, largest: int = MEMORY) -> None:
        self.largest = largest
        self.episodes: list[RecordedEpisode] = []

    def admit(self, attachment: Attachment) -> None:
        raise AssertionError("nobody is admitted here")

    def wants(self, attachment: Attachment) -> bool:
        return True

    def finished(self, attachment: Attachment, collected: Collected) -> None:
        self.episodes.append(collected.episode())


def stepped(*listeners: Listening) -> tuple[Chronicle, Playing, Attachment, Listening]:
    """A chronicle with a step that ran, and that its environment may not have been told of yet."""
    chronicle, playing, listening = Chronicle(simulator="here"), Playing(), Listening()
    chronicle.listeners += listeners or (listening,)
    attachment = cast("Attachment", playing)
    chronicle.began([attachment])
    playing.action = np.float32(0.25).tobytes()
    playing.sees(0.5)
    chronicle.stepped([attachment])
    return chronicle, playing, attachment, listening


def replaced(playing: Playing) -> None:
    """The next request has come."""
    playing.sees(0.75)
    playing.logp = -9.0
    playing.dist_inputs = np.ones(2, np.float32).tobytes()
    playing.weights_seq_no = 2


def check(episode: RecordedEpisode) -> None:
    assert episode.observations.tolist() == [[0.0], [0.5]]
    assert episode.actions.tolist() == [[0.25]]
    assert episode.rewards.tolist() == [0.5]
    assert episode.action_logp is not None
    assert episode.action_logp.tolist() == [-0.5]
    assert episode.action_dist_inputs is not None
    assert episode.action_dist_inputs.tolist() == [[0.0, 0.0]]
    assert episode.weights_seq_no == 1


NEXT: dict[str, Callable[[Chronicle, Attachment], Any]] = {
    "a reset": lambda chronicle, who: chronicle.began([who]),
    "an end": lambda chronicle, who: chronicle.ended(who, "abandoned", ""),
    "a loss": lambda chronicle, who: chronicle.ended(who, "failed", "lost"),
    "the end of the daemon": lambda chronicle, _: chronicle.close(),
}


@pytest.mark.parametrize("what", NEXT)
def test_a_step_is_written_down_as_it_was_before_what_comes_next(what: str) -> None:
    chronicle, playing, attachment, listening = stepped()
    replaced(playing)
    NEXT[what](chronicle, attachment)
    (episode,) = listening.episodes
    check(episode)


def test_many_steps_are_written_down_in_order_whatever_weights_acted() -> None:
    chronicle, playing, attachment, listening = stepped()
    for number in range(2, LAST + 1):
        playing.weights_seq_no = number // 40
        playing.logp = -float(number)
        playing.action = np.float32(number).tobytes()
        playing.sees(float(number))
        chronicle.stepped([attachment])
    chronicle.ended(attachment, "failed", "lost")
    (episode,) = listening.episodes
    numbers = [0.5, *map(float, range(2, LAST + 1))]
    assert episode.observations[:, 0].tolist() == [0.0, *numbers]
    assert episode.rewards.tolist() == numbers
    assert episode.actions[1:, 0].tolist() == numbers[1:]
    assert episode.action_logp is not None
    assert episode.action_logp[1:].tolist() == [-number for number in numbers[1:]]
    assert episode.weights_seq_no == LAST // 40


# --- parts of long episodes ------------------------------------------------------------------------------------------


def played_on(*listeners: Listening) -> None:
    """An episode of LAST steps."""
    chronicle, playing, attachment, _ = stepped(*listeners)
    for number in range(2, LAST + 1):
        playing.action = np.float32(number).tobytes()
        playing.sees(float(number))
        chronicle.stepped([attachment])
    chronicle.ended(attachment, "failed", "lost")


def test_who_takes_parts_has_them_while_the_episode_goes_on() -> None:
    large, small = Listening(5000), Listening(3000)
    played_on(large, small)
    # All have the same, and so the larger ones.
    for listener in (large, small):
        assert [episode.how for episode in listener.episodes] == ["continued"] * 2 + ["lost"]
        assert sum(map(len, listener.episodes)) == LAST
        assert len({episode.id for episode in listener.episodes}) == 1


def test_who_wants_whole_episodes_has_them_although_another_takes_parts() -> None:
    whole, small = Listening(), Listening(3000)
    played_on(whole, small)
    for listener in (whole, small):
        assert [(len(episode), episode.how) for episode in listener.episodes] == [(LAST, "lost")]
