"""What a measurement found, in the one form that every ``ospbridge bench`` subcommand gives it in.

A measurement makes some runs. A run has rows by name, and a row has quantities by key, as plain floats::

    runs = [{"plain": {"p50_us": 10.0}, "with more": {"p50_us": 12.0}}, ...]

``combine`` makes rows of them: each quantity is its median over the runs; a ratio or a difference is taken between
figures of the same run, because machines are shared and their speed drifts, and then the median of those. A ``Report``
says around the rows what they are::

    TIMES = (Quantity("p50_us", "P50 us"), Quantity("steps_per_second", "STEPS/s", digits=0))
    report = Report(
        "step",
        "A step on each way",
        {"steps": 2000, "runs": len(runs)},
        TIMES,
        combine(runs, [Against("plain", "p50_us", dict.fromkeys(runs[0], "plain"))]),
        panels=(Panel("time of a step (us)", ("p50_us",)),),
    )

``ospbridge.cli.bench_output`` prints it as a table or as JSON (``Report.as_object``), and ``ospbridge.bench.drawing``
draws its panels: a bar a row for the first key of each, and marks for the others. A quantity that a row does not have
is left out: an empty cell, ``null``, no bar. The module measures nothing, and prints nothing.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Against", "Panel", "Quantity", "Report", "Row", "Values", "combine"]

Values = dict[str, float]
"""Of one row in one run, by the quantities' keys."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What is measured of each row.

    ``key``: its name in JSON, with the unit, such as "p50_us". ``title``: the head of its column, with the unit.
    ``digits``: behind the point in tables; JSON has one more.
    """

    key: str
    title: str
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Against:
    """What rows are compared to: the quantity ``key`` of each row in ``rows`` with that of another row.

    ``name``: of the ratio, in JSON and as "x NAME" above its column. ``rows``: the row to compare with, by row.
    """

    name: str
    key: str
    rows: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the picture. ``keys``: bars are of the first quantity, marks on them of the others."""

    title: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One subject over all runs: medians.

    ``ratios``: by the name of what it was compared with. ``over``: differences, by the name of the row that this one
    adds something to.
    """

    name: str
    values: Values
    ratios: Values = field(default_factory=dict)
    over: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """All that a measurement found. ``name`` is that of the subcommand, ``parameters`` what it was asked for.

    ``over``: the unit of the rows' differences, and so their place in JSON ("us": "over_us"); empty without any.
    ``notes``: what a reader of the table should know.
    """

    name: str
    title: str
    parameters: Mapping[str, int | float | str | None]
    quantities: tuple[Quantity, ...]
    rows: tuple[Row, ...]
    panels: tuple[Panel, ...] = ()
    over: str = ""
    notes: tuple[str, ...] = ()
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    @property
    def ratios(self) -> tuple[str, ...]:
        """Names of what rows were compared with, in the order in which they come."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.ratios))

    @property
    def plain(self) -> tuple[str, ...]:
        """Names of the rows that others add something to."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.over))

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        told = {
            "measured": self.name,
            "title": self.title,
            **self.parameters,
            "cores": self.cores,
            "subjects": [self._row_as_object(row) for row in self.rows],
        }
        return told | ({"notes": list(self.notes)} if self.notes else {})

    def _row_as_object(self, row: Row) -> dict[str, Any]:
        told: dict[str, Any] = {"name": row.name}
        for quantity in self.quantities:
            value = row.values.get(quantity.key, math.nan)
            told[quantity.key] = round(value, quantity.digits + 1) if math.isfinite(value) else None
        told["ratios"] = {name: round(ratio, 3) for name, ratio in row.ratios.items()}
        if self.over:
            told[f"over_{self.over}"] = {name: round(value, 2) for name, value in row.over.items()}
        return told


def combine(
    runs: Sequence[Mapping[str, Values]],
    against: Sequence[Against] = (),
    *,
    over: Mapping[str, str] | None = None,
) -> tuple[Row, ...]:
    """Rows of ``runs``, each of which has the same rows by name.

    ``over``: by row the row that it adds something to; their medians tell how much.
    """
    rows = []
    for name, values in runs[0].items():
        ratios = {}
        for each in against:
            other = each.rows.get(name, "")
            if each.key in values and runs[0].get(other, {}).get(each.key):
                ratios[each.name] = median(run[name][each.key] / run[other][each.key] for run in runs)
        differences = {}
        plain = (over or {}).get(name, "")
        if plain in runs[0]:
            differences[plain] = median(run[name]["p50_us"] - run[plain]["p50_us"] for run in runs)
        medians = {key: median(run[name][key] for run in runs) for key in values}
        rows.append(Row(name, medians, ratios, differences))
    return tuple(rows)
