"""The instrument panel as a picture, drawn with Pillow: a trace for every number, names and values beside it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ospbridge.envs.panel import HISTORY, Channels, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.panel import Instruments

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
    Colour = tuple[int, int, int]

__all__ = ["LARGEST", "SIZE", "PanelPicture", "beside_each_other"]

SIZE: Final = (960, 720)
"""Width and height in pixels; multiples of 16, as video codecs like it."""
LARGEST: Final = (2 * SIZE[0], 2 * SIZE[1])
"""Width and height that several panels share."""
HEAD: Final = 64
MARGIN: Final = 12
TALLEST: Final = 120
"""Pixels of a row, however few there are."""
TEXT_ABOVE: Final = 32
"""Pixels of a row from which its text stands above the trace, not beside it."""
SHORTEST: Final = 60
"""Steps that a trace spans at least."""
MOST: Final = 4 * 32
"""Channels that still can be read; further ones are counted only."""

BACKGROUND: Final = (18, 20, 24)
FIELD: Final = (30, 33, 39)
GRID: Final = (62, 66, 74)
TEXT: Final = (225, 228, 232)
FAINT: Final = (140, 146, 156)
SENSOR: Final = (96, 176, 255)
INPUT: Final = (255, 170, 70)
REWARD: Final = (120, 214, 120)
ALARM: Final = (255, 110, 100)


def beside_each_other(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Several panels as one picture, row by row; smaller where there are more than four."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = -(-len(pictures) // columns)
    # Even numbers of pixels, as video codecs need them.
    width, height = (min(own, all_ // columns) // 2 * 2 for own, all_ in zip(SIZE, LARGEST, strict=True))
    whole = Image.new("RGB", (columns * width, rows * height), BACKGROUND)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        tile = Image.fromarray(picture)
        if tile.size != (width, height):
            tile = tile.resize((width, height), Image.Resampling.LANCZOS)
        whole.paste(tile, (column * width, row * height))
    return np.asarray(whole)


class _Row(NamedTuple):
    """One channel's place."""

    channels: Channels
    at: int
    colour: Colour
    field: tuple[int, int, int, int]
    """Left, top, right, bottom of the trace."""
    value_right: int
    text: int
    """Where its text stands, from the top."""


