"""Episodes made up for tests of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ospbridge.interface import BoxSpace, DiscreteSpace, Feedback, Space
from ospbridge.record.collecting import MEMORY, EpisodeCollector, Recorded, at_once
from ospbridge.record.writing import EpisodeWriter

INFOS = ("/episode/reward", "/Body/X")


def box(size: int, bound: float = np.inf) -> BoxSpace:
    return BoxSpace(np.full(size, -bound, np.float32), np.full(size, bound, np.float32))


def whose(agent: str = "cart", *, actions: int = 0, outputs: int = 3) -> Recorded:
    space: Space = box(actions, 1.0) if actions else DiscreteSpace(2)
    return Recorded("127.0.0.1:45454", agent, box(outputs), space, INFOS)


def feedback(number: float, *, seed: int = 7, outputs: int = 3, **ended: Any) -> Feedback:
    return Feedback(
        np.arange(outputs, dtype=np.float32) + np.float32(number),
        reward=number / 4,
        info={"osp_seed": seed, "infos": {INFOS[0]: number / 4, INFOS[1]: -number}},
        **ended,
    )


def recorder_into(directory: str | Path, whose: Recorded, *, memory: int = MEMORY) -> EpisodeCollector:
    """What it collects is on disk when whatever ended the episode returns."""
    return EpisodeCollector(whose, at_once(EpisodeWriter(directory).write), memory=memory)


def play(recorder: EpisodeCollector, steps: int, *, seed: int = 7, first: float = 0.0, **ended: Any) -> None:
    """An episode that ends with its last step, as ``ended`` says; without, it does not end."""
    recorder.begin(feedback(first, seed=seed))
    for number in range(1, steps + 1):
        last = ended if number == steps else {}
        recorder.step(number % 2, feedback(first + number, seed=seed, **last))
