"""Reports as pictures: a row of panels for each, with a bar for each of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ospbridge.plot.looks import plain_numbers, short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ospbridge.bench.report import Panel, Report
    from ospbridge.plot.looks import Looks

__all__ = ["draw_reports"]

WIDTH: Final = 1200
HEAD: Final = 110
"""Pixels of a report beside its bars."""
BAR: Final = 26
MARKS: Final = ("|", "x", "+", ".")
WIDE: Final = 30.0
"""Where the largest is so many times the smallest, the axis is logarithmic."""
CROWDED: Final = 300.0
"""Where it is so many times the smallest, only powers of ten have their number at the axis."""


def draw_reports(reports: Sequence[Report], looks: Looks) -> Figure:
    """All reports that have panels, one below the other. To be called within ``ospbridge.plot.looks.drawing``."""
    drawn = [report for report in reports if report.panels]
    heights = [HEAD + BAR * len(report.rows) for report in drawn]
    figure = looks.figure(WIDTH, sum(heights) + 30)
    parts: Any = figure.subfigures(len(drawn), 1, height_ratios=heights, squeeze=False)
    for report, part in zip(drawn, parts[:, 0], strict=True):
        part.suptitle(report.title, x=0.01, ha="left")
        panels = part.subplots(1, len(report.panels), squeeze=False, sharey=True)[0]
        for panel, axes in zip(report.panels, panels, strict=True):
            _draw(report, panel, axes, looks)
        panels[0].invert_yaxis()
    return figure


def _draw(report: Report, panel: Panel, axes: Axes, looks: Looks) -> None:
    names = [short_name(row.name, most=44) for row in report.rows]
    references = set(report.ratios)
    main, *others = panel.keys
    for at, row in enumerate(report.rows):
        if main in row.values:
            compared = row.name.partition(",")[0] in references or row.name in references
            colour = looks.faint if compared else looks.colours[0]
            axes.barh(at, row.values[main], height=0.66, color=colour)
    for key, marker in zip(others, MARKS, strict=False):
        there = [(row.values[key], at) for at, row in enumerate(report.rows) if key in row.values]
        axes.scatter([x for x, _ in there], [y for _, y in there], marker=marker, color=looks.text, s=36)
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False, axis="y")
    axes.set_title(panel.title)
    values = [row.values[key] for row in report.rows for key in panel.keys if key in row.values]
    if values and min(values) > 0.0 and max(values) > WIDE * min(values):
        axes.set_xscale("log")
        plain_numbers(axes.xaxis, crowded=max(values) > CROWDED * min(values))
    else:
        axes.set_xlim(left=0.0)
