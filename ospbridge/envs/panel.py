"""What ``render`` shows: an instrument panel of an agent's sensors and inputs over time, as text or as a picture.

OSP carries no camera, so none is shown. A panel is told what happens to an agent of an environment that was made with a
render mode; others have none, and pay nothing. Pictures need the extra ``video``.
"""

from __future__ import annotations

from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.interface import BoxSpace
from ospbridge.text import LIST, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.backend import DrivenAgent
    from ospbridge.envs.panel_picture import PanelPicture
    from ospbridge.errors import OspBridgeError
    from ospbridge.interface import Feedback

__all__ = [
    "FPS",
    "HISTORY",
    "Channels",
    "Instruments",
    "check_render_mode",
    "no_render_mode",
    "render_modes",
    "short",
]

FPS: Final = 30
HISTORY: Final = 240
"""Steps that a picture shows."""
BAR: Final = 24
"""Characters of a bar."""


def render_modes() -> list[str]:
    """What can be rendered here."""
    return ["ansi", "rgb_array"] if find_spec("PIL") is not None else ["ansi"]


def check_render_mode(mode: str | None) -> None:
    """Raises UsageError for a mode that is not offered, ConfigurationError for one that cannot be had here."""
    if mode not in {None, "ansi", "rgb_array"}:
        raise UsageError(
            f"render_mode {mode!r} is not offered",
            hint="use 'ansi' for text, 'rgb_array' for pictures, or None",
        )
    if mode == "rgb_array" and "rgb_array" not in render_modes():
        raise ConfigurationError(
            "pictures need Pillow, which is not installed", hint="pip install 'ospbridge[video]'"
        )


def no_render_mode() -> UsageError:
    """``render`` was called all the same."""
    return UsageError(
        "this environment was made without a render_mode",
        hint="make it with render_mode='ansi' or 'rgb_array'",
    )


