"""Numbers within limits, as options take them.

No limit of click's own keeps NaN out, since every comparison with it is false; it is a number of no seconds.
"""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["NumberRange"]


class NumberRange(click.FloatRange):
    """``click.FloatRange`` without NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid float range.", param, ctx)
        return number
