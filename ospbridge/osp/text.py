"""What the bytes of OSP's strings say: UTF-8, and byte by byte what is none.

The protocol names no encoding (OSP 1.1, section 3), and nothing that was received may be lost: a name or content that a
server gave goes back to it as the very same bytes. A byte that is no UTF-8 is therefore read as a character of its own,
U+F780 for 0x80 to U+F7FF for 0xff. These are for private use, and can be printed, stored and sent everywhere, which
Python's own for that purpose cannot. To read such bytes as Latin-1 would not do: E9 and C3 A9 would be the same text,
and only one of them could come back.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["decode_text", "encode_text"]

BYTE: Final = 0xF700
"""The character of a byte that is no UTF-8 is this and the byte."""
SURROGATE: Final = 0xDC00
"""Python's own is this and the byte."""
_HIGH: Final = range(0x80, 0x100)
_BYTE: Final = re.compile(f"[{chr(BYTE + 0x80)}-{chr(BYTE + 0xFF)}]")
_FROM_SURROGATES: Final = {SURROGATE + byte: BYTE + byte for byte in _HIGH}
_TO_SURROGATES: Final = {BYTE + byte: SURROGATE + byte for byte in _HIGH}


def decode_text(raw: bytes) -> str:
    """The text of any bytes. No two byte strings have the same one."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    # A character that would stand for a byte stands for three.
    apart = _BYTE.sub(lambda found: "".join(chr(BYTE + byte) for byte in found[0].encode()), text)
    return apart.translate(_FROM_SURROGATES)


def encode_text(text: str) -> bytes:
    """The bytes of a text, those that it was read from. Raises UnicodeEncodeError for half of a surrogate pair."""
    if text.isascii():
        return text.encode()
    return text.translate(_TO_SURROGATES).encode("utf-8", "surrogateescape")