class Channels:
    """Numbers of one kind and their last ``HISTORY`` values: float32[steps, n], NaN before the episode."""

    def __init__(self, names: Sequence[str], low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        self.names = [printable(name) for name in names]
        self.low = low
        self.high = high
        self.last: NDArray[np.float32] = np.full(len(names), np.nan, np.float32)
        self._ring = np.full((HISTORY, len(names)), np.nan, np.float32)
        self._at = 0

    def clear(self) -> None:
        """An episode begins."""
        self._ring.fill(np.nan)
        self.last.fill(np.nan)
        self._at = 0

    def add(self, values: Any) -> None:
        """The values of one more step."""
        self.last[:] = values
        self._ring[self._at % HISTORY] = self.last
        self._at += 1

    @property
    def steps(self) -> int:
        """How many are kept."""
        return min(self._at, HISTORY)

    @property
    def traces(self) -> NDArray[np.float32]:
        """float32[HISTORY, n], oldest first."""
        at = self._at % HISTORY
        return np.concatenate((self._ring[at:], self._ring[:at])) if self._at > HISTORY else self._ring

    def range(self, at: int) -> tuple[float, float]:
        """What to scale channel ``at`` by: its announced range, or that of its last values where there is none."""
        low, high = float(self.low[at]), float(self.high[at])
        if np.isfinite(low) and np.isfinite(high) and low < high:
            return low, high
        seen = self._ring[:, at]
        seen = seen[np.isfinite(seen)]
        if not len(seen):
            return -1.0, 1.0
        low, high = float(seen.min()), float(seen.max())
        if high - low < 1e-6 * max(1.0, abs(low)):
            # It stands still: in the middle.
            half = max(1.0, abs(low)) / 2
            return low - half, high + half
        return low, high


class Instruments:
    """The sensors and inputs of one agent over time. They show what they are told, under ``title``."""

    def __init__(self, shown: DrivenAgent, mode: str, *, title: str = "") -> None:
        self.title = printable(title or shown.interface.name)
        observed, acted = shown.observation_space, shown.action_space
        self.sensors = Channels(
            _names(shown.observation_names, len(observed.low), "sensor"), observed.low, observed.high
        )
        if isinstance(acted, BoxSpace):
            self.inputs = Channels(_names(shown.action_names, len(acted.low), "input"), acted.low, acted.high)
        else:
            self.inputs = Channels(
                [f"action (0 to {acted.n - 1})"], np.zeros(1, np.float32), np.full(1, acted.n - 1, np.float32)
            )
        none = np.full(1, np.inf, np.float32)
        self.rewards = Channels(["reward"], -none, none)
        self.infos: dict[str, float] = {}
        self.episode = 0
        self.steps = 0
        self.total = 0.0
        self.state = "no episode yet"
        self._began = self._now = monotonic()
        self._picture: PanelPicture | None = None
        if mode == "rgb_array":
            from ospbridge.envs.panel_picture import PanelPicture

            self._picture = PanelPicture(self)

    # --- what happens ------------------------------------------------------------------------------------------------

    def began(self, feedback: Feedback) -> None:
        """A reset brought ``feedback``: show a new episode."""
        for channels in (self.sensors, self.inputs, self.rewards):
            channels.clear()
        self.episode += 1
        self.steps = 0
        self.total = 0.0
        self.state = "playing"
        self._began = monotonic()
        self._look(feedback)
        # So that what is below each other belongs to the same step.
        self.inputs.add(np.nan)
        self.rewards.add(np.nan)

    def stepped(self, action: Any, feedback: Feedback) -> None:
        """``action`` brought ``feedback``."""
        self.steps += 1
        self.total += feedback.reward
        if feedback.terminated:
            self.state = "terminated"
        elif feedback.truncated:
            self.state = printable(f"truncated: {feedback.reason}" if feedback.reason else "truncated", LIST)
        self._look(feedback)
        self.inputs.add(action)
        self.rewards.add(feedback.reward)

    def failed(self, error: OspBridgeError) -> None:
        """A step ended in ``error``."""
        self.state = printable(error.message, LIST)

    def _look(self, feedback: Feedback) -> None:
        self.sensors.add(feedback.observation)
        self.infos = feedback.info["infos"]
        self._now = monotonic()

    # --- what is shown -----------------------------------------------------------------------------------------------

    def render(self) -> str | NDArray[np.uint8]:
        """Text, or uint8[height, width, 3] of a size that never changes."""
        return self._text() if self._picture is None else self._picture.draw()

    @property
    def headline(self) -> str:
        """Which episode of whom, and how it stands."""
        seconds = self._now - self._began if self.episode else 0.0
        return (
            f"{self.title}   episode {self.episode}   step {self.steps}   {seconds:.1f} s   "
            f"reward {short(float(self.rewards.last[0]))}   return {short(self.total)}"
        )

    def _text(self) -> str:
        """A line for every number."""
        infos = [printable(name) for name in self.infos]
        width = max(len(name) for name in (*self.sensors.names, *self.inputs.names, *infos, ""))
        lines = [self.headline, self.state]
        for title, channels in (("sensors", self.sensors), ("inputs", self.inputs)):
            lines.append(title)
            for at, name in enumerate(channels.names):
                low, high = channels.range(at)
                value = float(channels.last[at])
                bar = _bar(value, low, high)
                lines.append(f"  {name:{width}} {short(value):>11} [{bar}] {short(low)} .. {short(high)}")
        if infos:
            lines.append("infos")
            lines += [
                f"  {name:{width}} {short(value):>11}"
                for name, value in zip(infos, self.infos.values(), strict=True)
            ]
        return "\n".join(lines) + "\n"


def _names(names: Sequence[str], count: int, kind: str) -> Sequence[str]:
    """A task in Python may make other numbers than it names."""
    return names if len(names) == count else [f"{kind} {at}" for at in range(count)]


def _bar(value: float, low: float, high: float) -> str:
    """From zero, or from the end that is next to it, to the value."""
    if not np.isfinite(value):
        return " " * BAR
    origin = min(max(0.0, low), high)
    ends = sorted(round((min(max(x, low), high) - low) / (high - low) * (BAR - 1)) for x in (origin, value))
    bar = ["." if at < ends[0] or at > ends[1] else "=" for at in range(BAR)]
    bar[ends[1] if value >= origin else ends[0]] = "#"
    return "".join(bar)


def short(value: float) -> str:
    """A number in at most ten characters; "-" where there is none."""
    if np.isnan(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"
