"""What must hold after a storm: who was not told otherwise believes only what the ledger says, and it all arrived."""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import expected
from tests.storm.bridge import Work, run
from tests.storm.lives import INPUTS, OUTPUTS
from tests.storm.machines import play

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.storm.lives import Episode, Life, Storm

__all__ = ["faults", "played", "played_by_machines", "untrue"]

NEUTRAL = [0.0] * INPUTS


def played(storm: Storm) -> tuple[Work, list[str]]:
    """What came of a storm over a whole bridge, and what did not hold."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            work = run(storm, Path(directory))
        except Exception as error:  # noqa: BLE001  # told with its seed
            return Work(storm), [_in_full(error)]
        return work, list(faults(work))


def played_by_machines(storm: Storm) -> tuple[Work, list[str]]:
    """The same of the machines alone."""
    work = Work(storm)
    try:
        work.lives, work.ledger, work.datagrams = play(storm)
    except Exception as error:  # noqa: BLE001  # told with its seed
        return work, [_in_full(error)]
    return work, list(untrue(work.lives, work.ledger))


def _in_full(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def faults(work: Work) -> Iterator[str]:
    """What did not hold of a whole bridge."""
    yield from untrue(work.lives, work.ledger)
    yield from _not_arrived(work)


def untrue(lives: Sequence[Life], ledger: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is believed of an episode that nothing was told about, and was otherwise."""
    for life in lives:
        used = [entry["agents"][life.agent]["inputs"] for entry in ledger]
        ran: dict[tuple[float, ...], int] = {}
        for at, inputs in enumerate(used):
            if ledger[at]["kind"] == "step":
                ran.setdefault(tuple(inputs), at)
        for number, episode in enumerate(life.episodes):
            if episode.ended and not episode.told:
                for fault in _untrue(episode, used, ran, ledger):
                    yield f"{life.agent}, episode {number}: {fault}"


def _untrue(
    episode: Episode,
    used: Sequence[list[float]],
    ran: Mapping[tuple[float, ...], int],
    ledger: Sequence[dict[str, Any]],
) -> Iterator[str]:
    """What an environment believes of an episode that it was told nothing about, although it was otherwise.

    ``used``: the agent's inputs of each entry of the ledger; ``ran``: where which were first used. What runs between
    two episodes, when a request is late, belongs to neither.
    """
    first = ran.get(tuple(episode.actions[0]))
    if first is None:
        yield f"its first step, with {episode.actions[0]}, never ran"
        return
    begun: dict[str, Any] = ledger[first - 2] if first >= 2 else {"kind": "nothing"}
    if begun["kind"] != "reset" or used[first - 1] != NEUTRAL:
        yield f"its first step was number {ledger[first]['n']}, which no reset and neutral step went before"
        return
    for at, action in enumerate([NEUTRAL, *episode.actions]):
        place = first - 1 + at
        if place >= len(ledger) or ledger[place]["kind"] != "step" or used[place] != action:
            yield f"step {at} was given {action}, ran with {used[place] if place < len(ledger) else 'nothing'}"
            return
        true = expected(np.array(action, np.float32), at + 1, OUTPUTS, seed=begun["seed"])
        if episode.observations[at] != true.tolist():
            yield f"step {at} brought {episode.observations[at]}, it was {true.tolist()}"


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
