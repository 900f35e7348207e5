"""What there is to draw of a file or directory, and drawing it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.interface import fits, several
from ospbridge.observe.trace import read_trace
from ospbridge.plot.episodes import draw_episodes, figures_of
from ospbridge.plot.latencies import draw_latencies, step_times
from ospbridge.plot.looks import Looks, drawing, picture_format, short_name, write
from ospbridge.plot.signals import MOST_SHOWN, choose_signals, draw_signals, signals_of
from ospbridge.record.episode import RecordedEpisode, read_episode
from ospbridge.record.reading import recorded_files
from ospbridge.text import pluralize

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Source", "plot", "source_of"]

MOST_NAMED: Final = 10
"""Agents in a message."""


class Source(Enum):
    """What a path holds."""

    RECORDING = "a directory of recorded episodes"
    EPISODE = "a recorded episode"
    TRACE = "a trace"


def source_of(path: Path) -> Source:
    """Found out by looking. Raises ConfigurationError for what is none of them."""
    if path.is_dir():
        return Source.RECORDING
    if path.is_fifo():
        raise ConfigurationError(
            f"{path} is a pipe, and what is drawn is read more than once", hint="write it to a file first"
        )
    try:
        with path.open("rb") as file:
            first = file.read(64).lstrip()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", hint="name a recording, an episode or a trace"
        ) from None
    if first.startswith(b"PK"):
        return Source.EPISODE
    if first.startswith(b"{"):
        return Source.TRACE
    raise ConfigurationError(
        f"{path} is neither a recorded episode nor a trace",
        hint="name the directory that record=DIR wrote to, a file in it, or what --trace FILE wrote",
    )


def plot(
    path: str | os.PathLike[str],
    picture: str | os.PathLike[str],
    *,
    signals: str | Sequence[str] = (),
    agents: str | Sequence[str] = (),
    window: int = 20,
    looks: Looks | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> str:
    """Draw what ``path`` holds into ``picture``; returns in words what was drawn.

    ``signals``: globs of names, for a recording or an episode. ``agents``: globs, for a recording (none: all).
    ``window``: how many episodes a moving median is of. ``progress(done, of)`` is called for each file of a recording.
    Raises ConfigurationError where matplotlib is not installed or a file cannot be read, UsageError where there is
    nothing to draw of what was asked for.
    """
    path, picture = Path(path), Path(picture)
    signals, agents = several(signals), several(agents)
    picture_format(picture)
    looks = looks or Looks()
    source = source_of(path)
    if source is Source.TRACE and (signals or agents):
        raise UsageError(
            f"{path} is a trace, which has no signals and agents to choose from",
            hint="leave out --signal and --agent; a recording has them, see record=DIR",
        )
    if source is Source.EPISODE and agents:
        raise UsageError(
            f"{path} is one episode, with no agents to choose from",
            hint="leave out --agent; a directory of episodes has several",
        )
    name = short_name(path.resolve().name)
    there: set[str] = set()
    with drawing(looks):
        if source is Source.TRACE:
            times = step_times(read_trace(path, progress))
            told = pluralize(len(times.took), "step")
            if len(times.lost):
                told += f", {len(times.lost)} never completed"
            figure = draw_latencies(times, f"How long steps took: {name}, {told}", looks)
        elif source is Source.RECORDING and not signals:
            figures = figures_of(_chosen(path, agents, progress, there))
            if not figures:
                raise _nothing(path, agents, there)
            count = len({each.agent for each in figures})
            whose = f"agent {short_name(figures[0].agent)}" if count == 1 else f"{count} agents"
            steps = sum(each.steps for each in figures)
            told = f"{pluralize(len(figures), 'episode')} of {whose}, {pluralize(steps, 'step')}"
            figure = draw_episodes(figures, f"{name}: {told}", looks, window=window)
        else:
            recorded = source is Source.RECORDING
            episodes = _latest(path, agents, progress, there) if recorded else [read_episode(path)]
            if not episodes:
                raise _nothing(path, agents, there)
            names, more = choose_signals(list(signals_of(episodes[-1])), signals)
            which = (
                f"latest {pluralize(len(episodes), 'episode')}"
                if len(episodes) > 1
                else pluralize(len(episodes[-1]), "step")
            )
            told = f"{pluralize(len(names), 'signal')}, {which} of agent {short_name(episodes[-1].agent)}"
            if more:
                told += f" ({more} signals more fit)"
            figure = draw_signals(episodes, names, f"{name}: {told}", looks)
        write(figure, picture)
    return told


def _chosen(
    directory: Path, agents: Sequence[str], progress: Callable[[int, int], None], there: set[str]
) -> Iterator[RecordedEpisode]:
    files = recorded_files(directory)
    for number, file in enumerate(files):
        episode = read_episode(file)
        there.add(episode.agent)
        progress(number + 1, len(files))
        if not agents or any(fits(episode.agent, glob) for glob in agents):
            yield episode


def _latest(
    directory: Path, agents: Sequence[str], progress: Callable[[int, int], None], there: set[str]
) -> list[RecordedEpisode]:
    """The latest episodes of the agent that was recorded last, oldest first. No more than these are read."""
    found: list[RecordedEpisode] = []
    files = recorded_files(directory)
    for number, file in enumerate(reversed(files)):
        episode = read_episode(file)
        there.add(episode.agent)
        progress(number + 1, len(files))
        if agents and not any(fits(episode.agent, glob) for glob in agents):
            continue
        if not found or episode.agent == found[0].agent:
            found.append(episode)
        if len(found) == MOST_SHOWN:
            break
    return found[::-1]


def _nothing(path: Path, agents: Sequence[str], there: set[str]) -> UsageError:
    if there:
        names = ", ".join(map(short_name, sorted(there)[:MOST_NAMED])) + ", ..." * (len(there) > MOST_NAMED)
        return UsageError(
            f"there is no episode to draw in {path} of agents that fit {' '.join(agents)}",
            hint=f"there are episodes of {names}",
        )
    return UsageError(
        f"there is no episode to draw in {path}",
        hint="an episode is written when it ends; record=DIR says where",
    )
