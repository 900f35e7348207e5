"""Chosen signals of recorded episodes, step by step.

A file of an episode names its infos only. So a signal is called ``observation/0``, ``action/0`` (or ``action``, where
actions are discrete), ``reward``, ``action_logp``, or as the simulator calls an info.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import UsageError
from ospbridge.interface import fits
from ospbridge.plot.looks import Looks, finite, only_whole_numbers, short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ospbridge.record.episode import RecordedEpisode

__all__ = ["MOST_PANELS", "MOST_SHOWN", "choose_signals", "draw_signals", "signals_of"]

MOST_PANELS: Final = 16
MOST_SHOWN: Final = 20
"""Episodes in one picture."""


def signals_of(episode: RecordedEpisode) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """All signals by name: at which steps, and the values. The reset is step 0; actions and rewards begin with 1."""
    steps = len(episode)
    from_reset, from_first = np.arange(steps + 1), np.arange(1, steps + 1)
    found: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {
        "reward": (from_first, finite(episode.rewards))
    }
    if episode.actions.ndim == 1:
        found["action"] = (from_first, finite(episode.actions))
    else:
        for at in range(episode.actions.shape[1]):
            found[f"action/{at}"] = (from_first, finite(episode.actions[:, at]))
    observations = episode.observations.reshape(steps + 1, -1)
    for at in range(observations.shape[1]):
        found[f"observation/{at}"] = (from_reset, finite(observations[:, at]))
    for at, name in enumerate(episode.info_names):
        found.setdefault(name, (from_reset, finite(episode.infos[:, at])))
    if episode.action_logp is not None:
        found["action_logp"] = (from_first, finite(episode.action_logp))
    return found


def choose_signals(names: Sequence[str], patterns: Sequence[str]) -> tuple[list[str], int]:
    """The names that fit one of the globs, in the order of the globs, and how many more there are than panels.

    Without globs: all. Raises UsageError for a glob that no name fits.
    """
    chosen: list[str] = []
    for pattern in patterns or ("*",):
        fitting = [name for name in names if fits(name, pattern)]
        if not fitting:
            shown = ", ".join(short_name(name) for name in names[:MOST_PANELS])
            raise UsageError(
                f"no signal of the episode is called {pattern!r}",
                hint=f"there are {shown}{', ...' if len(names) > MOST_PANELS else ''}",
            )
        chosen += [name for name in fitting if name not in chosen]
    return chosen[:MOST_PANELS], max(0, len(chosen) - MOST_PANELS)


def draw_signals(
    episodes: Sequence[RecordedEpisode], names: Sequence[str], title: str, looks: Looks
) -> Figure:
    """A panel for each signal. Of several episodes the last is drawn in colour, those before it behind it."""
    figure = looks.figure(1080, 130 + 110 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    drawn = [signals_of(episode) for episode in episodes]
    for at, (axes, name) in enumerate(zip(panels, names, strict=True)):
        stepwise = "steps-pre" if name == "action" or name.startswith("action/") else "default"
        for number, signals in enumerate(drawn[:-1]):
            if name in signals:
                label = f"{len(drawn) - 1} before it" if number == 0 else None
                axes.plot(
                    *signals[name], color=looks.faint, lw=0.8, alpha=0.45, drawstyle=stepwise, label=label
                )
        label = "latest episode" if len(drawn) > 1 else None
        axes.plot(
            *drawn[-1][name],
            color=looks.colours[at % 3],
            drawstyle=stepwise,
            marker="o" if len(drawn[-1][name][0]) == 1 else "",  # no line is drawn through one point
            markersize=4,
            label=label,
        )
        axes.set_title(short_name(name), pad=3)
        axes.margins(x=0.01, y=0.1)
        axes.yaxis.set_major_locator(_few())
    panels[-1].set_xlabel("step (0 is the reset)")
    only_whole_numbers(panels[-1].xaxis)
    figure.align_ylabels()
    figure.suptitle(title, x=0.01, ha="left")
    if len(drawn) > 1:
        # Beside the title: a small panel has no room for it.
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False
        )
    return figure


def _few() -> object:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=4, steps=[1, 2, 5, 10], min_n_ticks=2)
