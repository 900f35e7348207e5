"""Text of strings without a stated encoding: every byte string is one, and comes back as it was."""

from __future__ import annotations

import json
import re
from itertools import product

import msgspec
import orjson
import pytest

from ospbridge.osp.repository import compile_expression
from ospbridge.osp.wire import decode_text, encode_text

PIECES = (
    b"a",
    "\xe9".encode(),
    "\N{SNOWMAN}".encode(),
    "\U0001f916".encode(),
    "\uf7e9".encode(),  # what stands for a byte, as a character of its own
    b"\xe9",  # Latin-1
    b"\xc3",  # the beginning of a character
    b"\xa9",  # the end of one
    b"\xed\xb3\xa9",  # half of a surrogate pair
    b"\xff",
)


def test_what_is_utf_8_is_read_so() -> None:
    for text in ("Agent", "Kn\xf6chel", "\N{SNOWMAN}", "\U0001f916"):
        assert decode_text(text.encode()) == text
        assert encode_text(text) == text.encode()


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_byte_string_comes_back_and_has_a_text_of_its_own(length: int) -> None:
    texts: dict[str, bytes] = {}
    for pieces in product(PIECES, repeat=length):
        raw = b"".join(pieces)
        text = decode_text(raw)
        assert encode_text(text) == raw
        assert texts.setdefault(text, raw) == raw


def test_a_single_byte_that_is_no_utf_8_is_a_character_that_can_be_written_down() -> None:
    text = decode_text(b"Kn\xf6chel")
    assert text == "Kn\uf7f6chel"
    assert orjson.loads(orjson.dumps(text)) == json.loads(json.dumps(text)) == text
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text
    assert text.encode().decode() == text


def test_bytes_of_a_command_line_that_is_no_utf_8_are_sent_as_they_are() -> None:
    given = b"Kn\xf6chel".decode("utf-8", "surrogateescape")
    assert encode_text(given) == b"Kn\xf6chel"


def test_half_of_a_surrogate_pair_has_no_bytes() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_text("\ud800")


@pytest.mark.parametrize("odd", ["[[a]", "[a||b]"])
def test_what_python_would_warn_of_is_a_pattern(odd: str) -> None:
    with pytest.warns(FutureWarning):
        re.compile(odd)
    re.purge()
    assert compile_expression(odd).pattern == odd


@pytest.mark.parametrize("wrong", ["(", "a**", "(?=a)", r"(a)\1", "(.{0,30}){0,30}", "half \ud800"])
def test_what_is_wrong_or_too_much_is_one_error(wrong: str) -> None:
    with pytest.raises(re.error):
        compile_expression(wrong)
