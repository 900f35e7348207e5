"""What must hold after a storm: who was not told otherwise believes only what the ledger says, and it all arrived."""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ospbridge.record.reading import read_recording
from tests.storm.bridge import Work, run
from tests.storm.lives import untrue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.storm.lives import Storm


def played(storm: Storm) -> tuple[Work, list[str]]:
    """What came of a storm over a whole bridge, and what did not hold."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            work = run(storm, Path(directory))
        except Exception as error:  # noqa: BLE001  # told with its seed
            return Work(storm), [_in_full(error)]
        return work, list(faults(work))


def _in_full(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def faults(work: Work) -> Iterator[str]:
    """What did not hold of a whole bridge."""
    yield from map(str, untrue(work.lives, work.ledger))
    yield from _not_arrived(work)


def _not_arrived(work: Work) -> Iterator[str]:
    """Episodes of environments at the hub that are not in the sink exactly once, as they were."""
    arrived = {}
    times: Counter[tuple[str, float]] = Counter()
    for kept in read_recording(work.sink):
        key = kept.agent, float(kept.actions[0][0])
        times[key] += 1
        arrived[key] = kept
    for key, count in times.items():
        if count > 1:
            yield f"an episode of {key[0]} arrived {count} times"
    for life in work.lives:
        if life.agent not in work.storm.attached:
            continue
        for number, episode in enumerate(life.episodes):
            key = life.agent, episode.actions[0][0]
            if key not in arrived:
                if episode.ended:
                    yield f"{life.agent}, episode {number} ended and never arrived"
                continue
            kept = arrived[key]
            count = len(episode.observations) - 1
            if kept.actions.tolist()[:count] != episode.actions[:count]:
                yield f"{life.agent}, episode {number} arrived with other actions"
            if kept.observations.tolist()[: count + 1] != episode.observations:
                yield f"{life.agent}, episode {number} arrived with other observations"
