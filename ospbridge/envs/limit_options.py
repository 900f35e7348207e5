"""Limits as users of environments give them, in seconds."""

from __future__ import annotations

from ospbridge.errors import UsageError
from ospbridge.osp.timing import Limits

__all__ = ["limits_of"]


def limits_of(*, connect: float, query: float, step: float, reset: float) -> Limits:
    """Raises UsageError for one that cannot be."""
    try:
        return Limits(connect=connect, query=query, step=step, reset=reset)
    except ValueError as error:
        raise UsageError(str(error)) from None
