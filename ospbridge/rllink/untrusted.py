"""What a peer sent, on its way to a message: the one exception of all that does not fit, and how it is shown."""

from __future__ import annotations

import reprlib
from typing import Any, Final

__all__ = ["LONGEST_TOLD", "Misfit", "shown"]

LONGEST_SHOWN: Final = 60
LONGEST_TOLD: Final = 500
"""Bytes of a message about what a peer sent: names that are in it are the peer's choice."""


class Misfit(Exception):
    """A value that the protocol does not allow. Dialects turn it into RemoteProtocolError, with the bytes."""


_repr: Final = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = _repr.maxdict = 3
_repr.maxlevel = 2
_repr.maxstring = _repr.maxother = _repr.maxlong = 40


def shown(value: Any) -> str:
    """A value's type and, in short, the value. Its cost does not depend on the size of what came."""
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes [{bytes(value[:16]).hex(' ')}{' ...' if len(value) > 16 else ''}]"
    return f"{type(value).__name__} {_repr.repr(value)[:LONGEST_SHOWN]}"
