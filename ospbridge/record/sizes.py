"""Sizes of files as people write them: ``500M``, ``2 GiB``, ``1048576``."""

from __future__ import annotations

import re
from typing import Final

from ospbridge.errors import ConfigurationError

__all__ = ["parse_size"]

_SIZE: Final = re.compile(
    r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE | re.ASCII
)


def parse_size(text: str) -> int:
    """Bytes; K, M, G and T are powers of 1024. Raises ConfigurationError for what is no size, or none above 0."""
    found = _SIZE.fullmatch(text)
    if found is not None:
        number, unit = found.groups()
        size = int(float(number) * 1024 ** (" KMGT".index(unit.upper()) if unit else 0))
        if size > 0:
            return size
    raise ConfigurationError(
        f"{text!r} is no size", hint="write a number of bytes, or one with K, M, G or T: 500M, 2G"
    )
