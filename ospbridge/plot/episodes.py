"""Returns and lengths of recorded episodes, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.plot.looks import MOST_POINTS, Looks, finite, legend, only_whole_numbers, short_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ospbridge.record.episode import RecordedEpisode

__all__ = ["EpisodeFigures", "draw_episodes", "figures_of", "moving_median"]

MOST_SORTED: Final = 1_000_000
"""Numbers that medians are taken of at a time: a window for each of very many episodes may need more memory than
there is."""
ENDED_ITSELF: Final = frozenset({"terminated", "truncated"})


@dataclass(slots=True)
class EpisodeFigures:
    """What a picture needs of an episode."""

    agent: str
    steps: int
    total: float
    """The return: the sum of its rewards."""
    whole: bool
    """Whether it came to its end; else it was abandoned, or a step of it was lost."""


def figures_of(episodes: Iterable[RecordedEpisode]) -> list[EpisodeFigures]:
    """Return and length of each episode, in the given order; the parts of one that filled several files are one."""
    found: list[EpisodeFigures] = []
    parts: dict[str, EpisodeFigures] = {}
    for episode in episodes:
        with np.errstate(over="ignore", invalid="ignore"):
            # What a simulator scores need not be finite; no axis has a place for it then.
            total = float(episode.rewards.sum())
        whole = episode.how in ENDED_ITSELF
        known = parts.get(episode.id) if episode.id else None
        if known is None:
            known = EpisodeFigures(episode.agent, 0, 0.0, whole)
            found.append(known)
            if episode.id:
                parts[episode.id] = known
        known.steps += len(episode)
        known.total += total
        known.whole = whole
    return found


def moving_median(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Of each value and those before it, ``window`` of them at most; what is not finite is left out.

    ``values``: float64[n]; so is what is returned, NaN where there is nothing to take the median of.
    """
    padded = np.concatenate([np.full(window - 1, np.nan), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)
    medians = np.full(len(values), np.nan)
    rows = max(1, MOST_SORTED // window)
    for first in range(0, len(values), rows):
        part = windows[first : first + rows]
        some = ~np.isnan(part).all(axis=1)
        medians[first : first + rows][some] = np.nanmedian(part[some], axis=1)
    return medians


def draw_episodes(figures: Sequence[EpisodeFigures], title: str, looks: Looks, *, window: int) -> Figure:
    """Two panels: returns above, lengths below, with moving medians. Each agent has its colour, if there are few."""
    figure = looks.figure(1080, 720)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes, name, label in (
        (upper, "total", "return (sum of rewards)"),
        (lower, "steps", "length (steps)"),
    ):
        for agent, of_agent, colour in _by_agent(figures, looks):
            _draw(axes, of_agent, name, colour=colour, agent=agent, window=window)
        axes.set_ylabel(label)
        axes.margins(x=0.02)
    if not all(each.whole for each in figures):
        upper.scatter([], [], s=14, facecolors="none", edgecolors=looks.faint, label="abandoned or lost")
    lower.set_ylim(bottom=0)
    lower.set_xlabel("episode")
    only_whole_numbers(lower.xaxis)
    only_whole_numbers(lower.yaxis)
    figure.suptitle(title, x=0.01, ha="left")
    legend(upper)
    return figure


def _by_agent(figures: Sequence[EpisodeFigures], looks: Looks) -> list[tuple[str, list[EpisodeFigures], str]]:
    agents = list(dict.fromkeys(figure.agent for figure in figures))
    if len(agents) == 1:
        return [("", list(figures), looks.colours[0])]
    if len(agents) > len(looks.colours):
        return [(f"all {len(agents)} agents", list(figures), looks.colours[0])]
    return [
        (_label(agent), [figure for figure in figures if figure.agent == agent], colour)
        for agent, colour in zip(agents, looks.colours, strict=False)
    ]


def _label(agent: str) -> str:
    """Matplotlib leaves out of a legend what begins with an underscore."""
    label = short_name(agent, most=30)
    return f" {label}" if label.startswith("_") else label


def _draw(
    axes: Any, figures: Sequence[EpisodeFigures], name: str, *, colour: str, agent: str, window: int
) -> None:
    numbers = np.arange(1, len(figures) + 1)
    values = finite(np.array([getattr(figure, name) for figure in figures], dtype=np.float64))
    whole = np.array([figure.whole for figure in figures])
    alone = len(figures) == 1
    window = min(window, len(figures))
    prefix = f"{agent}: " if agent else ""
    points: dict[str, Any] = {"s": 14, "rasterized": len(figures) > MOST_POINTS, "zorder": 2}
    if whole.any():
        label = None if window > 1 and agent else f"{prefix}episode"
        axes.scatter(
            numbers[whole],
            values[whole],
            color=colour,
            alpha=0.9 if alone else 0.45,
            lw=0,
            label=label,
            **points,
        )
    if not whole.all():
        axes.scatter(
            numbers[~whole],
            values[~whole],
            facecolors="none",
            edgecolors=colour,
            lw=0.8,
            alpha=0.7,
            **points,
        )
    if window > 1:
        axes.plot(
            numbers,
            moving_median(values, window),
            color=colour,
            label=f"{prefix}median of the latest {window}",
            zorder=3,
        )