class PanelPicture:
    """Lays the channels out once; ``draw`` fills them in."""

    def __init__(self, panel: Instruments) -> None:
        self._panel = panel
        self._span = HISTORY
        """Steps from the left end of a trace to the right."""
        channels = [(panel.rewards, 0, REWARD)]
        channels += [(panel.sensors, at, SENSOR) for at in range(len(panel.sensors.names))]
        channels += [(panel.inputs, at, INPUT) for at in range(len(panel.inputs.names))]
        self._unseen = max(0, len(channels) - MOST)
        if self._unseen:
            # Reward and inputs are few mostly, and must not fall off the end.
            inputs = channels[-min(len(panel.inputs.names), MOST // 2) :]
            channels = channels[: MOST - len(inputs)] + inputs
        count = len(channels)
        columns = 1 if count <= 8 else 2 if count <= 44 else 3 if count <= 84 else 4
        self._lines = -(-count // columns)
        self._width = (SIZE[0] - MARGIN) // columns
        self._height = min(TALLEST, (SIZE[1] - HEAD - MARGIN) // self._lines)
        self._above = self._height >= TEXT_ABOVE
        self._text = min(18, int(0.4 * self._height)) if self._above else 14 - columns
        self._font: Font = ImageFont.load_default(self._text)
        self._head_font: Font = ImageFont.load_default(19)
        self._small: Font = ImageFont.load_default(13)
        base = Image.new("RGB", SIZE, BACKGROUND)
        draw = ImageDraw.Draw(base)
        self._room = self._name_room(draw, [c.names[at] for c, at, _ in channels])
        self._rows = [self._row(draw, number, channel) for number, channel in enumerate(channels)]
        self._base = base
        """What never changes: fields and names."""

    def _name_room(self, draw: ImageDraw.ImageDraw, names: list[str]) -> int:
        """Pixels for a name: as many as the longest takes, and the trace can spare."""
        if self._above:
            return self._width - MARGIN - 6 * self._text
        longest = max(draw.textlength(name, font=self._font) for name in names)
        return int(min(longest, 0.55 * self._width))

    def _row(self, draw: ImageDraw.ImageDraw, number: int, channel: tuple[Channels, int, Colour]) -> _Row:
        channels, at, colour = channel
        column, line = divmod(number, self._lines)
        left, top = MARGIN + column * self._width, HEAD + line * self._height
        right, bottom = left + self._width - MARGIN, top + self._height
        if self._above:
            field = (left, top + self._text + 5, right, bottom - 5)
        else:
            numbers = int(draw.textlength("-000.000", font=self._font))
            field = (left + self._room + 6, top + 1, right - numbers - 2, bottom - 3)
        draw.rectangle(field, fill=FIELD)
        name = _fitted(draw, channels.names[at], self._font, self._room)
        text = top if self._above else (field[1] + field[3]) // 2
        draw.text((left, text), name, fill=colour, font=self._font, anchor="la" if self._above else "lm")
        return _Row(channels, at, colour, field, right, text)

    def draw(self) -> NDArray[np.uint8]:
        """uint8[720, 960, 3]."""
        panel = self._panel
        self._span = min(HISTORY, max(SHORTEST, panel.sensors.steps))
        image = self._base.copy()
        draw = ImageDraw.Draw(image)
        draw.text((MARGIN, 8), panel.headline, fill=TEXT, font=self._head_font)
        state = panel.state + (f"   ({self._unseen} more are not shown)" if self._unseen else "")
        ended = panel.state not in {"playing", "terminated", "truncated", "no episode yet"}
        state = _shortened(draw, state, self._small, 640)
        draw.text((MARGIN, 36), state, fill=ALARM if ended else FAINT, font=self._small)
        legend = (("reward", REWARD), ("sensors", SENSOR), ("inputs", INPUT))
        right = SIZE[0] - MARGIN
        for text, colour in ((f"last {self._span} steps", FAINT), *reversed(legend)):
            right -= int(draw.textlength(text, font=self._small))
            draw.text((right, 36), text, fill=colour, font=self._small)
            right -= 14
        traces: dict[int, NDArray[np.float32]] = {}
        for row in self._rows:
            if id(row.channels) not in traces:
                traces[id(row.channels)] = row.channels.traces
            self._draw_row(draw, row, traces[id(row.channels)][:, row.at])
        return np.asarray(image)

    def _draw_row(self, draw: ImageDraw.ImageDraw, row: _Row, trace: NDArray[np.float32]) -> None:
        left, top, right, bottom = row.field
        low, high = row.channels.range(row.at)
        value = short(float(row.channels.last[row.at]))
        anchor = "ra" if self._above else "rm"
        draw.text((row.value_right, row.text), value, fill=TEXT, font=self._font, anchor=anchor)
        scale = (bottom - top - 4) / (high - low)
        if low < 0.0 < high:
            zero = bottom - 2 + low * scale
            draw.line((left, zero, right, zero), fill=GRID)
        if bottom - top >= 40:
            draw.text((left + 3, top + 1), short(high), fill=FAINT, font=self._small)
            draw.text((left + 3, bottom - 1), short(low), fill=FAINT, font=self._small, anchor="ld")
        known = np.flatnonzero(np.isfinite(trace))
        if not len(known):
            return
        x = left + known * ((right - left - 3) / (self._span - 1))
        y = bottom - 2 - (np.clip(trace[known], low, high) - low) * scale
        points = np.stack((x, y), 1).ravel().tolist()
        if len(known) > 1:
            draw.line(points, fill=row.colour, width=2 if bottom - top >= 20 else 1)
        end = (points[-2] - 2, points[-1] - 2, points[-2] + 2, points[-1] + 2)
        draw.ellipse(end, fill=TEXT)


def _fitted(draw: ImageDraw.ImageDraw, name: str, font: Font, room: int) -> str:
    """A name within ``room`` pixels: its words shortened, ``/LefArm/Sho2/AngVel``, and at last its beginning cut."""
    fitted = name
    for letters in (len(name) + 1, 6, 5, 4, 3, 2):
        fitted = re.sub(rf"([A-Za-z][a-z]{{0,{letters - 1}}})[a-z]*", r"\1", name)
        if draw.textlength(fitted, font=font) <= room:
            return fitted
    while fitted and draw.textlength("..." + fitted, font=font) > room:
        fitted = fitted[1:]
    return "..." + fitted


def _shortened(draw: ImageDraw.ImageDraw, text: str, font: Font, room: int) -> str:
    """``text`` within ``room`` pixels, its end cut."""
    if draw.textlength(text, font=font) <= room:
        return text
    while text and draw.textlength(text + "...", font=font) > room:
        text = text[:-1]
    return text + "..."
