"""Numbers in the texts of variables, as servers of any locale print them. The document leaves the format open."""

from __future__ import annotations

from typing import Final

__all__ = ["Printing", "number", "with_point"]

ROUND_TRIP: Final = 9
"""Significant digits by which every float32 is known again."""
FIXED: Final = 6
"""Decimals at most of servers that print as many of each number."""
DIGITS_AT_LEAST: Final = 4
DECIMALS_AT_LEAST: Final = 3
"""Texts of fewer tell nothing: 0.5 is printed so by everybody."""


def with_point(text: str) -> str:
    """``text`` with a point where it has a decimal comma: one comma, and no point."""
    return text.replace(",", ".") if text.count(",") == 1 and "." not in text else text


def number(text: str) -> float:
    """The number that ``text`` is. Raises ValueError."""
    return float(with_point(text))


class Printing:
    """How far a float32 may be from its text, learned from the texts of one server."""

    __slots__ = ("_decimals", "_digits", "whole")

    def __init__(self) -> None:
        self._digits = DIGITS_AT_LEAST
        self._decimals = DECIMALS_AT_LEAST
        self.whole = False
        """Nothing is lost: a number had more digits than rounding leaves."""

    def learn(self, text: str) -> None:
        """The text of a number came."""
        if self.whole:
            return
        mantissa = with_point(text.strip().lower()).partition("e")[0]
        digits = len("".join(filter(str.isdigit, mantissa)).lstrip("0"))
        decimals = len(mantissa.partition(".")[2])
        self._digits = max(self._digits, digits)
        self._decimals = max(self._decimals, decimals)
        self.whole = digits >= ROUND_TRIP and decimals > FIXED

    @property
    def relative(self) -> float:
        """Share of a number that may be lost, where as many digits of each are printed."""
        return 0.0 if self.whole else float(10.0 ** (1 - min(self._digits, ROUND_TRIP)))

    @property
    def absolute(self) -> float:
        """What may be lost of a number, where as many decimals of each are printed."""
        return 0.0 if self.whole else float(10.0**-self._decimals)
