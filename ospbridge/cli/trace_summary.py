"""``ospbridge trace show --summary``: how long the requests of a trace took."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ospbridge.cli.output import Column, print_json, print_table
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.cli.trace_choosing import Choice
    from ospbridge.observe.trace import TraceRecord
    from ospbridge.osp.codes import Code

__all__ = ["print_summary"]


def print_summary(file: Path, choice: Choice, *, slow: float, as_json: bool) -> None:
    """A line for each kind of request; what is chosen by code is chosen by the request's. ``slow`` in milliseconds."""
    from dataclasses import replace

    import numpy as np

    from ospbridge.cli.output import bar_of
    from ospbridge.observe.trace import read_trace
    from ospbridge.observe.trace_round_trips import round_trips

    # An answer has another code, and the other direction: both are needed to time a request.
    wanted = replace(choice, codes=frozenset(), directions=frozenset())
    seen = [0, 0.0, 0.0]

    def chosen() -> Iterator[TraceRecord]:
        with bar_of("reading") as progress:
            for record in read_trace(file, progress):
                if wanted(record):
                    if record.data:
                        seen[:] = [seen[0] + 1, seen[1] if seen[0] else record.time, record.time]
                    yield record

    taken: defaultdict[Code, list[float]] = defaultdict(list)
    unanswered: defaultdict[Code, int] = defaultdict(int)
    for trip in round_trips(chosen()):
        if choice.codes and trip.code not in choice.codes:
            continue
        if trip.seconds is None:
            unanswered[trip.code] += 1
        else:
            taken[trip.code].append(trip.seconds * 1000)
    rows = []
    for code in sorted({*taken, *unanswered}):
        times = np.array(taken[code])
        percentiles = np.percentile(times, [50, 95, 100]).tolist() if len(times) else [None] * 3
        rows.append((code.name, len(times), unanswered[code], *percentiles, int(np.sum(times >= slow))))
    if as_json:
        names = ("request", "answered", "unanswered", "median_ms", "p95_ms", "longest_ms", "slow")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    titles = ("answered", "lost", "median", "95 %", "longest", "slow")
    columns = [Column("request"), *(Column(title, right=True) for title in titles)]
    title = (
        f"{pluralize(int(seen[0]), 'datagram')} in {seen[2] - seen[1]:.3f} s; times in ms, slow from {slow:g}"
    )
    print_table(columns, [[_cell(value) for value in row] for row in rows], title=title)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
