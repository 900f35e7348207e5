"""From bytes to what they say, or to one mistake that says where they are no TOML."""

from __future__ import annotations

import tomllib
from typing import Any, Final

__all__ = ["LARGEST", "NoToml", "decoded", "parsed"]

LARGEST: Final = 1_000_000
"""Bytes of a file that a user wrote, at most."""


class NoToml(ValueError):
    """Not TOML; the text is a mistake as ``Mistakes`` has them."""


def decoded(data: bytes) -> str:
    """The text of a file, without the mark that editors of Windows begin it with. Raises NoToml."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NoToml(f"line {line}: not UTF-8, as TOML has to be") from None


def parsed(text: str) -> dict[str, Any]:
    """What it says. Raises NoToml."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Not only its own error: Python reads no integer of more than some thousands of digits.
        raise NoToml(f"no TOML: {error}") from None
