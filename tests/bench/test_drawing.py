"""Pictures of reports; they need matplotlib."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from ospbridge.bench.report import Panel, Quantity, Report, Row
from ospbridge.plot.looks import Looks, drawing, write

pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")

QUANTITIES = (Quantity("p50_us", "P50 us"), Quantity("p99_us", "P99 us"), Quantity("mb", "MB"))
ROWS = (
    Row("floor", {"p50_us": 10.0, "p99_us": 20.0}, {"floor": 1.0}),
    Row("subject", {"p50_us": 900.0, "p99_us": 5000.0, "mb": 3.0}, {"floor": 90.0}),
    Row("nothing", {}),
)
TIMES = Report(
    "a", "Times", {}, QUANTITIES, ROWS, (Panel("time", ("p50_us", "p99_us")), Panel("MB", ("mb",)))
)
SIZES = Report("b", "Sizes", {}, QUANTITIES, ROWS, (Panel("MB", ("mb",)),))
BARE = Report("c", "Nothing to draw", {}, QUANTITIES, ROWS)


def test_each_report_has_its_panels_with_a_bar_a_row() -> None:
    from ospbridge.bench.drawing import draw_reports

    with drawing(Looks()):
        figure = draw_reports([TIMES, BARE, SIZES], Looks())
    times, megabytes, sizes = figure.axes
    assert [len(axes.patches) for axes in (times, megabytes, sizes)] == [2, 1, 1]
    assert [label.get_text() for label in times.get_yticklabels()] == ["floor", "subject", "nothing"]
    assert times.get_xscale() == "log"
    assert megabytes.get_xscale() == "linear"
    # The first row stands above.
    assert times.yaxis_inverted()


def test_the_same_report_makes_the_same_picture(tmp_path_factory: pytest.TempPathFactory) -> None:
    from ospbridge.bench.drawing import draw_reports

    pictures = []
    for _ in range(2):
        path = tmp_path_factory.mktemp("pictures") / "times.svg"
        with drawing(Looks()):
            write(draw_reports([TIMES], Looks()), path)
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    assert ET.fromstring(pictures[0]).tag.endswith("svg")
