"""How pictures look, and how they become files.

Matplotlib is used through its objects, without pyplot: nothing opens a window, looks for a display or is kept for
later. What a user set up for matplotlib does not count, so that the same data make the same picture: an SVG is the
same byte for byte, by the same release of matplotlib.

Colours are those of Okabe and Ito, which people see as different whatever their eyes make of red and green.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.replacing import replaced
from ospbridge.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = [
    "FORMATS",
    "Looks",
    "drawing",
    "finite",
    "legend",
    "only_whole_numbers",
    "picture_format",
    "plain_numbers",
    "short_name",
    "write",
]

FORMATS: Final = ("png", "svg")
BACKEND: Final = "MPLBACKEND"
"""A variable of pyplot's, which matplotlib looks at even where nobody uses pyplot."""
DPI: Final = 96
"""What browsers take an inch for, so that an SVG is shown as large as a PNG of the same size."""
LARGEST: Final = 1e30
"""Beyond it axes cannot be drawn."""
MOST_POINTS: Final = 5000
"""In an SVG; more are drawn as a picture within it."""


@dataclass(frozen=True, slots=True)
class Looks:
    """``size``: width and height in pixels, None for what suits the picture."""

    dark: bool = False
    size: tuple[int, int] | None = None

    @property
    def colours(self) -> tuple[str, ...]:
        """For lines and points, in this order."""
        first = ("#56B4E9", "#E69F00") if self.dark else ("#0072B2", "#E69F00")
        return (*first, "#009E73", "#CC79A7", "#D55E00", "#F0E442" if self.dark else "#56B4E9")

    @property
    def bad(self) -> str:
        """For what went wrong."""
        return "#D55E00"

    @property
    def faint(self) -> str:
        """For what is there for comparison."""
        return "#8b949e" if self.dark else "#7a828a"

    @property
    def text(self) -> str:
        return "#e6edf3" if self.dark else "#1f2328"

    @property
    def ground(self) -> str:
        return "#0d1117" if self.dark else "#ffffff"

    def figure(self, width: int, height: int) -> Figure:
        """An empty figure, in pixels; ``size`` counts if it was given."""
        from matplotlib.figure import Figure

        width, height = self.size or (width, height)
        return Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained")

    @property
    def settings(self) -> dict[str, Any]:
        """For matplotlib, over its defaults."""
        lines = "#30363d" if self.dark else "#d0d7de"
        return {
            "axes.axisbelow": True,
            "axes.edgecolor": self.faint,
            "axes.facecolor": self.ground,
            "axes.formatter.useoffset": False,
            "axes.grid": True,
            "axes.labelcolor": self.text,
            "axes.labelsize": 10,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlelocation": "left",
            "axes.titlesize": 11,
            "figure.facecolor": self.ground,
            "figure.titlesize": 12,
            "figure.titleweight": "bold",
            "font.family": ["DejaVu Sans"],  # comes with matplotlib
            "font.size": 10,
            "grid.color": lines,
            "grid.linewidth": 0.6,
            "legend.edgecolor": lines,
            "legend.facecolor": self.ground,
            "legend.fontsize": 9,
            "legend.framealpha": 0.9,
            "lines.linewidth": 1.6,
            "savefig.facecolor": self.ground,
            "svg.fonttype": "path",
            "svg.hashsalt": "ospbridge",
            "text.color": self.text,
            "text.parse_math": False,  # names come from simulators, and may hold dollars
            "xtick.color": self.text,
            "xtick.labelsize": 9,
            "ytick.color": self.text,
            "ytick.labelsize": 9,
        }


@contextmanager
def drawing(looks: Looks) -> Iterator[None]:
    """Within it, figures are made and written. Raises ConfigurationError where matplotlib is not installed."""
    try:
        style = _style()
    except ImportError as error:
        raise ConfigurationError(
            f"a picture needs matplotlib, which is not installed as a whole: {error}",
            hint="pip install 'ospbridge[plot]'",
        ) from None
    with ExitStack() as stack:
        stack.enter_context(style.context(["default", looks.settings]))
        stack.enter_context(warnings.catch_warnings())
        # A name in a script that the font does not have is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        yield


def _style() -> ModuleType:
    """Matplotlib's styles. A backend that it does not know does not count: none is asked for here.

    Commands that a notebook starts are told of its backend, which their own installation need not have.
    """
    backend = None if "matplotlib" in sys.modules else os.environ.pop(BACKEND, None)
    try:
        import matplotlib as mpl
        from matplotlib import style
    finally:
        if backend is not None:
            os.environ[BACKEND] = backend
    if backend:
        with suppress(ValueError):
            mpl.rcParams["backend"] = backend
    found: ModuleType = style
    return found


def picture_format(path: Path) -> str:
    """By the ending of its name. Raises UsageError for one that is not known."""
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise UsageError(
            f"{path.name!r} says no kind of picture that can be drawn",
            hint=f"end the name with {' or '.join(f'.{name}' for name in FORMATS)}",
        )
    return ending


def write(figure: Figure, path: Path) -> None:
    """The whole picture or none. Raises ConfigurationError where it cannot be written."""
    ending = picture_format(path)
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": "ospbridge"} if ending == "svg" else {"Software": "ospbridge"}
    figure.savefig(buffer, format=ending, dpi=DPI, metadata=metadata)
    try:
        with replaced(path.resolve()) as file:
            file.write(buffer.getvalue())
    except OSError as error:
        raise ConfigurationError(
            f"cannot write a picture to {path}: {error.strerror}",
            hint="name a file in a directory that exists and may be written to",
        ) from None


def plain_numbers(axis: Axis, *, crowded: bool = False) -> None:
    """On a logarithmic axis 0.5 and 20 are easier to read than powers of ten; these alone where it is ``crowded``."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0,) if crowded else (1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def only_whole_numbers(axis: Axis) -> None:
    """For what is counted."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend(axes: Axes) -> None:
    """Where it hides least."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best")


def finite(values: NDArray[Any]) -> NDArray[Any]:
    """As float64, with NaN for what no axis has a place for: a gap in a line."""
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) < LARGEST, values, np.nan)


def short_name(text: str, *, most: int = 60) -> str:
    """Names come from simulators: on one line, and not too long."""
    text = printable(text)
    return text if len(text) <= most else f"{text[: most - 3]}..."
