"""Regular expressions of others: whatever is wrong with one is the same error, and nothing of it is warned about."""

from __future__ import annotations

import re
import warnings

__all__ = ["compiled"]


def compiled(expression: str) -> re.Pattern[str]:
    """The pattern. Raises re.error for an expression that is wrong, or too large or deep for Python."""
    with warnings.catch_warnings():
        # Of what a later Python may read in another way. Where warnings are errors, one would end a simulator.
        warnings.simplefilter("ignore")
        try:
            return re.compile(expression)
        except (OverflowError, RecursionError) as error:
            raise re.error(str(error)) from None
