"""The four data types of the wire: their bytes, and where reading them stops."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp.wire import Reader, encode_floats, encode_ints, encode_string


def test_integers_are_four_bytes_with_the_lowest_first() -> None:
    assert encode_ints([1, -1, 45454]).hex() == "01000000ffffffff8eb10000"
    assert encode_ints([]) == b""


def test_floats_are_four_bytes_with_the_lowest_first() -> None:
    assert encode_floats(np.array([1.0, -0.5], dtype=np.float32)).hex() == "0000803f000000bf"


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0, -0.5], dtype=">f4"),
        np.array([1.0, 9.0, -0.5, 9.0], dtype=np.float32)[::2],
        np.array([1.0, -0.5], dtype=np.float64),
    ],
    ids=["big-endian", "strided", "float64"],
)
def test_floats_are_sent_alike_however_they_lie_in_memory(values: np.ndarray) -> None:
    assert encode_floats(values).hex() == "0000803f000000bf"


def test_strings_end_with_a_zero() -> None:
    assert encode_string("Agent") == b"Agent\0"
    assert encode_string("") == b"\0"


def test_strings_hold_every_byte_but_zero() -> None:
    raw = bytes(range(1, 256)) + b"\0"
    assert encode_string(Reader(b"_" + raw).string("text")) == raw


def test_strings_hold_every_character_but_zero() -> None:
    assert Reader(b"_" + encode_string("Kn\xf6chel \N{SNOWMAN}")).string("text") == "Kn\xf6chel \N{SNOWMAN}"


def test_a_string_with_a_zero_inside_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="zero byte ends"):
        encode_string("a\0b")


def test_half_of_a_character_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="half of a character"):
        encode_string("ab\ud800")


def test_a_reader_goes_from_field_to_field() -> None:
    reader = Reader(
        b"\x01" + b"\x07" + encode_ints([-2]) + b"\0\0\x80?" + b"name\0" + encode_ints([5, 6]) + b"x"
    )
    assert reader.byte("flag") == 7
    assert reader.integer("id") == -2
    assert reader.float32("limit") == 1.0
    assert reader.string("name") == "name"
    assert reader.ints(2, "ids") == (5, 6)
    assert reader.finish() is True


def test_a_reader_says_whether_the_end_byte_was_there() -> None:
    assert Reader(b"\x01").finish() is False
    assert Reader(b"\x01x").finish() is True


@pytest.mark.parametrize("rest", [b"y", b"xx", b"\0\0"])
def test_a_reader_refuses_what_is_left_over(rest: bytes) -> None:
    with pytest.raises(
        RemoteProtocolError, match=f"expected the end of the datagram, {len(rest)} bytes? left"
    ):
        Reader(b"\x01" + rest).finish()


def test_a_count_is_never_negative() -> None:
    with pytest.raises(RemoteProtocolError, match="a count of 0 or more, got -1 at offset 1") as caught:
        Reader(b"\x01" + encode_ints([-1])).count("things")
    assert caught.value.offset == 1


@pytest.mark.parametrize("count", [2, 2**31 - 1])
def test_a_vector_beyond_the_datagram_is_refused_before_it_is_made(count: int) -> None:
    data = b"\x01" + bytes(7)
    with pytest.raises(RemoteProtocolError, match=f"expected {count} outputs in {4 * count} bytes, 7 left"):
        Reader(data).floats(count, "outputs")
    with pytest.raises(RemoteProtocolError, match=f"expected {count} ids"):
        Reader(data).ints(count, "ids")


def test_floats_are_a_view_of_the_datagram() -> None:
    values = Reader(b"\x01\0\0\x80?").floats(1, "outputs")
    assert values.tolist() == [1.0]
    assert not values.flags.writeable
    assert not values.flags.owndata


def test_a_vector_of_nothing_may_stand_at_the_very_end() -> None:
    reader = Reader(b"\x01")
    assert reader.floats(0, "outputs").shape == (0,)
    assert reader.ints(0, "ids") == ()
    assert reader.finish() is False


def test_a_reader_can_be_told_where_the_datagram_ends() -> None:
    reader = Reader(b"\x01abc\0", end=3)
    with pytest.raises(RemoteProtocolError, match="terminating zero"):
        reader.string("name")
    assert reader.left == 2


def test_a_cut_datagram_gives_neutral_values_for_what_is_missing() -> None:
    reader = Reader(b"\x01", cut=True)
    assert (reader.byte("flag"), reader.integer("id"), reader.float32("min"), reader.string("name")) == (
        0,
        0,
        0.0,
        "",
    )
    assert reader.missing


def test_a_cut_field_is_skipped_with_all_behind_it() -> None:
    reader = Reader(b"\x01\x01\0", cut=True)
    assert reader.integer("id") == 0
    assert reader.byte("flag") == 0
    assert reader.left == 0


def test_a_cut_vector_gives_its_whole_values() -> None:
    reader = Reader(b"\x01" + encode_ints([1, 2]) + b"\x03\0", cut=True)
    assert reader.ints(5, "ids") == (1, 2)
    assert reader.missing
    reader = Reader(b"\x01\0\0\x80?\0\0", cut=True)
    assert reader.floats(3, "outputs").tolist() == [1.0]


def test_a_cut_string_gives_its_beginning() -> None:
    reader = Reader(b"\x01begin", cut=True)
    assert reader.string("name") == "begin"
    assert reader.missing


def test_what_is_whole_is_not_reported_missing() -> None:
    reader = Reader(b"\x01name\0" + encode_ints([1]), cut=True)
    assert (reader.string("name"), reader.ints(1, "ids")) == ("name", (1,))
    assert not reader.missing


def test_an_error_shows_the_offset_and_the_first_bytes() -> None:
    data = bytes(range(100))
    error = Reader(data).error("expected nothing", 40)
    assert str(error).startswith("expected nothing at offset 40 of 100 bytes [00 01 02")
    assert str(error).endswith("2e 2f ...]")
    assert (error.data, error.offset) == (data, 40)
